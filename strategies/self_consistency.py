"""SelfConsistency: sample many solutions and take the most frequent answer.

Source: Wang et al. 2022, arXiv 2203.11171, section 2.
Differs: the vote stops once no answer can overtake the leader, which never changes the answer.
Cost: n calls, the prompt once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ttc.graph import Node
from ttc.strategies.named import NamedGraph
from ttc.strategies.sample import Sample
from ttc.strategies.stopping import CannotBeOvertaken, StopRule
from ttc.strategies.vote import Vote

__all__ = ["SelfConsistency"]


@dataclass(frozen=True, kw_only=True)
class SelfConsistency(NamedGraph):
    """`Sample(n) >> Vote()`."""

    remote: ClassVar[bool] = True

    n: int = 16
    temperature: float | tuple[float, ...] = 0.8
    """One, or a ladder of them; see `Sample`."""
    max_tokens: int = 512
    stop: StopRule = field(default_factory=CannotBeOvertaken)
    ahead: int | None = None
    equivalence: Literal["key", "symbolic"] = "key"
    """When two answers are one; see `Vote`."""

    def expand(self) -> Node:
        """The graph that it stands for."""
        sample = Sample(
            n=self.n, temperature=self.temperature, max_tokens=self.max_tokens, ahead=self.ahead
        )
        return sample >> Vote(stop=self.stop, equivalence=self.equivalence)
