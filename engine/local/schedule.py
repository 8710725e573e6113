"""What runs in a step: which calls join the batch, which give way, how much of each is computed.

A step takes one token of every call that decodes, and as many prompt tokens as its predicted time
allows (`curve`): a long prompt stalls nobody for long. Greater priorities come first, and among
equals the owner that was served least (`turns`).

A call joins where pages for its greatest length can be kept free for it: it is *certain*. Where
only what calls of late have really used is free it joins all the same, and gives way when pages run
short: it loses its pages, keeps its tokens, and joins again once it is certain. So memory is not
left empty for lengths that nobody reaches, and yet a call gives way at most once to calls of its
own priority: there is no going round in circles (`admission`).

Nothing here decides a result: a call computes the same bits whenever it runs, and beside whatever.
Knows calls and pages; knows no model, no tensors and no results.
"""

from __future__ import annotations

import threading
from array import array
from bisect import insort
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple, Protocol

from ttc.costs import Costs
from ttc.engine.local.admission import Admission, Seats, pages_of, value
from ttc.engine.local.call import Call, Owner
from ttc.engine.local.curve import Curve
from ttc.engine.local.drafting.draft import Proposal, Trial
from ttc.engine.local.plan import PAGE
from ttc.engine.local.reading import Reading
from ttc.engine.local.sequence import Sequence
from ttc.engine.local.tree import RadixTree
from ttc.engine.local.turns import OwnerTurns, by_owner
from ttc.errors import MemoryExhausted

__all__ = ["Piece", "Schedule", "Work"]

_TARGET_S = 0.2
"""What a step should not take longer than for the sake of prompts: five tokens a second."""
_PREFILL_ROWS = range(32, 513)
"""Prompt tokens of a step: never fewer, as prompts must end; never more, for the room they take."""
_NO_ROWS: Seq[int] = ()


class Piece(NamedTuple):
    """What one call computes in a step."""

    sequence: Call
    length: int
    """Rows, from the first token that is not computed."""
    drawer: Sequence | None
    """The sequence, if the piece ends in a new token of it."""
    rows: Seq[int]
    """Of given tokens the rows of which something is read."""
    drafts: Seq[int] = ()
    """Tokens that are tried after those of the sequence; they are a part of `length`."""
    sides: Seq[Seq[int]] = ()
    """Tokens that are tried besides, each chain on a path of its own: see `drafting.sides`."""

    @property
    def counts(self) -> list[int]:
        """Its rows, path by path: a side chain has one for the sequence's last token as well."""
        return [self.length, *(1 + len(side) for side in self.sides)]


@dataclass
class Work:
    """What a step computes."""

    pieces: list[Piece] = field(default_factory=list)
    num_rows: int = 0
    num_decoding: int = 0
    """Rows of calls that have their whole prompt, and go on; drafts included."""
    num_draws: int = 0
    """Rows that the model's head is taken for."""
    num_seen: int = 0
    """Positions that rows attend to, summed over the rows."""
    prompt_tokens: int = 0
    """Prompt tokens that were never computed before."""
    recomputed: int = 0
    """Tokens whose pages had been taken away."""
    num_drafts: int = 0
    """Rows of drafted tokens, with those that side chains begin with."""
    proposals: Mapping[Sequence, Seq[Proposal]] = field(default_factory=dict)
    """What drafts proposed to follow the rows of a sequence, where that decides what does."""
    draft_s: float = 0.0
    """What drafting has taken."""
    starved: Call | None = None
    """A call for which there can be no page, though nothing else runs."""

    def attention_flops(self, costs: Costs) -> int:
        """Operations of the products of attention."""
        if all(window is None for _, window in costs.attention):
            return self.num_seen * sum(flops for flops, _ in costs.attention)
        linear = costs.flops_per_token * self.num_rows
        starts = ((piece.sequence.computed, n) for piece in self.pieces for n in piece.counts)
        return sum(costs.flops(start=s, count=n, draws=0) for s, n in starts) - linear

    def flops(self, costs: Costs) -> int:
        """All its operations, before it has run."""
        linear = costs.flops_per_token * self.num_rows + costs.flops_per_draw * self.num_draws
        return linear + self.attention_flops(costs)


