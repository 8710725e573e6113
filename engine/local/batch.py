"""The continuous batch: how a step runs; `schedule` says what runs in it.

Sequences join and leave between steps. A step is chosen, gets its pages, computes, and hands out
what has ended.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Sequence as Seq
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import torch

from ttc.engine.local.call import Call
from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.acceptance import decide
from ttc.engine.local.drafting.block import Block, blocks_of
from ttc.engine.local.drafting.sides import Sides, give_back, keep_what_came, part
from ttc.engine.local.drafting.speculation import Speculation
from ttc.engine.local.facts import row_facts
from ttc.engine.local.inputs import Inputs, arrange
from ttc.engine.local.kv import KVPool
from ttc.engine.local.meter import Counters, Meter, Seconds
from ttc.engine.local.model import Model
from ttc.engine.local.page import CERTAINTY, ENTROPY, Facts
from ttc.engine.local.plan import PAGE, Reads
from ttc.engine.local.reading import Reading
from ttc.engine.local.sample import NOT_FINITE, Drawn
from ttc.engine.local.schedule import Piece, Schedule, Work
from ttc.engine.local.sequence import Sequence
from ttc.engine.local.telling import Teller
from ttc.engine.local.tree import Match, RadixTree
from ttc.engine.local.warmup import warm_up, warm_up_well
from ttc.errors import EngineError, MemoryExhausted, StreamStalled
from ttc.types import Chunk

__all__ = ["Batch"]

_NO_PAGES = (
    "there is no memory for keys and values left, and nothing else runs that could give way; load "
    "the engine with a greater kv_bytes"
)
_STALLED = (
    "whoever reads the text along has stopped reading; let on_chunk hand chunks on without waiting"
)


class _Note(NamedTuple):
    """What was found out of a row of given tokens."""

    reading: Reading
    row: int
    facts: Facts | None
    """`None` where the model's output is not finite."""


_Found = tuple[int, float, "float | None", "float | None", "array[float] | None"]
"""What is drawn of a row and known of it: the columns of `Drawn`."""


