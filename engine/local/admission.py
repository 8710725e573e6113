"""Which calls join the batch, and which give way to them.

Every call has a greatest length, so what it may ever need is known. The pages of a *certain* call
are promised: there are always enough of them free, or held by calls that are not certain, to reach
that length. A call that is not certain joined since what such calls really use was free.

Who joins, by the first rule that holds:

1. a call whose pages can be promised;
2. one that never gave way, for which its likely length is free;
3. one for which certain calls give way that are worth less (priority), or that never gave way and
   whose owner holds more than its share of the pages, where its own owner then still holds less.

By 2 and 3 a call gives way to its equals once and then joins by rule 1 alone, so calls cannot
chase each other in circles. Who does not join keeps those behind it from joining, so that it cannot
starve behind smaller ones; but not the calls of other owners where its own owner has calls that run
and would exceed its share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ttc.engine.local.call import Call, Owner
from ttc.engine.local.lengths import Lengths
from ttc.engine.local.page import common_length
from ttc.engine.local.plan import PAGE
from ttc.engine.local.reading import Reading
from ttc.engine.local.tree import Match, RadixTree
from ttc.engine.local.turns import OwnerTurns

__all__ = ["Admission", "Admitted", "Seats", "pages_of", "value"]

_WORTH_WAITING = 32  # shared tokens; below, computing them twice beats standing in line
_LOOKED_AT = 8  # calls of one owner that may wait for a prefix while later ones are looked at

_Verdict = Literal["joined", "found", "prefix", "seats", "pages"]


class Seats(Protocol):
    """What gives calls their pages and takes them away."""

    def join(self, call: Call, match: Match) -> None:
        """Gives a call the pages of what is found of it."""

    def give_way(self, call: Call) -> None:
        """Takes a call's pages away; it will come again."""


@dataclass
class _Promises:
    """What running calls may still take of the pages."""

    certain: int
    """Pages that certain calls may still need."""
    likely: int
    """Pages that all calls are likely to need still, and one at least."""


class Admitted(NamedTuple):
    """What came of those that waited, and of those that ran."""

    joined: list[Call]
    found: list[Call]
    """Readings that have ended, as all that they ask for is known."""
    gave_way: list[Call]
    """Calls that ran and are to wait."""


