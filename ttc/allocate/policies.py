"""Allocators: values that say what one more unit is worth to a problem. Pure, without state.

An allocator gives a problem's bid a worth. The unit goes to the highest worth above the price,
which is 0 but for `ShadowPrice`. Worth follows from the bid alone, so that only the problem that
changed is looked at again. A bid counts its units in flight: what they may find, one more does not.

Cost: a few microseconds for a bid.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from ttc.allocate.bids import Belief, Bid, Progress, Terms

__all__ = [
    "Allocator",
    "Bandit",
    "GreedyGain",
    "OptScale",
    "ShadowPrice",
    "Uniform",
    "UniformStop",
]

_FIRST_GAIN = 0.5
"""What a first unit is worth where nothing is believed: as the rule of succession has it."""


@dataclass(frozen=True, kw_only=True)
class Allocator(ABC):
    """How a budget is given away among problems."""

    is_online: ClassVar[bool] = False
    """Whether problems are met one after another, in their order; else the best come first."""

    window: int = 32
    """Units in flight: unit i is given away by the results of units 0 … i - window, and by no
    others. It is a part of the policy, never of the machine."""
    num_open: int = 256
    """Problems that are open at once; for another one, the least worthy is closed."""
    belief: Belief | None = None
    """What is believed of every problem beforehand."""
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    """What is believed of single problems, by id. Beside a `belief` they are trusted only as far as
    results bear them out; without one, they are taken at their word."""

    def __post_init__(self) -> None:
        for name in ("window", "num_open"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")

    @abstractmethod
    def worth(self, bid: Bid) -> float:
        """What one more unit is worth to a problem; 0 or less: it gets no more as it stands."""

    def allowance(self, terms: Terms) -> int | None:
        """The most tokens that one problem may have."""
        return terms.per_problem

    def price(self, progress: Progress) -> float:
        """What a unit must be worth from now on."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Uniform(Allocator):
    """Every problem may spend an equal share, and does, as far as its strategy asks for it."""

    def worth(self, bid: Bid) -> float:
        """Whoever has had least comes first."""
        return 1.0 / (1.0 + bid.spent + bid.reserved)

    def allowance(self, terms: Terms) -> int | None:
        """An equal share."""
        share = terms.tokens // max(1, terms.num_problems)
        return share if terms.per_problem is None else min(share, terms.per_problem)


@dataclass(frozen=True, kw_only=True)
class UniformStop(Uniform):
    """As `Uniform`, until the problem is decided; what it leaves goes to nobody."""

    def worth(self, bid: Bid) -> float:
        """Nothing once it is decided."""
        return 0.0 if bid.is_decided else super().worth(bid)


@dataclass(frozen=True, kw_only=True)
class GreedyGain(Allocator):
    """Each unit goes where it adds most for a token.

    Source: the greedy solution of a concave knapsack; Damani et al. 2024 (arXiv 2410.04707) for
    adaptive allocation by predicted marginal reward. With a chance p that is known, the b-th unit
    of an unsolved problem is worth p (1 - p)^(b-1); with a belief, it falls with every failure.
    Differs: units in flight count as given, by the chance that they solve it first.
    """

    def worth(self, bid: Bid) -> float:
        """Gain for a token, given the units in flight."""
        if bid.is_decided:
            return 0.0
        return gain(bid) / (bid.cost or 1.0)


@dataclass(frozen=True, kw_only=True)
class Bandit(Allocator):
    """A unit for every active problem in turn; the solved and the hopeless are eliminated.

    Source: Zuo and Zhu 2025 (arXiv 2506.12721), the elimination form.
    Differs: a problem is hopeless too, once its failures say with chance `1 - delta` that a unit
    solves it with a chance below `least`.
    """

    confidence: float = 0.95
    """How sure a selector must be for its problem to count as solved."""
    least: float = 0.05
    delta: float = 0.05

    def worth(self, bid: Bid) -> float:
        """Whoever had fewest units comes first."""
        if bid.is_decided or (bid.told > 1 and (bid.confidence or 0.0) >= self.confidence):
            return 0.0
        if bid.confidence is None and bid.told and self.delta ** (1.0 / bid.told) > 1 - self.least:
            return 0.0  # even the upper bound of its chance, 1 - delta^(1/n), is too low
        return 1.0 / (1.0 + bid.told + bid.in_flight)


