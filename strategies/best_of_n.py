"""BestOfN: sample many solutions and take the one that a verifier scores highest.

Source: Cobbe et al. 2021, arXiv 2110.14168, section 4 (verification at test time).
Cost: n calls, the prompt once, n verifier calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from ttc.graph import Node
from ttc.ports import Verifier
from ttc.strategies.best import Best
from ttc.strategies.named import NamedGraph
from ttc.strategies.sample import Sample
from ttc.strategies.verify import Verify
from ttc.strategies.vote import Vote

__all__ = ["BestOfN"]


@dataclass(frozen=True, kw_only=True)
class BestOfN(NamedGraph):
    """`Sample(n) >> verifier >> Best()`; weighted, the scores of equal answers add up."""

    verifier: Verifier
    n: int = 16
    temperature: float = 0.8
    max_tokens: int = 512
    weighted: bool = False
    """Snell et al. 2024, arXiv 2408.03314: argmax over answers of the sum of their scores."""

    def __post_init__(self) -> None:
        Verify(self.verifier)  # says what is wrong with it, if anything is

    def expand(self) -> Node:
        """The graph that it stands for."""
        sample = Sample(n=self.n, temperature=self.temperature, max_tokens=self.max_tokens)
        return sample >> Verify(self.verifier) >> (Vote(weighted=True) if self.weighted else Best())
