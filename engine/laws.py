"""Laws of simulated problems: how often they are solved, by what answers, and at what length.

They know no engine; `ttc.engine.simulator` draws from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ttc.types import Problem

__all__ = ["Lengths", "SimulatedProblem"]


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """A log-normal law of output tokens."""

    median: float = 128.0
    sigma: float = 0.35
    """The deviation of the logarithm; 0 gives one length."""
    right: float = 1.0
    """What a right answer's length is multiplied by."""

    def __post_init__(self) -> None:
        if not (self.median > 0 and self.sigma >= 0 and self.right > 0):
            raise ValueError(f"a length law has median > 0, sigma >= 0 and right > 0, not {self}")

    def draw(self, normal: float, *, is_right: bool) -> int:
        """The length at a standard normal draw; at least 5, which an answer takes."""
        factor = self.right if is_right else 1.0
        return max(5, round(self.median * factor * math.exp(self.sigma * normal)))


@dataclass(frozen=True, kw_only=True)
class SimulatedProblem:
    """The law of one problem. Its right answer is `1`, its wrong ones are `2`, `3` and so on."""

    id: str
    success: float
    """The chance of the right answer."""
    wrong: tuple[float, ...] = (1.0,)
    """How wrong answers share what is neither right nor silent; any positive numbers."""
    silent: float = 0.0
    """The chance of no answer at all."""
    lengths: Lengths = Lengths()
    prompt_tokens: int = 32
    confidence: tuple[float, float] = (8.0, 10.0)
    """The mean token confidence of a wrong trace and of a right one; its deviation is 1."""

    def __post_init__(self) -> None:
        chances = (self.success, self.silent, 1.0 - self.success - self.silent)
        if not all(-1e-12 <= chance <= 1.0 for chance in chances):
            raise ValueError(
                f"{self.id}: success={self.success} and silent={self.silent} are chances whose sum "
                "is at most 1"
            )
        if not self.wrong or not all(mass > 0 for mass in self.wrong):
            raise ValueError(f"{self.id}: wrong={self.wrong!r} holds at least one positive mass")

    @property
    def problem(self) -> Problem:
        """What is put to a strategy."""
        return Problem(id=self.id, prompt=self.id, answer_format="marked")

    def answer(self, uniform: float) -> str | None:
        """The answer at a uniform draw."""
        if uniform < self.success:
            return "1"
        rest = uniform - self.success - self.silent
        if rest < 0:
            return None
        share = (1.0 - self.success - self.silent) / sum(self.wrong)
        for index, mass in enumerate(self.wrong):
            rest -= mass * share
            if rest < 0:
                return str(index + 2)
        return str(len(self.wrong) + 1)
