"""Rules that end a vote by what it has cost: a deadline, or a share of any budget.

The usage that they see is that of the candidates that have come, in launch order, so that a rule on
logical resources acts at the same sample in every run. Seconds are measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from ttc.strategies.stopping import LimitRule
from ttc.types import Budget, Usage

__all__ = ["Deadline", "Share"]

_LOGICAL = ("tokens", "calls", "verifier_calls")


@dataclass(frozen=True)
class Deadline(LimitRule):
    """Stops at the first candidate that comes later than this after the start of the problem."""

    remote: ClassVar[bool] = True

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds >= 0:
            raise ValueError(f"a deadline is at least 0 seconds away, not {self.seconds!r}")

    @property
    def is_physical(self) -> bool:
        """Seconds are measured."""
        return True

    def __call__(self, usage: Usage, budget: Budget) -> bool:
        """Whether it has passed."""
        return usage.seconds is not None and usage.seconds >= self.seconds


@dataclass(frozen=True)
class Share(LimitRule):
    """Stops once candidates have cost this share of the problem's budget. Without one, never."""

    remote: ClassVar[bool] = True

    resource: str = "tokens"
    at: float = 0.5

    def __post_init__(self) -> None:
        known = [f.name for f in fields(Budget)]
        if self.resource not in known:
            raise ValueError(f"{self.resource!r} is none of {', '.join(known)}")
        if not 0 < self.at <= 1:
            raise ValueError(f"a share lies in (0, 1], not at {self.at!r}")

    @property
    def name(self) -> str:
        """What it is called."""
        return f"share of {self.resource}"

    @property
    def is_physical(self) -> bool:
        """Whether the resource is measured."""
        return self.resource not in _LOGICAL

    def __call__(self, usage: Usage, budget: Budget) -> bool:
        """Whether that much is spent."""
        limit, spent = getattr(budget, self.resource), getattr(usage, self.resource)
        return limit is not None and spent is not None and spent >= self.at * limit
