"""What runs in a step: which calls join the batch, and how much of each is computed.

Knows calls and how many pages there are; knows no model, no tensors and no results.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from ttc.engine.local.cache import Match, PrefixCache, common_length
from ttc.engine.local.call import Call
from ttc.engine.local.plan import PAGE
from ttc.engine.local.reading import Reading
from ttc.engine.local.sequence import Sequence

__all__ = ["Piece", "Schedule"]

_PREFILL_ROWS = 256  # about as long as a step of a hundred decoding sequences
_WORTH_WAITING = 32  # shared tokens; below, computing them twice beats standing in line


@dataclass(frozen=True)
class Piece:
    """What one call computes in a step."""

    sequence: Call
    count: int
    """Tokens, from the first that is not computed."""
    drawer: Sequence | None
    """The sequence, if the piece ends in a new token of it."""
    rows: Seq[int]
    """Of given tokens the rows of which something is read."""


class Schedule:
    """The calls that run and those that wait. It belongs to the engine's thread.

    Args:
        cache: whose pages the calls share.
        max_sequences: the most calls that compute in one step.
        lock: guards `started` and `cancelled` of all calls.
        reads_every_row: whether something is read of every row of given tokens.
    """

    def __init__(
        self,
        cache: PrefixCache,
        *,
        max_sequences: int,
        lock: threading.Lock,
        reads_every_row: bool,
    ) -> None:
        self.running: list[Call] = []
        self.waiting: deque[Call] = deque()
        self._cache = cache
        self._max_sequences = max_sequences
        self._lock = lock
        self._reads_every_row = reads_every_row

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.running or self.waiting)

    def cancelled(self) -> list[Call]:
        """The calls that were cancelled and are still here."""
        with self._lock:
            return [s for s in (*self.running, *self.waiting) if s.cancelled]

    def drop(self, gone: Collection[Call]) -> None:
        """Forgets calls."""
        self.running = [s for s in self.running if s not in gone]
        self.waiting = deque(s for s in self.waiting if s not in gone)

    def admit(self, join: Callable[[Call, Match], None]) -> None:
        """Lets calls join, in the order in which they came; `join` gives them their pages."""
        while self.waiting and len(self.running) < self._max_sequences:
            sequence = self.waiting[0]
            match = sequence.match(self._cache)
            if isinstance(sequence, Reading) and sequence.is_found:
                self.waiting.popleft()
                sequence.finish()
                continue
            if self._is_about_to_be_computed(sequence, match):
                return
            missing = _num_pages(sequence.longest) - len(match.shared)
            reserved = sum(_num_pages(s.longest) - len(s.pages) for s in self.running)
            spare = self._cache.num_available - self._cache.num_idle(match.shared) - reserved
            if missing > spare:
                return
            self.waiting.popleft()
            join(sequence, match)
            self.running.append(sequence)

    def _is_about_to_be_computed(self, sequence: Call, match: Match) -> bool:
        """Whether a running sequence is computing a prefix that this one could have for nothing.

        Given tokens wait for every one of them: they are charged for what they distinctly are.
        """
        reusable = sequence.tokens[: sequence.num_reusable]
        least = 1 if isinstance(sequence, Reading) else _WORTH_WAITING
        return any(
            common_length(other.tokens, reusable) - match.length >= least
            for other in self.running
            if other.num_pending > 1
        )

    def choose(self) -> list[Piece]:
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
                pieces.append(self._piece(sequence, count))
        return pieces

    def _piece(self, sequence: Call, count: int) -> Piece:
        """What a call computes in this step. Guarded."""
        drawer, rows = None, list[int]()
        if isinstance(sequence, Reading):
            rows = sequence.rows(count, every=self._reads_every_row)
        elif isinstance(sequence, Sequence) and count == sequence.num_pending:
            drawer = sequence
            sequence.started += 1
        return Piece(sequence, count, drawer, rows)


def _num_pages(num_tokens: int) -> int:
    return -(-num_tokens // PAGE)