class Drafts(Protocol):
    """What drafts tokens; see `drafting.speculation`."""

    def draft(self, calls: Seq[Sequence], *, alone: bool) -> Trial:
        """What a step tries beside the next token of each of these calls.

        Raises:
            MemoryExhausted: there is too little for the drafts of all, and they decide results.
        """

    def forget(self, calls: Iterable[Sequence]) -> None:
        """Nothing is kept of these calls, and the memory for it is free."""


class Schedule:
    """The calls that run and those that wait. It belongs to the engine's thread.

    Args:
        tree: whose pages the calls share.
        num_pages: how many it has.
        max_sequences: the most calls that compute in one step.
        lock: guards `started` and `cancelled` of all calls.
        reads_every_row: whether something is read of every row of given tokens.
        curve: how long a step takes.
        speculation: what drafts tokens for calls; `None` where nothing does.
    """

    def __init__(
        self,
        tree: RadixTree,
        *,
        num_pages: int,
        max_sequences: int,
        lock: threading.Lock,
        reads_every_row: bool,
        curve: Curve,
        speculation: Drafts | None = None,
    ) -> None:
        self.running: list[Call] = []
        """In depth-first order of the tree, so that calls that share pages are neighbours."""
        self._lines: dict[Owner, list[Call]] = {}  # who waits, greater priorities first
        self._tree = tree
        self.max_sequences = max_sequences
        """The most calls that compute in one step."""
        self._lock = lock
        self._reads_every_row = reads_every_row
        self._curve = curve
        self._speculation = speculation
        self._turns = OwnerTurns()
        self._admission = Admission(tree, num_pages=num_pages, max_sequences=max_sequences)
        self.step = 0
        """How often calls were let in; who took part in a step has its number as `turn`."""
        self._arrivals = 0
        self._has_changed = False
        self._present: set[Call] = set()

    @property
    def num_waiting(self) -> int:
        """Calls that have not joined, or gave way."""
        return sum(map(len, list(self._lines.values())))  # another thread may be asking

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.running or self._lines)

    @property
    def calls(self) -> list[Call]:
        """All calls."""
        return [*self.running, *(call for line in self._lines.values() for call in line)]

    def __contains__(self, call: Call) -> bool:
        """Whether a call is here."""
        return call in self._present

    def add(self, calls: Iterable[Call]) -> None:
        """Lets calls wait."""
        for call in calls:
            self._arrivals += 1
            call.arrival = self._arrivals
            call.on_change = self._note_change
            self._has_changed |= call.cancelled
            self._turns.enter(call.owner)
            self._present.add(call)
            self._wait(call)

    def _note_change(self) -> None:
        self._has_changed = True

    def _wait(self, call: Call) -> None:
        insort(self._lines.setdefault(call.owner, []), call, key=_standing)
        self._admission.retry()

    def changed(self) -> list[Call]:
        """Takes new priorities in, and returns the calls that were cancelled and are still here."""
        if not self._has_changed:
            return []
        self._has_changed = False
        for line in self._lines.values():
            line.sort(key=_standing)
        self._admission.retry()
        with self._lock:
            return [call for call in self.calls if call.cancelled]

    def drop(self, calls: Iterable[Call]) -> list[Call]:
        """Forgets calls; returns those that were still here."""
        gone = dict.fromkeys(call for call in calls if call in self._present)
        if not gone:
            return []
        num_running = len(self.running)
        self.running = [call for call in self.running if call not in gone]
        if num_running - len(self.running) < len(gone):
            self._leave_line(gone)
        for call in gone:
            self._turns.leave(call.owner)
        self._present.difference_update(gone)
        self._admission.note(gone)
        return list(gone)

    def _leave_line(self, gone: Collection[Call]) -> None:
        waiting = (call for line in self._lines.values() for call in line)
        self._lines = by_owner(call for call in waiting if call not in gone)

    def admit(self, seats: Seats) -> None:
        """Lets calls join, and others give way to them."""
        self.step += 1
        if not self._lines or self._admission.is_stuck:
            return
        admitted = self._admission.admit(self.running, self._lines, self._turns, seats, self.step)
        if admitted.joined:
            self._leave_line(set(admitted.joined))
        self.drop(admitted.found)
        self._requeue(admitted.gave_way)
        # Pages are only ever added at the end, so what was in order stays nearly so.
        self.running.sort(key=_place)

    def put_back(self, call: Call, seats: Seats) -> None:
        """Lets a running call give way, whatever it is worth."""
        seats.give_way(call)
        self._requeue([call])

    def _requeue(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self.running = [other for other in self.running if other is not call]
            self._wait(call)

    def choose(self, seats: Seats) -> Work:
        """What this step computes. Where pages run short, the least valuable calls give way."""
        work = Work()
        counts = self._counts()
        while self._shortage(counts) > 0:
            num_running = len(self.running)
            counts = self._with_pages(counts, seats)
            if not counts and len(self.running) < num_running:
                counts = self._counts()  # all that had a turn gave way: it is that of others
            elif not counts:
                work.starved = min(self.running, key=value)
        trial = self._trial(counts, work) if self._speculation is not None else Trial()
        served: dict[Owner, int] = {}
        with self._lock:
            for call, count in counts:
                if not call.cancelled:
                    work.pieces.append(self._piece(call, count, work, trial))
                    served[call.owner] = served.get(call.owner, 0) + count
        for owner, num_tokens in served.items():
            self._turns.serve(owner, num_tokens)
        return work

    def _drafted(self, counts: list[tuple[Call, int]]) -> tuple[list[Sequence], Trial]:
        """What is drafted, and for which calls.

        Where that has too little memory, what is kept of all calls is forgotten, and then the least
        valuable ones wait: they are taken out of `counts`.
        """
        assert self._speculation is not None
        ready = ((c, count) for c, count in counts if isinstance(c, Sequence))
        drawing = [call for call, count in ready if count == call.num_pending]
        is_second = False
        while True:
            alone = len(drawing) == len(counts) and all(count == 1 for _, count in counts)
            try:
                return drawing, self._speculation.draft(drawing, alone=alone)
            except MemoryExhausted:
                if is_second and len(drawing) == 1:
                    raise
            self._speculation.forget(call for call in self.running if isinstance(call, Sequence))
            if is_second:
                least = min(drawing, key=value)
                drawing.remove(least)
                counts[:] = [entry for entry in counts if entry[0] is not least]
            is_second = True

    def _trial(self, counts: list[tuple[Call, int]], work: Work) -> Trial:
        """What is tried beside what is to be computed, as far as there are pages for it."""
        drawing, trial = self._drafted(counts)
        work.proposals, work.draft_s = trial.proposals, trial.seconds
        more = [(call, 1 + len(trial.rows.get(call, ()))) for call in drawing] if trial.rows else []
        shortage = self._shortage(more)
        if shortage > 0:
            return Trial()
        beside = (
            pages_of(call.path.length + 1 + len(side)) - call.path.length // PAGE
            for call, sides in trial.sides.items()
            for side in sides
        )
        return trial if shortage + sum(beside) <= 0 else replace(trial, sides={})

    def _counts(self) -> list[tuple[Call, int]]:
        """How many tokens of which running calls a step should compute, in their order."""
        if len(self.running) <= self.max_sequences and all(
            len(call.tokens) - call.path.length == 1 for call in self.running
        ):
            return [(call, 1) for call in self.running]
        lines = by_owner(sorted(self.running, key=_last_turn))
        chosen = list(self._turns.merged(lines, _one))
        most = self.max_sequences
        deciding = [call for call in chosen[:most] if call.num_pending == 1]
        counts = dict.fromkeys(deciding, 1)
        counts |= self._prompts(chosen[:most], deciding)
        spare = (call for call in chosen[most:] if call.num_pending == 1)
        counts |= dict.fromkeys(islice(spare, most - len(counts)), 1)
        return [(call, counts[call]) for call in self.running if call in counts]

    def _prompts(self, chosen: Collection[Call], deciding: Seq[Call]) -> dict[Call, int]:
        """How many tokens of prompts go with a step: whole prompts, one after another."""
        lines = by_owner(sorted((c for c in chosen if c.num_pending > 1), key=_standing))
        counts: dict[Call, int] = {}
        if not lines:
            return counts
        room = self._curve.most_rows(
            _TARGET_S,
            _PREFILL_ROWS,
            decoding=len(deciding),
            seen=sum(len(call.tokens) for call in deciding),
        )
        for call in self._turns.merged(lines, _pending):
            counts[call] = min(call.num_pending, room)
            room -= counts[call]
            if not room:
                break
        return counts

    def _shortage(self, counts: Iterable[tuple[Call, int]]) -> int:
        """How many more pages are needed than there are."""
        needed = 0
        for call, count in counts:
            path = call.path
            end = path.length + count
            if end > len(path.table) * PAGE:
                needed += pages_of(end) - len(path.table)
        return needed - self._tree.num_available

    def _with_pages(self, counts: list[tuple[Call, int]], seats: Seats) -> list[tuple[Call, int]]:
        """What can be computed once the least valuable calls gave way, one by one.

        Calls that joined just now keep their pages: some are about to be copied.
        """
        victims = sorted(
            (call for call in self.running if call.turn != self.step), key=value, reverse=True
        )
        while self._shortage(counts) > 0 and victims and len(self.running) > 1:
            victim = victims.pop()
            seats.give_way(victim)
            self._requeue([victim])
            counts = [entry for entry in counts if entry[0] is not victim]
        while self._shortage(counts) > 0:  # pages are held by something that is no call
            counts.remove(min(counts, key=lambda entry: value(entry[0])))
        return counts

    def _piece(self, call: Call, count: int, work: Work, trial: Trial) -> Piece:
        """What a call computes in this step. Guarded."""
        start, reached = call.path.length, call.reached
        end = start + count
        drafts, sides = trial.rows.get(call, ()), trial.sides.get(call, ())
        call.turn = self.step
        if end > reached:
            call.reached = end
        if start < reached:
            again = min(end, reached) - start
            call.recomputed += again
            work.recomputed += again
        if start < call.prompt_length:
            work.prompt_tokens += max(0, min(end, call.prompt_length) - max(start, reached))
        drawer, rows = None, _NO_ROWS
        if isinstance(call, Sequence):
            if end == len(call.tokens):
                drawer = call
                call.started += 1
                tried = len(drafts) + len(sides) + sum(map(len, sides))
                if count == 1 and start >= call.prompt_length:
                    work.num_decoding += 1 + tried
                call.try_drafts(tried)
                work.num_drafts += tried
                work.num_draws += 1 + tried - len(sides)
                count += len(drafts)
        elif isinstance(call, Reading):
            rows = call.rows(count, every=self._reads_every_row)
            if not call.hidden:  # else the head has no part in it
                call.num_draws += len(rows)
                work.num_draws += len(rows)
        piece = Piece(call, count, drawer, rows, drafts, sides)
        for each in piece.counts if sides else (count,):
            work.num_rows += each
            work.num_seen += each * start + each * (each + 1) // 2
        return piece


def _standing(call: Call) -> tuple[float, int]:
    """The order of a line."""
    return -call.priority, call.arrival


def _last_turn(call: Call) -> tuple[float, int, int]:
    """The order in which calls of one owner take turns."""
    return -call.priority, call.turn, call.arrival


def _place(call: Call) -> array[int]:
    """A depth-first order of the tree."""
    return call.path.table


def _pending(call: Call) -> int:
    return call.num_pending


def _one(_: Call) -> int:
    return 1
