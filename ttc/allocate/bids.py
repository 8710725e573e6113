"""What an allocator sees: beliefs, bids, and how far the run has come. Values without behaviour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Belief", "Bid", "Progress", "Terms", "Unit"]


@dataclass(frozen=True)
class Belief:
    """What is believed beforehand of the chance that one unit solves a problem: a Beta law."""

    mean: float
    weight: float = 1.2
    """How many units it counts for; infinite where the chance is known."""

    def __post_init__(self) -> None:
        if not 0 <= self.mean <= 1 or not self.weight > 0:
            raise ValueError(f"a belief has a mean in [0, 1] and a positive weight, not {self}")

    def after(self, failures: int) -> float:
        """The chance that the next unit solves the problem, after so many that did not."""
        if math.isinf(self.weight):
            return self.mean
        return self.mean * self.weight / (self.weight + failures)

    def first_success(self, failures: int, in_flight: int) -> float:
        """The chance that one more unit is the first to solve it, beside units in flight.

        With a known chance p and k units in flight that is p (1 - p)^k.
        """
        if math.isinf(self.weight):
            return self.mean * (1.0 - self.mean) ** in_flight
        chance = self.after(failures + in_flight)
        if in_flight == 0 or chance == 0:
            return chance
        others, total = self.weight * (1.0 - self.mean) + failures, self.weight + failures
        if others <= 0:
            return 0.0
        return chance * math.exp(
            math.lgamma(others + in_flight)
            - math.lgamma(others)
            + math.lgamma(total)
            - math.lgamma(total + in_flight)
        )


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a run over many problems may spend."""

    tokens: int
    calls: int | None = None
    num_problems: int
    per_problem: int | None = None
    """The most tokens of one problem."""
    unit: int | None = None
    """The worst case of every unit, where it is known beforehand; else each problem says its own,
    once it is open."""


class Bid(NamedTuple):
    """What is known of one problem when the next unit is given away."""

    belief: Belief | None = None
    """What is believed of this problem; where nothing is, its offers alone speak."""
    doubt: Belief | None = None
    """What is believed of every problem, in case that beliefs about single ones are worthless."""
    trust: float = 1.0
    """The chance that they are not."""
    told: int = 0
    """Units whose results are known."""
    in_flight: int = 0
    """Units that were given and whose results are not known."""
    spent: int = 0
    """Tokens of the units whose results are known."""
    reserved: int = 0
    """Tokens of the units in flight, at their worst case."""
    gain: float | None = None
    """The latest offer: what one more unit adds to the chance that the choice is right."""
    cost: float | None = None
    """The mean cost of its units, in means of the whole run."""
    confidence: float | None = None

    @property
    def is_decided(self) -> bool:
        """Whether the problem's selector has said that nothing more would change its choice."""
        return self.gain is not None and self.gain <= 0.0

    def chance(self, in_flight: int) -> float | None:
        """The believed chance that one more unit solves it first, beside some in flight."""
        if self.belief is None:
            return None
        chance = self.belief.first_success(self.told, in_flight)
        if self.doubt is None:
            return chance
        other = self.doubt.first_success(self.told, in_flight)
        return self.trust * chance + (1.0 - self.trust) * other

    def trusting(self, trust: float, *, solved: bool) -> float:
        """The chance that beliefs about single problems are worth something, after one result."""
        if self.belief is None or self.doubt is None:
            return trust
        ours, theirs = self.belief.after(self.told), self.doubt.after(self.told)
        if not solved:
            ours, theirs = 1.0 - ours, 1.0 - theirs
        total = trust * ours + (1.0 - trust) * theirs
        return trust if total <= 0 else min(0.999, max(0.001, trust * ours / total))


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a run has come, as far as its results are known."""

    tokens: int
    """The run's limit."""
    num_problems: int
    spent: int = 0
    mean_cost: float | None = None
    """Tokens of a unit in the mean; `None` before the first."""
    arrived: int = 0
    """Problems that have been opened."""
    closed: int = 0
    """Problems that get nothing more."""
    price: float = 0.0
    """What a unit must be worth."""


class Unit(NamedTuple):
    """The right to one engine call."""

    number: int
    """Its place in the order in which units were given away."""
    problem: int
    tokens: int
    """The most that the call may cost."""
    is_shrunk: bool
    """Whether that is less than it asked for, since no more was left."""
    beside: int
    """Units of the same problem that were in flight when it was given."""
