"""What takes part in the engine's steps: its tokens, its pages, and what they cost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from ttc.engine.local.cache import Match, Page, PrefixCache
from ttc.errors import EngineError

__all__ = ["Call"]


class Call(ABC):
    """A call that generates or reads.

    Apart from `started`, `cancelled` and what is measured it belongs to the engine's thread.

    Args:
        tokens: what it begins with; at least one.
        longest: tokens at its greatest possible length.
        priority: what it is worth beside others.
    """

    priority: float
    """What it is worth beside others: see `ttc.ports.Request`."""

    def __init__(self, tokens: list[int], longest: int, priority: float = 0.0) -> None:
        self.prioritise(priority)
        self.tokens = tokens
        """Prompt and output so far."""
        self.prompt_length = len(tokens)
        self.longest = longest
        self.pages: list[Page] = []
        """The pages of its keys and values; empty while it waits."""
        self.computed = 0
        """Tokens whose keys and values are in the cache."""
        self.cached = 0
        """Prompt tokens that were in the cache when it joined the batch."""
        self.flops = 0
        """Operations of the steps that it took part in, with the one that runs now. Guarded."""
        self.kv_byte_seconds = 0.0
        """Its part of the memory of its pages, times how long it held them. Guarded."""
        self.started = 0
        """Output tokens computed or in the step that runs now. Guarded by the engine's lock."""
        self.cancelled = False
        """Guarded by the engine's lock."""
        self._held_bytes, self._held_since = 0.0, 0.0

    @property
    def num_pending(self) -> int:
        """Tokens to compute before the next one can be drawn: 1 while it decodes."""
        return len(self.tokens) - self.computed

    @property
    @abstractmethod
    def num_output(self) -> int:
        """Output tokens that it has."""

    @property
    @abstractmethod
    def num_reusable(self) -> int:
        """How many of its first tokens another call could compute for it."""

    @abstractmethod
    def match(self, cache: PrefixCache) -> Match:
        """Its prefix that is computed."""

    @abstractmethod
    def fail(self, error: EngineError) -> None:
        """Ends it with an error, unless it has ended."""

    def hold(self, num_bytes: float, now: float) -> None:
        """Counts what it has held until `now`, and what it holds from now on. Guarded.

        A cancelled call has been told its end, so nothing more is counted.
        """
        if not self.cancelled:
            self.kv_byte_seconds += self._held_bytes * (now - self._held_since)
            self._held_bytes, self._held_since = num_bytes, now

    def prioritise(self, priority: float) -> None:
        """Gives it another priority, which acts at the next step. From any thread."""
        if math.isnan(priority):
            raise ValueError("a priority is a number, greater ones first, not NaN")
        self.priority = priority

    def cancel(self, now: float) -> None:
        """Marks it as cancelled. Guarded."""
        self.hold(0.0, now)
        self.cancelled = True
