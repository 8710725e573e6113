"""The continuous batch: which sequences compute what in one step.

Sequences join and leave between steps. Each step computes one token of every sequence that decodes,
and a bounded number of prompt tokens of those that do not yet, so that a long prompt stalls nobody
for long. A sequence joins when the pages of its greatest possible length are certain, so none is
ever thrown out; who does not fit waits, first come first served.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from ttc.engine.local.attention import CHUNK, Span
from ttc.engine.local.cache import Match, Page, PrefixCache, common_length
from ttc.engine.local.kv import KVPool
from ttc.engine.local.model import Model
from ttc.engine.local.sample import Drawn, draw_tokens
from ttc.engine.local.sequence import Sequence
from ttc.errors import EngineError

__all__ = ["Batch", "Counters"]

_PREFILL_ROWS = 256  # about as long as a step of a hundred decoding sequences
_WORTH_WAITING = CHUNK // 2  # shared tokens; below, computing them twice beats standing in line


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


@dataclass(frozen=True)
class _Piece:
    """What one sequence computes in a step."""

    sequence: Sequence
    count: int
    """Tokens, from the first that is not computed."""
    draws: bool
    """Whether it ends in a new token."""


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
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.cache = PrefixCache(num_pages, CHUNK)
        self.model = model
        self._costs = model.config.costs
        self._pool = KVPool(model.config, num_pages)
        self._max_sequences = max_sequences
        self._lock = lock
        self._unsampled = torch.tensor(sorted(unsampled), dtype=torch.int64)
        self._copies: dict[Page, int] = {}  # which pages begin as copies, and of what

    @property
    def kv_bytes_used(self) -> int:
        """Bytes of keys and values that running sequences hold."""
        return self.cache.num_used * KVPool.page_bytes(self.model.config)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.running or self.waiting)

    def step(self) -> None:
        """Computes one step, and hands out what has ended.

        Whatever fails here ends the calls that took part, and nothing else.
        """
        self._reap()
        self._admit()
        pieces = self._choose()
        if not pieces:
            return
        try:
            drawn = self._compute(pieces)
        except Exception as error:  # noqa: BLE001  one faulty step must not take the engine down
            for page in self._copies:  # whether they were copied is not known
                page.tokens.clear()
            self._leave(
                [piece.sequence for piece in pieces], f"the engine's step failed: {error!r}"
            )
            return
        finally:
            self._copies.clear()
        self._commit(pieces, drawn)

    def fail_all(self, message: str) -> None:
        """Ends every call with an error."""
        self._leave([*self.running, *self.waiting], message)

    def _reap(self) -> None:
        with self._lock:
            gone = [s for s in (*self.running, *self.waiting) if s.cancelled]
        self._leave(gone)

    def _leave(self, gone: Seq[Sequence], error: str | None = None) -> None:
        """Takes sequences out of the batch, frees their memory, and then tells an error, if any."""
        if not gone:
            return
        leaving = set(gone)
        self.running = [s for s in self.running if s not in leaving]
        self.waiting = deque(s for s in self.waiting if s not in leaving)
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

    def _admit(self) -> None:
        """Lets sequences join, in the order in which they came."""
        while self.waiting and len(self.running) < self._max_sequences:
            sequence = self.waiting[0]
            match = self.cache.match(sequence.tokens)
            if self._is_about_to_be_computed(sequence, match):
                return
            missing = _num_pages(sequence.longest) - len(match.shared)
            reserved = sum(_num_pages(s.longest) - len(s.pages) for s in self.running)
            spare = self.cache.num_available - self.cache.num_idle(match.shared) - reserved
            if missing > spare:
                return
            self.waiting.popleft()
            self._join(sequence, match)

    def _is_about_to_be_computed(self, sequence: Sequence, match: Match) -> bool:
        """Whether a running sequence is computing a prefix that this one could have for nothing."""
        return any(
            common_length(other.tokens, sequence.tokens) - match.length >= _WORTH_WAITING
            for other in self.running
            if other.num_pending > 1
        )

    def _join(self, sequence: Sequence, match: Match) -> None:
        self.cache.hold(match.shared)
        sequence.pages = list(match.shared)
        sequence.computed = sequence.cached = match.length
        if match.source is not None:
            # Copies are made before the step writes anything, and all are read before one is
            # written. So the source may lose its memory to this page or to another one, and a page
            # that is itself about to be copied stands for its own source.
            source = self._copies.get(match.source, match.source.index)
            page = self._grow(sequence)
            page.tokens = match.source.tokens[: match.copied]
            self._copies[page] = source
        self.running.append(sequence)

    def _grow(self, sequence: Sequence) -> Page:
        page = self.cache.take(sequence.pages[-1] if sequence.pages else None)
        sequence.pages.append(page)
        return page

    def _choose(self) -> list[_Piece]:
        """What this step computes: first of all one token of each sequence that decodes."""
        pieces, room = [], _PREFILL_ROWS
        with self._lock:
            for sequence in self.running:
                count = min(sequence.num_pending, room)
                if sequence.num_pending == 1:
                    count = 1
                else:
                    room -= count
                if sequence.cancelled or not count:
                    continue
                piece = _Piece(sequence, count, draws=count == sequence.num_pending)
                flops = self._costs.flops(
                    start=sequence.computed, count=count, draws=int(piece.draws)
                )
                sequence.started += piece.draws
                sequence.flops += flops
                self.counters.flops += flops
                pieces.append(piece)
        for piece in pieces:
            sequence = piece.sequence
            while len(sequence.pages) * CHUNK < sequence.computed + piece.count:
                self._grow(sequence)
        self._count_memory()
        return pieces

    def _count_memory(self) -> None:
        """Lets every sequence count its part of the pages that it holds."""
        page_bytes, now = KVPool.page_bytes(self.model.config), time.monotonic()
        with self._lock:
            for sequence in self.running:
                sequence.hold(page_bytes * sum(1 / p.users for p in sequence.pages), now)

    def _compute(self, pieces: Seq[_Piece]) -> Drawn:
        """Runs the model and draws a token for each piece that ends in one."""
        self._pool.copy([(source, page.index) for page, source in self._copies.items()])
        token_ids: list[int] = []
        spans, draws, last_rows = [], [], []
        for piece in pieces:
            sequence, start = piece.sequence, piece.sequence.computed
            token_ids += sequence.tokens[start : start + piece.count]
            pages = [page.index for page in sequence.pages]
            spans.append(Span(pages=pages, start=start, count=piece.count))
            if piece.draws:
                draws.append(sequence.draw)
                last_rows.append(len(token_ids) - 1)
        rows = torch.tensor(last_rows, dtype=torch.int64)
        logits = self.model.forward(torch.tensor(token_ids), spans, self._pool, rows)
        logits[:, self._unsampled] = -torch.inf
        return draw_tokens(logits, draws) if draws else Drawn([], [], [], [], [])

    def _commit(self, pieces: Seq[_Piece], drawn: Drawn) -> None:
        """Takes a step's results over, and tells them."""
        drawing = [piece.sequence for piece in pieces if piece.draws]
        for piece in pieces:
            self._record(piece)
        self.counters.steps += 1
        self.counters.output_tokens += len(drawing)
        with self._lock:
            cancelled = {sequence for sequence in drawing if sequence.cancelled}
        chunks = [
            (sequence, sequence.accept(*row))
            for sequence, *row in zip(drawing, *drawn, strict=True)
            if sequence not in cancelled
        ]
        self._leave([sequence for sequence, chunk in chunks if chunk.branch is not None])
        for sequence, chunk in chunks:
            try:
                sequence.tell(chunk)
            except Exception as error:  # noqa: BLE001  a caller's callback must not stop the others
                self._leave([sequence], f"on_chunk failed: {error!r}")

    def _record(self, piece: _Piece) -> None:
        """Makes the tokens of a piece known to the cache."""
        sequence, start = piece.sequence, piece.sequence.computed
        end = start + piece.count
        for position in range(start, end):
            sequence.pages[position // CHUNK].tokens.append(sequence.tokens[position])
        sequence.computed = end
        self.counters.prompt_tokens += max(0, min(end, sequence.prompt_length) - start)


def _num_pages(num_tokens: int) -> int:
    return -(-num_tokens // CHUNK)
