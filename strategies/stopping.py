"""Rules that end a vote early. Each is a value; `|` stops when either does, `&` when both do.

Source: Wang et al. 2022 (arXiv 2203.11171) for the vote that they cut short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ttc.strategies.tally import Tally

__all__ = ["CannotBeOvertaken", "Exhausted", "StopRule"]


class StopRule(ABC):
    """Says of a tally whether the vote is decided."""

    @property
    def name(self) -> str:
        """What an outcome is then said to be stopped by."""
        return type(self).__name__

    @abstractmethod
    def __call__(self, tally: Tally) -> bool:
        """Whether to stop now."""

    def __or__(self, other: object) -> StopRule:
        return Either(self, other) if isinstance(other, StopRule) else NotImplemented

    def __and__(self, other: object) -> StopRule:
        return Both(self, other) if isinstance(other, StopRule) else NotImplemented


@dataclass(frozen=True)
class Exhausted(StopRule):
    """Never stops early: the vote ends when the samples do."""

    @property
    def name(self) -> str:
        """What it is called."""
        return "exhausted"

    def __call__(self, tally: Tally) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class CannotBeOvertaken(StopRule):
    """Stops once no rival can overtake the leader: the same answer as the whole vote, for less.

    The lead must be larger than everything that the remaining samples can weigh. Where nothing
    bounds how many may come, or two answers could not be compared, it never stops.
    """

    @property
    def name(self) -> str:
        """What it is called."""
        return "cannot_be_overtaken"

    def __call__(self, tally: Tally) -> bool:
        """Whether the lead exceeds all that may still come."""
        ranked, remaining = tally.ranking(), tally.num_remaining
        if not ranked or remaining is None:
            return False
        if not tally.is_settled and remaining > 0:
            return False  # two rivals may turn out to be one
        if tally.weighted and not tally.is_weighted and remaining > 0:
            return False  # the first score to come decides what a vote weighs
        runner_up = ranked[1][1] if len(ranked) > 1 else 0.0
        largest = tally.largest_weight if tally.is_weighted else 1.0
        return ranked[0][1] - runner_up > remaining * largest


@dataclass(frozen=True)
class Either(StopRule):
    """Stops when one of two rules does."""

    first: StopRule
    second: StopRule

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.first.name} | {self.second.name}"

    def __call__(self, tally: Tally) -> bool:
        """Whether one would stop."""
        return self.first(tally) or self.second(tally)


@dataclass(frozen=True)
class Both(StopRule):
    """Stops when both of two rules do."""

    first: StopRule
    second: StopRule

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.first.name} & {self.second.name}"

    def __call__(self, tally: Tally) -> bool:
        """Whether both would stop."""
        return self.first(tally) and self.second(tally)