class Batch:
    """Sequences, their memory and the step. It belongs to one thread.

    Where `TTC_CHECK_PAGES` is set in the environment, every step checks the tree of pages.

    Args:
        model: what computes.
        num_pages: pages of keys and values.
        max_sequences: the most sequences that compute in one step.
        lock: guards `started` and `cancelled` of all sequences.
        unsampled: tokens that are never drawn; they have no part in any probability.
        known_bytes: the memory for what is known of tokens.
        speculate: makes what drafts tokens, of how long steps take; `None` where nothing does.
    """

    def __init__(
        self,
        model: Model,
        *,
        num_pages: int,
        max_sequences: int,
        lock: threading.Lock,
        unsampled: Collection[int] = (),
        known_bytes: int = 1 << 26,
        speculate: Callable[[Curve], Speculation] | None = None,
    ) -> None:
        self.curve = Curve(model.costs)
        self.curve.start(warm_up(model) if speculate is None else warm_up_well(model))
        self._speculation = None if speculate is None else speculate(self.curve)
        self.meter = Meter(model.costs, model.bytes_per_weight)
        self.tree = RadixTree(num_pages, PAGE, known_bytes=known_bytes)
        self.model = model
        self.schedule = Schedule(
            self.tree,
            num_pages=num_pages,
            max_sequences=max_sequences,
            lock=lock,
            reads_every_row=model.config.reward is not None,
            curve=self.curve,
            speculation=self._speculation,
        )
        self._costs = model.costs
        self.num_pages = num_pages
        self.numerics = model.numerics + (self._speculation.numerics if self._speculation else "")
        """What decides the bits of a result."""
        self._pool = model.make_pool(num_pages)
        self._lock = lock
        self._unsampled = torch.tensor(sorted(unsampled), dtype=torch.int64)
        self._checks = bool(os.environ.get("TTC_CHECK_PAGES"))
        self.page_bytes = KVPool.page_bytes(model.costs)
        """Bytes of one page of keys and values."""
        self._shares_changed = True  # of pages, among calls
        self._teller = Teller(self._give_up)

    @property
    def counters(self) -> Counters:
        """What was done since the model was loaded."""
        return self.meter.counters

    @property
    def kv_bytes_used(self) -> int:
        """Bytes of keys and values that running sequences hold."""
        return self.tree.num_used * self.page_bytes

    def step(self) -> None:
        """Computes one step, and hands out what has ended.

        Whatever fails here ends the calls that took part, and nothing else.
        """
        self._step()
        if self._checks:
            self.tree.check()

    def _step(self) -> None:
        begun = time.perf_counter()
        self._leave(self.schedule.changed())
        self.schedule.admit(self)
        work = self.schedule.choose(self)
        begun += work.draft_s
        if work.starved is not None:
            self._leave([work.starved], MemoryExhausted(_NO_PAGES, retryable=True))
        if not work.pieces:
            return
        sides = self._make_room(work)
        try:
            inputs = arrange(work, sides)
            arranged = time.perf_counter()
            outputs = self._forward(inputs)
            computed = time.perf_counter()
            drawn, notes = self._read(inputs, outputs)
        except Exception as error:  # noqa: BLE001  one faulty step must not take the engine down
            give_back(self.tree, sides)
            self._fail([piece.sequence for piece in work.pieces], error)
            return
        read, operations = time.perf_counter(), work.attention_flops(self._costs)
        self._commit(work.pieces, drawn, notes, sides)
        parts = arranged - begun, computed - arranged, read - computed, time.perf_counter() - read
        self._measure(work, operations, inputs.plan.reads(self._costs), Seconds(*parts))

    def _measure(self, work: Work, operations: int, reads: Reads, seconds: Seconds) -> None:
        """Lets the meter and the cost curve take a step in."""
        load = Load(rows=work.num_rows, draws=work.num_draws, seen=work.num_seen)
        self.meter.note(
            load,
            reads,
            seconds,
            prefill_tokens=work.num_rows - work.num_decoding,
            attention_operations=operations,
            pages=self.tree.num_used,
            predicted_s=self.curve(load),
        )
        self.curve.note(load, seconds.total)

    def fail_all(self, message: str) -> None:
        """Ends every call with an error."""
        self._leave(self.schedule.calls, message)

    def start_over(self, message: str) -> None:
        """Ends every call with an error and forgets all that was computed, after a fault here."""
        try:
            self.fail_all(message)
        finally:
            self.tree.clear()

    def _fail(self, calls: Seq[Call], error: Exception) -> None:
        """Ends the calls of a step that failed."""
        lost = self.tree.copies.keys()  # if the step failed before it made them, or while it did
        halted = [
            call
            for call in self.schedule.running
            if call not in calls and not lost.isdisjoint(call.pages)
        ]
        self.tree.forget_copies()
        self._leave(calls, f"the engine's step failed: {error!r}")
        for call in halted:
            self.schedule.put_back(call, self)

    def _leave(
        self, gone: Seq[Call], error: str | EngineError | None = None, *, is_spoilt: bool = False
    ) -> None:
        """Takes sequences out of the batch, frees their memory, and then tells an error, if any.

        Nothing that a spoilt one has computed is found again.
        """
        if not gone:
            return
        here = self.schedule.drop(gone)
        self._forget_drafts(here)
        now = time.monotonic()
        with self._lock:
            for sequence in here:
                sequence.hold(0.0, now)
                self.counters.kv_byte_seconds += sequence.kv_byte_seconds
        for sequence in here:
            if is_spoilt:
                self.tree.discard(sequence.path)
            else:
                self.tree.release(sequence.path, sequence.priority)
        self._shares_changed = True
        if error is None:
            return
        kind = error if isinstance(error, EngineError) else EngineError(error)
        for sequence in gone:
            own = copy.copy(kind)
            own.output_tokens = sequence.num_output
            sequence.fail(own)

    def _forget_drafts(self, calls: Iterable[Call]) -> None:
        if self._speculation is not None:
            self._speculation.forget(call for call in calls if isinstance(call, Sequence))

    def join(self, call: Call, match: Match) -> None:
        """Gives a call the pages of what is found of it."""
        path = self.tree.join(match)
        with self._lock:
            call.begin(path, self._costs)
        self._shares_changed = True

    def give_way(self, call: Call) -> None:
        """Takes a call's pages away; it keeps its tokens, and will come again."""
        path = call.path
        self._forget_drafts([call])
        with self._lock:
            call.give_way(time.monotonic())
        self.tree.release(path, call.priority)
        self.counters.preemptions += 1
        self._shares_changed = True

    def _make_room(self, work: Work) -> Sides:
        """Gives pieces the pages that they write to, and counts what they cost."""
        grown = []
        for piece in work.pieces:
            path = piece.sequence.path
            if path.length + piece.length > len(path.table) * PAGE:
                self.tree.grow(path, path.length + piece.length)
                grown.append(piece.sequence)
        sides = part(self.tree, work.pieces)
        self._shares_changed |= bool(sides)
        self._count_memory(grown, sides)
        self._shares_changed |= bool(sides)  # again, once they are gone
        self.counters.flops += work.flops(self._costs)
        self.counters.prompt_tokens += work.prompt_tokens
        self.counters.recomputed_tokens += work.recomputed
        self.counters.draft_tokens += work.num_drafts
        self.counters.rejected_draft_tokens += work.num_drafts
        self.counters.draft_s += work.draft_s
        return sides

    def _count_memory(self, grown: Seq[Call], sides: Sides) -> None:
        """Lets calls count their part of the pages that they hold, where it has changed."""
        changed = self.schedule.running if self._shares_changed else grown
        self._shares_changed = False
        if not changed:
            return
        held = [(call.path, *sides.get(call, ())) for call in changed]
        shares = iter(self.tree.shares(chain.from_iterable(held)))
        now = time.monotonic()
        with self._lock:
            for call, paths in zip(changed, held, strict=True):
                call.hold(self.page_bytes * sum(islice(shares, len(paths))), now)

    def _forward(self, inputs: Inputs) -> torch.Tensor:
        """Runs the model."""
        if self.tree.copies:
            self._pool.copy([(source, page.place) for page, source in self.tree.copies.items()])
            self.tree.copies.clear()
        token_ids, wanted = (  # by way of NumPy, which reads a list in a fifth of the time
            torch.from_numpy(np.array(ids, np.int64)) for ids in (inputs.token_ids, inputs.wanted)
        )
        return self.model.forward(token_ids, inputs.plan, self._pool, wanted)

    def _read(self, inputs: Inputs, outputs: torch.Tensor) -> tuple[Drawn, list[_Note]]:
        """Draws a token for each piece that ends in one, and reads what is read."""
        draws, reads = inputs.draws, inputs.reads
        values: list[Facts | None] = []
        drawn = Drawn([], [], [], [], [], {})
        if self.model.config.reward is not None:
            values = _finite(outputs)
        else:
            if len(self._unsampled):
                self._unsampled = self._unsampled.to(outputs.device)  # once, if that is a GPU
                outputs.index_fill_(1, self._unsampled, -torch.inf)
            if reads:
                wanted = [reading.wants[row] for reading, row in reads]
                values = row_facts(self.model, outputs[len(draws) :], wanted)
            if inputs.proposed:
                drawn = decide(self.model, outputs[: len(draws)], draws, inputs.proposed)
            elif draws:
                drawn = self.model.draw(outputs[: len(draws)], draws)
        if inputs.hidden:
            reads = reads + inputs.hidden
            values += _finite(self.model.hidden(torch.tensor(inputs.hidden_rows)))
        notes = [_Note(*read, found) for read, found in zip(reads, values, strict=True)]
        return drawn, notes

    def _commit(self, pieces: Seq[Piece], drawn: Drawn, notes: Seq[_Note], sides: Sides) -> None:
        """Takes a step's results over, and tells them."""
        blocks = blocks_of(pieces)
        if sides:
            blocks = keep_what_came(self.tree, pieces, blocks, drawn.token_ids, sides)
        faults = _faults_of(blocks, drawn.faults)
        faults |= {note.reading: NOT_FINITE for note in notes if note.facts is None}
        for call, count, _, _, drafts, _ in pieces:
            if not faults or faults.get(call) != NOT_FINITE:
                self._record(call, count - len(drafts))
        if notes:
            self._take_notes(notes, faults)
        with self._lock:
            silent = {block.sequence for block in blocks if block.sequence.cancelled}
        found: list[_Found] = list(zip(*drawn[:-1], strict=True))
        self._take(blocks, found, faults, silent)
        drafted = [block for block in blocks if block.drafts]
        if drafted:
            self._go_on(drafted, found, drawn.faults)

    def _go_on(self, blocks: Seq[Block], found: Seq[_Found], all_faults: Mapping[int, str]) -> None:
        """Takes over what was drawn after drafts that came true, token by token.

        So a call ends or is cancelled inside a block exactly where it would without one.
        """
        begun = [block.sequence for block in blocks]
        while blocks := [b for b in blocks if b.drafts and b.sequence in self.schedule]:
            true = [b.next for b in blocks if b.drafts[0] == found[b.row][0]]
            self.counters.wrong_draft_tokens += len(blocks) - len(true)
            with self._lock:
                blocks = [block for block in true if not block.sequence.cancelled]
                for block in blocks:
                    block.sequence.confirm_draft()
            self.counters.rejected_draft_tokens -= len(blocks)
            faults = _faults_of(blocks, all_faults)
            for block in blocks:
                if faults.get(block.sequence) != NOT_FINITE:
                    self._record(block.sequence, 1)
            self._take(blocks, found, faults, set())
        for sequence in begun:
            num_pages = len(sequence.path.pages)
            self.tree.cut_back(sequence.path)
            self._shares_changed |= len(sequence.path.pages) < num_pages

    def _take(
        self,
        blocks: Seq[Block],
        found: Seq[_Found],
        faults: Mapping[Call, str],
        silent: Collection[Sequence],
    ) -> None:
        """Takes a token over for each sequence, but for those that have a fault or are gone."""
        for faulty, fault in faults.items():
            self._leave([faulty], fault, is_spoilt=fault == NOT_FINITE)
        told: list[tuple[Sequence, Chunk]] = []
        for block in blocks:
            sequence = block.sequence
            if sequence in faults:
                continue
            self.counters.output_tokens += 1
            if sequence in silent:
                continue
            token, logprob, entropy, certainty, top = found[block.row]
            self._keep(sequence, token, logprob, entropy, certainty)
            chunk = sequence.accept(token, logprob, entropy, certainty, top)
            if chunk is not None:
                told.append((sequence, chunk))
        self._leave([sequence for sequence, chunk in told if chunk.branch is not None])
        for sequence, chunk in told:
            if not sequence.is_read_along:
                sequence.tell(chunk)
        stalled = self._teller.tell([entry for entry in told if entry[0].is_read_along])
        self._leave(stalled, StreamStalled(_STALLED))

    def _give_up(self, sequence: Sequence, error: BaseException) -> None:
        """Ends a call whose callback has failed. On the thread that told it."""
        with self._lock:
            sequence.cancel(time.monotonic())
            started = sequence.started
        sequence.fail(EngineError(f"on_chunk failed: {error!r}", output_tokens=started))

    def close(self) -> None:
        """Tells what is left to be told."""
        self._teller.close()

    def _take_notes(self, notes: Seq[_Note], faults: Mapping[Call, str]) -> None:
        """Takes over what was read, and ends the calls that have found everything."""
        for reading, row, facts in notes:
            if facts is not None and reading not in faults:
                if not reading.hidden:
                    self.tree.note(reading.path, row, facts)
                reading.note(row, facts)
        readings = dict.fromkeys(note.reading for note in notes)
        done = [reading for reading in readings if reading not in faults and reading.is_found]
        self._leave(done)
        for reading in done:
            reading.finish()

    def _keep(
        self,
        sequence: Sequence,
        token: int,
        logprob: float,
        entropy: float | None,
        certainty: float | None,
    ) -> None:
        """Keeps what is known of a drawn token for whoever scores it later."""
        facts = {token: logprob}
        if entropy is not None and certainty is not None:
            facts[ENTROPY], facts[CERTAINTY] = entropy, certainty
        self.tree.note(sequence.path, len(sequence.tokens) - 1, facts)

    def _record(self, call: Call, count: int) -> None:
        """Makes the next tokens of a call known to the tree."""
        start = call.path.length
        self._shares_changed |= self.tree.record(call.path, call.tokens[start : start + count])


def _faults_of(blocks: Iterable[Block], faults: Mapping[int, str]) -> dict[Call, str]:
    """Why nothing could be drawn for sequences, by the rows of which that holds."""
    if not faults:
        return {}
    faulty = ((block.sequence, faults[block.row]) for block in blocks if block.row in faults)
    return {sequence: sequence.explained(fault) for sequence, fault in faulty}


def _finite(outputs: torch.Tensor) -> list[Facts | None]:
    """The values of each row (n, k) by their place; `None` where one is not finite."""
    finite = outputs.isfinite().all(-1).tolist()
    return [
        dict(enumerate(row)) if is_finite else None
        for row, is_finite in zip(outputs.tolist(), finite, strict=True)
    ]
