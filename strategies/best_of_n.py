"""BestOfN: sample many solutions and take the one that a verifier scores highest.

Source: Cobbe et al. 2021, arXiv 2110.14168, section 4 (verification at test time).
Cost: n calls, the prompt once, n verifier calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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

    remote: ClassVar[bool] = True

    verifier: Verifier
    n: int = 16
    temperature: float | tuple[float, ...] = 0.8
    """One, or a ladder of them; see `Sample`."""
    max_tokens: int = 512
    weighted: bool = False
    """Snell et al. 2024, arXiv 2408.03314: argmax over answers of the sum of their scores."""

    soft: float | None = None
    """Draw the winner by exp(score / soft), and do not take the highest; see `Best`."""

    def __post_init__(self) -> None:
        Verify(self.verifier)  # says what is wrong with it, if anything is
        if self.weighted and self.soft is not None:
            raise ValueError("a weighted vote is not drawn; leave weighted or soft out")

    def expand(self) -> Node:
        """The graph that it stands for."""
        sample = Sample(n=self.n, temperature=self.temperature, max_tokens=self.max_tokens)
        chosen = Vote(weighted=True) if self.weighted else Best(soft=self.soft)
        return sample >> Verify(self.verifier) >> chosen
