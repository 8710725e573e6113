"""The continuous batch: how a step runs; `schedule` says what runs in it.

Sequences join and leave between steps. Each step computes one token of every sequence that decodes,
and a bounded number of prompt tokens of those that do not yet, so that a long prompt stalls nobody
for long. A sequence joins when the pages of its greatest possible length are certain, so none is
ever thrown out; who does not fit waits, first come first served.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ttc.engine.local.cache import Match, Page, PrefixCache
from ttc.engine.local.call import Call
from ttc.engine.local.kv import KVPool
from ttc.engine.local.model import Model
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.reading import Reading
from ttc.engine.local.sample import NOT_FINITE, Drawn
from ttc.engine.local.schedule import Piece, Schedule
from ttc.engine.local.sequence import Sequence
from ttc.errors import EngineError
from ttc.types import Chunk

__all__ = ["Batch", "Counters"]


@dataclass
class Counters:
    """What the engine has done since it was loaded."""

    output_tokens: int = 0
    """Output tokens computed, those of cancelled calls included."""
    prompt_tokens: int = 0
    """Prompt tokens computed, those found in the cache not included."""
    flops: int = 0
    """Operations of all steps, the one that runs now included."""
    kv_byte_seconds: float = 0.0
    """Memory times how long it was held, of calls that have left."""
    steps: int = 0


class _Note(NamedTuple):
    """What was found out of a row of given tokens."""

    reading: Reading
    row: int
    values: Mapping[int, float] | None
    """`None` where the model's output is not finite."""