class Admission:
    """Lets calls join. It belongs to the engine's thread.

    Args:
        tree: whose pages the calls share.
        num_pages: how many it has.
        max_sequences: the most calls that compute in one step.
    """

    def __init__(self, tree: RadixTree, *, num_pages: int, max_sequences: int) -> None:
        self._tree, self._num_pages, self._max_sequences = tree, num_pages, max_sequences
        self._lengths = Lengths()
        self._running: list[Call] = []
        self._turns, self._step = OwnerTurns(), 0
        self._promises = _Promises(0, 0)
        self._gave_way: list[Call] = []
        self._stuck_at: int | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether nothing has changed since nobody could join."""
        return self._stuck_at is not None and self._stuck_at >= self._tree.num_available

    def retry(self) -> None:
        """Something has changed."""
        self._stuck_at = None

    def note(self, ended: Iterable[Call]) -> None:
        """Calls have ended."""
        for call in ended:
            self._lengths.note(call)
        self.retry()

    def admit(
        self,
        running: list[Call],
        lines: Mapping[Owner, Sequence[Call]],
        turns: OwnerTurns,
        seats: Seats,
        step: int,
    ) -> Admitted:
        """Lets calls join `running`.

        Args:
            running: the calls that run.
            lines: who waits, each owner's greater priorities first.
            turns: who comes next.
            seats: what gives pages and takes them away.
            step: the number of the step; who has it as `turn` has just joined.
        """
        self._running, self._turns, self._step = running, turns, step
        self._gave_way = []
        joined: list[Call] = []
        found: list[Call] = []
        self._promise()
        closed: set[Owner] = set()
        num_passed: dict[Owner, int] = {}
        waits_for_prefix = False
        for call in turns.merged(lines, _prompt, closed):
            verdict = self._try(call, seats)
            if verdict in ("joined", "found"):
                (joined if verdict == "joined" else found).append(call)
                continue
            waits_for_prefix |= verdict == "prefix"
            passed = num_passed[call.owner] = num_passed.get(call.owner, 0) + 1
            if verdict != "prefix" or passed == _LOOKED_AT:
                closed.add(call.owner)
            if verdict == "pages" and not self._stands_back(call):
                break
        admitted = Admitted(joined, found, self._gave_way)
        if not (any(admitted) or waits_for_prefix):
            self._stuck_at = self._tree.num_available
        self._running, self._gave_way = [], []  # calls that end are not kept
        return admitted

    def _promise(self) -> None:
        """Adds up what running calls may need, and makes those certain that can be."""
        self._promises = _Promises(0, 0)
        for call in self._running:
            self._count(call)
        hopeful = sorted((c for c in self._running if not c.is_certain), key=value, reverse=True)
        for call in hopeful:
            still = pages_of(call.longest) - len(call.path.pages)
            if still + _own_pages(call) <= self._spare(call.priority, ()):
                call.is_certain = True
                self._promises.certain += still
            else:
                return

    def _count(self, call: Call) -> None:
        held = len(call.path.pages)
        if call.is_certain:
            self._promises.certain += pages_of(call.longest) - held
        self._promises.likely += max(pages_of(self._lengths.likely(call)) - held, 1)

    def _spare(self, priority: float, shared: Collection[object]) -> int:
        """Pages that can be promised to a call that shares some, which nobody then gives back."""
        hopeful = (c for c in self._running if not c.is_certain and c.priority <= priority)
        reclaimable = sum(
            page.users == 1 and page not in shared for call in hopeful for page in call.path.pages
        )
        return self._tree.num_available + reclaimable - self._promises.certain

    def _try(self, call: Call, seats: Seats) -> _Verdict:
        """Lets a call join if it can."""
        match = call.match(self._tree)
        if isinstance(call, Reading) and call.is_found:
            call.finish()
            return "found"
        if self._is_about_to_be_computed(call, match):
            return "prefix"
        if not self._has_seat(call):
            return "seats"
        missing = pages_of(call.longest) - len(match.shared)
        idle = self._tree.num_idle(match.shared)
        short = missing + idle - self._spare(call.priority, set(match.shared))
        is_certain = short <= 0
        if not is_certain and not self._is_likely(call, match, idle):
            victims = self._victims(call, missing, short)
            if not victims:
                return "pages"
            for victim in victims:
                self._take_seat(victim, seats)
            match, is_certain = call.match(self._tree), True
        call.is_certain = is_certain
        seats.join(call, match)
        call.turn = self._step
        self._running.append(call)
        self._count(call)
        return "joined"

    def _is_likely(self, call: Call, match: Match, idle: int) -> bool:
        """Whether its likely length is free beside those of all others."""
        if call.times_preempted:
            return False
        missing = pages_of(self._lengths.likely(call)) - len(match.shared)
        return missing <= self._tree.num_available - idle - self._promises.likely

    def _has_seat(self, call: Call) -> bool:
        """Whether a call may join as one of those that take turns in computing."""
        if len(self._running) < self._max_sequences:
            return True
        ahead = [other for other in self._running if other.priority >= call.priority]
        if len(ahead) < self._max_sequences:
            return True
        own = sum(other.owner == call.owner for other in ahead)
        return own < max(1, self._max_sequences // self._turns.num_owners)

    def _victims(self, call: Call, missing: int, short: int) -> list[Call]:
        """The certain calls that give way so that pages can be promised; none if it cannot be."""
        share = self._num_pages / self._turns.num_owners
        held: dict[Owner, float] = {}
        if self._turns.num_owners > 1:
            for other in self._running:
                held[other.owner] = held.get(other.owner, 0.0) + _claimed(other)
        victims = []
        for victim in sorted(self._running, key=value):
            if short <= 0 or victim.priority > call.priority:
                break
            if victim.turn == self._step or not victim.is_certain:  # copies are about to be made
                continue
            gained = pages_of(victim.longest) - len(victim.path.pages) + _own_pages(victim)
            if victim.priority == call.priority:
                left = held.get(victim.owner, 0.0) - _claimed(victim)
                is_owed = held.get(call.owner, 0.0) + missing <= share <= left
                if victim.owner == call.owner or victim.times_preempted or not is_owed:
                    continue
                held[victim.owner] = left
            victims.append(victim)
            short -= gained
        return victims if short <= 0 else []

    def _take_seat(self, victim: Call, seats: Seats) -> None:
        seats.give_way(victim)
        self._running.remove(victim)
        self._gave_way.append(victim)
        self._promise()

    def _stands_back(self, call: Call) -> bool:
        """Whether others may pass a call for which there are no pages."""
        if self._turns.num_owners == 1:
            return False
        own = [other for other in self._running if other.owner == call.owner]
        claimed = sum(map(_claimed, own)) + pages_of(call.longest)
        return bool(own) and claimed > self._num_pages / self._turns.num_owners

    def _is_about_to_be_computed(self, call: Call, match: Match) -> bool:
        """Whether a running call is computing a prefix that this one could have for nothing.

        Given tokens wait for every one of them: they are charged for what they distinctly are.
        """
        least = 1 if isinstance(call, Reading) else _WORTH_WAITING
        reusable = None
        for other in self._running:
            if len(other.tokens) - other.computed > 1 and other.salt == call.salt:
                if reusable is None:
                    reusable = call.tokens[: call.num_reusable]
                if common_length(other.tokens, reusable) - match.length >= least:
                    return True
        return False


def pages_of(num_tokens: int) -> int:
    """The pages of so many tokens."""
    return -(-num_tokens // PAGE)


def value(call: Call) -> tuple[float, bool, int]:
    """By what calls are compared of which one has to give way: the least one does."""
    return call.priority, call.is_certain, -call.arrival


def _own_pages(call: Call) -> int:
    """The pages that nobody else holds."""
    return sum(page.users == 1 for page in call.path.pages)


def _claimed(call: Call) -> float:
    """The pages that a call holds, shared ones in parts, and may still need if it is certain."""
    still = pages_of(call.longest) - len(call.path.pages) if call.is_certain else 0
    return still + sum(1 / page.users for page in call.path.pages)


def _prompt(call: Call) -> int:
    return call.num_pending
