"""SStar: sample programs, mend each by the public tests, and choose by how they behave.

Source: S*, Li et al. 2025, arXiv 2502.14382: parallel samples, rounds of debugging, selection by
execution.
Differs: selection goes by the inputs of the public tests; none is generated to tell programs apart.
Cost: at most n x (1 + rounds) calls of at most `max_tokens`, and the sandbox for every version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Node
from ttc.strategies.behaviour_clusters import BehaviourClusters
from ttc.strategies.debug import Debug
from ttc.strategies.named import NamedGraph
from ttc.strategies.sample import Sample

__all__ = ["SStar"]


@dataclass(frozen=True, kw_only=True)
class SStar(NamedGraph):
    """`Sample(n) >> Debug(rounds) >> BehaviourClusters()`."""

    remote: ClassVar[bool] = True

    n: int = 8
    rounds: int = 2
    temperature: float | tuple[float, ...] = 0.8
    """One, or a ladder of them; see `Sample`."""
    max_tokens: int = 512
    seconds: float = 10.0
    """Wall time of a run."""

    def expand(self) -> Node:
        """The graph that it stands for."""
        sample = Sample(n=self.n, temperature=self.temperature, max_tokens=self.max_tokens)
        mended = Debug(rounds=self.rounds, max_tokens=self.max_tokens, seconds=self.seconds)
        return sample >> mended >> BehaviourClusters(seconds=self.seconds)
