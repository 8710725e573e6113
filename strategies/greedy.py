"""Greedy: one answer, always the most probable token.

Cost: one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Node
from ttc.strategies.named import NamedGraph
from ttc.strategies.sample import Sample
from ttc.strategies.vote import Vote

__all__ = ["Greedy"]


@dataclass(frozen=True, kw_only=True)
class Greedy(NamedGraph):
    """The baseline: `Sample(n=1, temperature=0) >> Vote()`."""

    remote: ClassVar[bool] = True

    max_tokens: int = 512

    def expand(self) -> Node:
        """The graph that it stands for."""
        return Sample(n=1, temperature=0.0, max_tokens=self.max_tokens) >> Vote()
