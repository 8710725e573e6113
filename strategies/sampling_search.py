"""SamplingSearch: sample many solutions, verify each, and compare those that verify best.

Source: Zhao et al. 2025, arXiv 2502.01839, algorithm 1, sampling-based search.
Differs: any verifier will do; the paper's is a mean over sampled verdicts, as `Judge(samples=…)`.
Cost: n calls, what the verifier costs for n candidates, and the comparisons of `TieBreak`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Node
from ttc.ports import Verifier
from ttc.strategies.named import NamedGraph
from ttc.strategies.sample import Sample
from ttc.strategies.tie_break import TieBreak
from ttc.strategies.verify import Verify

__all__ = ["SamplingSearch"]


@dataclass(frozen=True, kw_only=True)
class SamplingSearch(NamedGraph):
    """`Sample(n) >> verifier >> TieBreak()`."""

    remote: ClassVar[bool] = True

    verifier: Verifier
    n: int = 16
    temperature: float | tuple[float, ...] = 0.8
    """One, or a ladder of them; see `Sample`."""
    max_tokens: int = 512
    margin: float = 0.05
    comparisons: int = 2
    role: str = "judge"
    """Who compares."""

    def __post_init__(self) -> None:
        Verify(self.verifier)  # says what is wrong with it, if anything is

    def expand(self) -> Node:
        """The graph that it stands for."""
        sample = Sample(n=self.n, temperature=self.temperature, max_tokens=self.max_tokens)
        chosen = TieBreak(
            by=self.verifier.name,
            margin=self.margin,
            comparisons=self.comparisons,
            role=self.role,
        )
        return sample >> Verify(self.verifier) >> chosen