class Batch:
    """Sequences, their memory and the step. It belongs to one thread.

    Args:
        model: what computes.
        num_pages: pages of keys and values.
        max_sequences: the most sequences that compute in one step.
        lock: guards `started` and `cancelled` of all sequences.
        unsampled: tokens that are never drawn; they have no part in any probability.
    """

    def __init__(
        self,
        model: Model,
        *,
        num_pages: int,
        max_sequences: int,
        lock: threading.Lock,
        unsampled: Collection[int] = (),
    ) -> None:
        self.counters = Counters()
        self.cache = PrefixCache(num_pages, PAGE)
        self.model = model
        self.schedule = Schedule(
            self.cache,
            max_sequences=max_sequences,
            lock=lock,
            reads_every_row=model.config.reward is not None,
        )
        self._costs = model.costs
        self._pool = model.make_pool(num_pages)
        self._lock = lock
        self._unsampled = torch.tensor(sorted(unsampled), dtype=torch.int64)
        self._copies: dict[Page, int] = {}  # which pages begin as copies, and of what

    @property
    def kv_bytes_used(self) -> int:
        """Bytes of keys and values that running sequences hold."""
        return self.cache.num_used * KVPool.page_bytes(self._costs)

    def step(self) -> None:
        """Computes one step, and hands out what has ended.

        Whatever fails here ends the calls that took part, and nothing else.
        """
        self._leave(self.schedule.cancelled())
        self.schedule.admit(self._join)
        pieces = self.schedule.choose()
        if not pieces:
            return
        self._make_room(pieces)
        try:
            drawn, notes = self._compute(pieces)
        except Exception as error:  # noqa: BLE001  one faulty step must not take the engine down
            for page in self._copies:  # whether they were copied is not known
                page.forget()
            self._leave(
                [piece.sequence for piece in pieces], f"the engine's step failed: {error!r}"
            )
            return
        finally:
            self._copies.clear()
        self._commit(pieces, drawn, notes)

    def fail_all(self, message: str) -> None:
        """Ends every call with an error."""
        self._leave([*self.schedule.running, *self.schedule.waiting], message)

    def _leave(self, gone: Seq[Call], error: str | None = None) -> None:
        """Takes sequences out of the batch, frees their memory, and then tells an error, if any."""
        if not gone:
            return
        self.schedule.drop(set(gone))
        now = time.monotonic()
        with self._lock:
            for sequence in gone:
                sequence.hold(0.0, now)
                self.counters.kv_byte_seconds += sequence.kv_byte_seconds
        for sequence in gone:
            self.cache.release(sequence.pages)
            sequence.pages = []
        if error is not None:
            for sequence in gone:
                sequence.fail(EngineError(error, output_tokens=sequence.num_output))

    def _join(self, sequence: Call, match: Match) -> None:
        self.cache.hold(match.shared)
        sequence.pages = list(match.shared)
        sequence.computed = sequence.cached = match.length
        if match.source is not None:
            # Copies are made before the step writes anything, and all are read before one is
            # written. So the source may lose its memory to this page or to another one, and a page
            # that is itself about to be copied stands for its own source.
            source = self._copies.get(match.source, match.source.index)
            page = self._grow(sequence)
            page.begin_as(match.source, match.copied)
            self._copies[page] = source

    def _grow(self, sequence: Call) -> Page:
        page = self.cache.take(sequence.pages[-1] if sequence.pages else None)
        sequence.pages.append(page)
        return page

    def _make_room(self, pieces: Seq[Piece]) -> None:
        """Gives pieces the pages that they write to, and counts what they cost."""
        for piece in pieces:
            sequence = piece.sequence
            while len(sequence.pages) * PAGE < sequence.computed + piece.count:
                self._grow(sequence)
        self._count_operations(pieces)
        self._count_memory()

    def _count_operations(self, pieces: Seq[Piece]) -> None:
        with self._lock:
            for piece in pieces:
                call = piece.sequence
                reads_head = not (isinstance(call, Reading) and call.hidden)
                draws = len(piece.rows) * reads_head + (piece.drawer is not None)
                start = piece.sequence.computed
                flops = self._costs.flops(start=start, count=piece.count, draws=draws)
                piece.sequence.flops += flops
                self.counters.flops += flops

    def _count_memory(self) -> None:
        """Lets every sequence count its part of the pages that it holds."""
        page_bytes, now = KVPool.page_bytes(self._costs), time.monotonic()
        with self._lock:
            for sequence in self.schedule.running:
                sequence.hold(page_bytes * sum(1 / p.users for p in sequence.pages), now)

    def _compute(self, pieces: Seq[Piece]) -> tuple[Drawn, list[_Note]]:
        """Runs the model, draws a token for each piece that ends in one, and reads what is read."""
        self._pool.copy([(source, page.index) for page, source in self._copies.items()])
        token_ids: list[int] = []
        spans, draws, last_rows = [], [], []
        reads: list[tuple[Reading, int]] = []  # and the row in its path
        read_rows: list[int] = []
        hidden: list[tuple[Reading, int]] = []
        hidden_rows: list[int] = []
        for piece in pieces:
            sequence, start, first = piece.sequence, piece.sequence.computed, len(token_ids)
            token_ids += sequence.tokens[start : start + piece.count]
            pages = [page.index for page in sequence.pages]
            spans.append(Span(pages=pages, start=start, count=piece.count))
            if piece.drawer is not None:
                draws.append(piece.drawer.draw)
                last_rows.append(len(token_ids) - 1)
            elif isinstance(sequence, Reading):
                of_hidden = sequence.hidden
                (hidden if of_hidden else reads).extend((sequence, row) for row in piece.rows)
                rows = hidden_rows if of_hidden else read_rows
                rows += [first + row - start for row in piece.rows]
        wanted_rows = torch.tensor([*last_rows, *read_rows], dtype=torch.int64)
        outputs = self.model.forward(torch.tensor(token_ids), Plan(spans), self._pool, wanted_rows)
        if self.model.config.reward is not None:
            values = _finite(outputs)
        else:
            outputs[:, self._unsampled] = -torch.inf
            wanted = [reading.wants[row] for reading, row in reads]
            values = self.model.logprobs(outputs[len(draws) :], wanted) if reads else []
        drawn = Drawn([], [], [], [], [], {})
        if draws:
            drawn = self.model.draw(outputs[: len(draws)], draws)
        if hidden:
            values += _finite(self.model.hidden(torch.tensor(hidden_rows)))
        notes = [_Note(*read, found) for read, found in zip([*reads, *hidden], values, strict=True)]
        return drawn, notes

    def _commit(self, pieces: Seq[Piece], drawn: Drawn, notes: Seq[_Note]) -> None:
        """Takes a step's results over, and tells them."""
        drawing = [piece.drawer for piece in pieces if piece.drawer is not None]
        for piece in pieces:
            self._record(piece)
        self.counters.steps += 1
        self.counters.output_tokens += len(drawing) - len(drawn.faults)
        faults: dict[Call, str] = {drawing[row]: fault for row, fault in drawn.faults.items()}
        faults |= {reading: NOT_FINITE for reading, _, values in notes if values is None}
        for reading, row, values in notes:
            if values is not None and reading not in faults:
                reading.note(row, values)
        for faulty, fault in faults.items():
            self._leave([faulty], fault)
        with self._lock:
            cancelled = {sequence for sequence in drawing if sequence.cancelled}
        chunks = [
            (sequence, self._accept(sequence, *row))
            for sequence, *row in zip(drawing, *drawn[:-1], strict=True)
            if sequence not in cancelled and sequence not in faults
        ]
        readings = (s for p in pieces if isinstance(s := p.sequence, Reading) and s not in faults)
        read = [reading for reading in readings if reading.is_found]
        self._leave([sequence for sequence, chunk in chunks if chunk.branch is not None])
        self._leave(read)
        for reading in read:
            reading.finish()
        for sequence, chunk in chunks:
            try:
                sequence.tell(chunk)
            except Exception as error:  # noqa: BLE001  a caller's callback must not stop the others
                self._leave([sequence], f"on_chunk failed: {error!r}")

    def _accept(self, sequence: Sequence, token: int, logprob: float, *measured: Any) -> Chunk:
        """Adds a drawn token, and keeps its log probability for whoever scores it later."""
        row = len(sequence.tokens) - 1
        sequence.pages[row // PAGE].note(row % PAGE, {token: logprob})
        return sequence.accept(token, logprob, *measured)

    def _record(self, piece: Piece) -> None:
        """Makes the tokens of a piece known to the cache."""
        sequence, start = piece.sequence, piece.sequence.computed
        end = start + piece.count
        for position in range(start, end):
            sequence.pages[position // PAGE].tokens.append(sequence.tokens[position])
        sequence.computed = end
        self.counters.prompt_tokens += max(0, min(end, sequence.prompt_length) - start)


def _finite(outputs: torch.Tensor) -> list[dict[int, float] | None]:
    """The values of each row (n, k) by their place; `None` where one is not finite."""
    finite = outputs.isfinite().all(-1).tolist()
    return [
        dict(enumerate(row)) if is_finite else None
        for row, is_finite in zip(outputs.tolist(), finite, strict=True)
    ]