@dataclass(frozen=True, kw_only=True)
class OptScale(Allocator):
    """As many units as the target needs with chance `alpha`, and no more where those are too many.

    Source: OptScale, 2025 (arXiv 2506.22376): `N* = ceil(ln(1 - alpha) / ln F(s*))`.
    Differs: `1 - F(s*)`, the chance that one more unit reaches the target, is the problem's own
    offer or belief, where theirs is fitted to the scores; and a problem whose `N*` exceeds `most`
    is left alone at once. Among the others, whoever had fewest units comes first.
    """

    alpha: float = 0.95
    most: int = 256

    def worth(self, bid: Bid) -> float:
        """Whether it needs more; whoever had fewest comes first."""
        if bid.is_decided:
            return 0.0
        chance = _next_gain(bid)
        if chance <= 0.0:
            return 0.0
        enough = 1.0 if chance >= 1 else math.log1p(-self.alpha) / math.log1p(-chance)
        needed = math.ceil(enough)
        if needed > self.most or bid.told + bid.in_flight >= needed:
            return 0.0
        return 1.0 / (1.0 + bid.told + bid.in_flight)


@dataclass(frozen=True, kw_only=True)
class ShadowPrice(GreedyGain):
    """Problems come one after another, and a unit is given where its gain exceeds a price.

    With a `belief` the price is the lowest at which a problem is expected to spend no more than its
    part of what is left; it is found anew whenever a problem comes. Without one it follows by dual
    descent, `ln price += rate (spent / target - 1)`.

    Source: CLEAR, 2026 (arXiv 2606.03092), for one price that clears the budget and for giving
    nothing to problems whose surplus is negative; its own curve of utility is not used.
    Differs: worth is gain by the cost of a unit in means of the run. Once all problems have come,
    what is left goes out in order of worth.
    """

    is_online: ClassVar[bool] = True

    tokens_per_problem: float | None = None
    """The target, where the length of the stream is unknown; else the budget over all problems."""
    rate: float = 0.1
    """How fast the price follows, without a belief."""
    first_price: float = 0.1
    """The price before anything is known, without a belief."""

    def price(self, progress: Progress) -> float:
        """The price for the problems that are there now."""
        if progress.arrived >= progress.num_problems:
            return 0.0
        target = self.tokens_per_problem
        if target is None:
            left = progress.num_problems - progress.closed
            target = (progress.tokens - progress.spent) / max(1, left)
        if self.belief is not None:
            units = target / progress.mean_cost if progress.mean_cost else 1.0
            return _clearing_price(self.belief, round(units, 1))
        step = progress.spent / max(1, progress.closed) / max(target, 1e-9) - 1.0
        return (progress.price or self.first_price) * math.exp(
            self.rate * max(-1.0, min(1.0, step))
        )


@lru_cache(maxsize=4096)
def _clearing_price(belief: Belief, units: float, most: int = 10_000) -> float:
    """The lowest price at which a problem is expected to take no more than so many units.

    After f failures, which come with chance s(f), a unit is bought if its chance exceeds the price.
    """
    expected, unsolved = 0.0, 1.0
    for failures in range(most):
        chance = belief.after(failures)
        expected += unsolved
        if expected > units:
            return chance
        unsolved *= 1.0 - chance
    return 0.0


def gain(bid: Bid) -> float:
    """What one more unit adds beside those in flight, by belief or by offer."""
    if bid.belief is not None:
        return bid.chance(bid.in_flight) or 0.0
    chance = _FIRST_GAIN if bid.gain is None else min(1.0, bid.gain)
    return chance * (1.0 - chance) ** bid.in_flight


def _next_gain(bid: Bid) -> float:
    """What the next unit adds if none were in flight."""
    believed = bid.chance(0)
    if believed is not None:
        return believed
    return _FIRST_GAIN if bid.gain is None else min(1.0, bid.gain)
