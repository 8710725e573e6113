"""Rules: values that say when enough has been spent. Three kinds, by what they look at.

A `StopRule` looks at a tally and ends a vote. A `BranchRule` looks at one trace and ends that trace
(`ttc.strategies.stopping_branches`). A `LimitRule` looks at what was spent and ends a vote
(`ttc.strategies.stopping_limits`). `a | b` stops when either does, `a & b` when both do; rules of
two kinds do not combine. The statistical ones are in `ttc.strategies.stopping_votes`.

Source: Wang et al. 2022 (arXiv 2203.11171) for the vote that they cut short.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ttc.errors import GraphError
from ttc.strategies.tally import Tally
from ttc.types import Budget, Usage

__all__ = ["CannotBeOvertaken", "Exhausted", "LimitRule", "Rule", "StopRule", "combined"]

R = TypeVar("R", bound="Rule")


class Rule(ABC):
    """What the three kinds share: a name, and how they combine."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """What an outcome is then said to be stopped by."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def ahead(self) -> tuple[int, ...]:
        """How many samples to draw between two looks; the last number repeats. Empty: any."""
        return ()


def combined(first: Rule, second: object, pair: Callable[[Any, Any], R]) -> R:
    """Two rules of one kind as one.

    Raises:
        GraphError: they are of two kinds.
    """
    if not isinstance(second, Rule):
        return NotImplemented  # type: ignore[no-any-return]
    if second.kind != first.kind:
        raise GraphError(
            [
                f"{first!r} looks at {first.kind} and {second!r} at {second.kind}, so they do not "
                "combine; give each to the parameter of its kind"
            ]
        )
    return pair(first, second)


class StopRule(Rule):
    """Says of a tally whether the vote is decided."""

    kind: ClassVar[str] = "a tally"

    @property
    def counts(self) -> bool:
        """Whether it counts votes, so that it cannot end a weighted vote."""
        return False

    @abstractmethod
    def __call__(self, tally: Tally) -> bool:
        """Whether to stop now."""

    def __or__(self, other: object) -> StopRule:
        return combined(self, other, Either)

    def __and__(self, other: object) -> StopRule:
        return combined(self, other, Both)


class LimitRule(Rule):
    """Says of what candidates have cost whether that is enough."""

    kind: ClassVar[str] = "a limit"

    @property
    def is_physical(self) -> bool:
        """Whether it looks at something measured, so that a second run may differ."""
        return False

    @abstractmethod
    def __call__(self, usage: Usage, budget: Budget) -> bool:
        """Whether to stop now.

        Args:
            usage: what the candidates that have come cost, and the seconds since the start.
            budget: the problem's limits.
        """

    def __or__(self, other: object) -> LimitRule:
        return combined(self, other, EitherLimit)

    def __and__(self, other: object) -> LimitRule:
        return combined(self, other, BothLimits)


@dataclass(frozen=True)
class Exhausted(StopRule):
    """Never stops early: the vote ends when the samples do."""

    remote: ClassVar[bool] = True

    def __call__(self, tally: Tally) -> bool:
        """Never."""
        return False


@dataclass(frozen=True)
class CannotBeOvertaken(StopRule):
    """Stops once no rival can overtake the leader: the same answer as the whole vote, for less.

    The lead must be larger than everything that the remaining samples can weigh. Where nothing
    bounds how many may come, or two answers could not be compared, it never stops.
    """

    remote: ClassVar[bool] = True

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
class _Pair:
    """Two rules of one kind."""

    first: Any
    second: Any

    @property
    def ahead(self) -> tuple[int, ...]:
        """The preference of the first one that has any."""
        ahead: tuple[int, ...] = self.first.ahead or self.second.ahead
        return ahead

    @property
    def counts(self) -> bool:
        """Whether one of them counts votes."""
        return bool(self.first.counts or self.second.counts)

    @property
    def is_physical(self) -> bool:
        """Whether one of them looks at something measured."""
        return bool(self.first.is_physical or self.second.is_physical)


class _Either(_Pair):
    sign: ClassVar[str] = "|"

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.first.name} | {self.second.name}"

    def __call__(self, *seen: Any) -> bool:
        """Whether one would stop."""
        return bool(self.first(*seen) or self.second(*seen))

    def __repr__(self) -> str:
        return f"({self.first!r} {self.sign} {self.second!r})"


class _Both(_Pair):
    sign: ClassVar[str] = "&"

    @property
    def name(self) -> str:
        """Both names."""
        return f"{self.first.name} & {self.second.name}"

    def __call__(self, *seen: Any) -> bool:
        """Whether both would stop."""
        return bool(self.first(*seen) and self.second(*seen))

    def __repr__(self) -> str:
        return f"({self.first!r} & {self.second!r})"


class Either(_Either, StopRule):
    """Stops when one of two rules does."""


class Both(_Both, StopRule):
    """Stops when both of two rules do."""


class EitherLimit(_Either, LimitRule):
    """Stops when one of two limits is reached."""


class BothLimits(_Both, LimitRule):
    """Stops when both of two limits are reached."""
