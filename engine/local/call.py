"""What takes part in the engine's steps: its tokens, its pages, and what they cost."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable

from ttc.costs import Costs
from ttc.engine.local.page import Page
from ttc.engine.local.tree import Match, Path, RadixTree
from ttc.errors import EngineError

__all__ = ["Call", "Owner"]

Owner = Hashable
"""Whose share of the engine a call takes."""


class Call(ABC):
    """A call that generates or reads.

    Apart from `started`, `cancelled` and what is measured it belongs to the engine's thread.

    Args:
        tokens: what it begins with; at least one.
        longest: tokens at its greatest possible length.
        priority: what it is worth beside others.
        owner: whose share of the engine it takes.
    """

    salt: str = ""
    """What keeps its part of the tree apart: calls of other salts share no pages with it."""
    priority: float
    """What it is worth beside others: see `ttc.ports.Request`."""

    def __init__(
        self, tokens: list[int], longest: int, priority: float = 0.0, owner: Owner = ""
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Is told when it was cancelled or has another priority. From any thread."""
        self.prioritise(priority)
        self.owner = owner
        self.arrival = 0
        """Its number among the calls that came."""
        self.turn = 0
        """The step that it last took part in, or joined in."""
        self.is_certain = False
        """Whether pages for its greatest length are kept free, so that it need never give way."""
        self.times_preempted = 0
        self.tokens = tokens
        """Prompt and output so far."""
        self.prompt_length = len(tokens)
        self.longest = longest
        self.path = Path()
        """The pages of its keys and values; none while it waits."""
        self.cached = 0
        """Prompt tokens that were in the tree, so that they never had to be computed."""
        self.reached = 0
        """Tokens that were ever in the tree, with those of the step that runs now. Guarded."""
        self.recomputed = 0
        """Tokens computed again after it gave its pages back, likewise. Guarded."""
        self.kv_byte_seconds = 0.0
        """Its part of the memory of its pages, times how long it held them. Guarded."""
        self.started = 0
        """Output tokens computed or in the step that runs now. Guarded by the engine's lock."""
        self.cancelled = False
        """Guarded by the engine's lock."""
        self._held_bytes, self._held_since = 0.0, 0.0
        self._costs: Costs | None = None
        self._counted, self._counted_flops = 0, 0

    @property
    def pages(self) -> list[Page]:
        """The pages of its keys and values, from the beginning on."""
        return self.path.pages

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are in the tree."""
        return self.path.length

    @property
    def num_pending(self) -> int:
        """Tokens to compute before the next one can be drawn: 1 while it decodes."""
        return len(self.tokens) - self.computed

    @property
    def flops(self) -> int:
        """Operations of the steps that it took part in, with the one that runs now. Guarded.

        What is computed again after a preemption is not in it.
        """
        if self._costs is None:
            return 0
        new = self.reached - self._counted
        draws = self.num_draws
        return self._counted_flops + self._costs.flops(start=self._counted, count=new, draws=draws)

    @property
    @abstractmethod
    def num_draws(self) -> int:
        """Rows that it has taken the model's head for. Guarded."""

    def begin(self, path: Path, costs: Costs) -> None:
        """Joins the batch with what the tree holds of its tokens. Guarded."""
        self.path, self._costs = path, costs
        found = path.length
        if found > self.reached:  # another call may have taken its path further
            self.cached += found - self.reached
            new = self.reached - self._counted
            self._counted_flops += costs.flops(start=self._counted, count=new, draws=0)
            self._counted = self.reached = found

    def give_way(self, now: float) -> None:
        """Loses its pages, and is to be computed again up to where it was. Guarded."""
        self.hold(0.0, now)
        self.path = Path()
        self.is_certain = False
        self.times_preempted += 1

    @property
    @abstractmethod
    def num_output(self) -> int:
        """Output tokens that it has."""

    @property
    @abstractmethod
    def num_reusable(self) -> int:
        """How many of its first tokens another call could compute for it."""

    @abstractmethod
    def match(self, tree: RadixTree) -> Match:
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
        self.on_change()

    def cancel(self, now: float) -> None:
        """Marks it as cancelled. Guarded."""
        self.hold(0.0, now)
        self.cancelled = True
        self.on_change()
