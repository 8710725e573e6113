"""Statistical rules that end a vote: what they promise, and what they do not.

Each looks at counts of answers in launch order, after every sample. Only `AnytimeValid` keeps its
promise however often it looks; the others are cheaper, and wrong more often than their threshold
says. All speak of the answer that the model gives most often, which need not be the right one.

Tails of the binomial distribution are summed exactly, and the one integral is a sum of 600 terms,
so nothing but `math` is needed.

Cost: microseconds for a look; with all rivals a few milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from ttc.strategies.stopping import StopRule
from ttc.strategies.tally import Tally

__all__ = [
    "AdaptiveConsistency",
    "AgreeingWindow",
    "AnytimeValid",
    "Confident",
    "Doubling",
    "leads",
    "leads_all",
    "log_evidence",
]


class _Counting(StopRule):
    """A rule on counts of votes."""

    @property
    def counts(self) -> bool:
        """It does."""
        return True

    @property
    def ahead(self) -> tuple[int, ...]:
        """One sample at a time."""
        return (1,)


@dataclass(frozen=True)
class AdaptiveConsistency(_Counting):
    """Stops once the leader is the most likely answer with this posterior probability.

    Source: Aggarwal et al. 2023 (arXiv 2305.11860). `beta` looks at the leader and the runner-up,
    `1 - I_0.5(v1+1, v2+1)`; `dirichlet` at all rivals.
    Differs: `dirichlet` is exact, by quadrature over independent Gammas, where theirs samples the
    five most frequent answers. A lone answer has one unseen rival.
    It looks again and again, so it is wrong more often than `1 - threshold`: on two equally likely
    answers it stops in 48 % of runs within 64 samples.
    """

    remote: ClassVar[bool] = True

    threshold: float = 0.95
    prior: Literal["beta", "dirichlet"] = "beta"

    def __post_init__(self) -> None:
        _check_chance("threshold", self.threshold)
        if self.prior not in ("beta", "dirichlet"):
            raise ValueError(f"prior is 'beta' or 'dirichlet', not {self.prior!r}")

    def __call__(self, tally: Tally) -> bool:
        """Whether the leader is sure enough."""
        counts = _counts(tally)
        if not counts:
            return False
        sure = leads_all(tuple(counts)) if self.prior == "dirichlet" else leads(*_two_most(tally))
        return sure >= self.threshold


@dataclass(frozen=True)
class AgreeingWindow(_Counting):
    """Stops once all answers of a window agree; windows follow each other without overlap.

    Source: Li et al. 2024 (arXiv 2401.10480), early-stopping self-consistency (ESC).
    """

    remote: ClassVar[bool] = True

    size: int = 5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a window holds at least 1 sample, not {self.size}")

    @property
    def ahead(self) -> tuple[int, ...]:
        """One window."""
        return (self.size,)

    def __call__(self, tally: Tally) -> bool:
        """Whether a window has just ended, and all of it agrees."""
        if tally.num_samples == 0 or tally.num_samples % self.size:
            return False
        latest = set(tally.sequence[-self.size :])
        return len(latest) == 1 and None not in latest


@dataclass(frozen=True)
class Doubling(_Counting):
    """Looks after 4, 8, 16 … samples and stops if the leader has a supermajority of them."""

    remote: ClassVar[bool] = True

    share: float = 0.75

    def __post_init__(self) -> None:
        _check_chance("share", self.share)

    @property
    def ahead(self) -> tuple[int, ...]:
        """What each look adds."""
        return (2, 2, 4, 8, 16, 32, 64)

    def __call__(self, tally: Tally) -> bool:
        """Whether this is a look, and the leader has enough of all samples."""
        samples = tally.num_samples
        if samples < 4 or samples & (samples - 1):
            return False
        return _two_most(tally)[0] >= self.share * samples


@dataclass(frozen=True)
class AnytimeValid(_Counting):
    """Stops on a wrong mode with a chance of at most `delta`, however often it looks.

    Source: an e-process for `the leader is at most as likely as its rival`, by Ville's inequality;
    own derivation. With the leader the j-th distinct answer in launch order, v1 its votes and v2
    the most of any rival: `E(v1 - 1, v2) >= j (j + 1) / delta`, where
    `E(a, b) = 2^(a+b+1) B(a+1, b+1) (1 - I_0.5(a+1, b+1))`.
    It is dear: on answers of 0.7 and 0.3 it needs 61 samples in the mean, of at most 128.
    """

    remote: ClassVar[bool] = True

    delta: float = 0.05
    is_known_pair: bool = False
    """Whether the two answers are known beforehand: then `E(v1, v2) >= 1 / delta`."""

    def __post_init__(self) -> None:
        _check_chance("delta", self.delta)

    def __call__(self, tally: Tally) -> bool:
        """Whether the evidence for the leader is strong enough."""
        counts = [count for _, count in tally.votes()]  # in order of first launch
        if not counts:
            return False
        leader = counts.index(max(counts))
        rival = max((c for place, c in enumerate(counts) if place != leader), default=0)
        if self.is_known_pair:
            return log_evidence(counts[leader], rival) >= -math.log(self.delta)
        place = leader + 1
        bar = math.log(place * (place + 1) / self.delta)
        return log_evidence(counts[leader] - 1, rival) >= bar


@dataclass(frozen=True)
class Confident(_Counting):
    """Stops once the leader's share of all samples is this high."""

    remote: ClassVar[bool] = True

    at_least: float = 0.95
    min_samples: int = 4

    def __post_init__(self) -> None:
        _check_chance("at_least", self.at_least)
        if self.min_samples < 2:
            raise ValueError(f"a share of {self.min_samples} samples says nothing; take 2 or more")

    def __call__(self, tally: Tally) -> bool:
        """Whether there are enough samples and the leader has enough of them."""
        samples = tally.num_samples
        return samples >= self.min_samples and _two_most(tally)[0] >= self.at_least * samples


@lru_cache(maxsize=65_536)
def leads(first: int, second: int) -> float:
    """The posterior chance that an answer is more likely than another: `1 - I_0.5(v1+1, v2+1)`.

    For whole numbers it is the chance that `v1 + v2 + 1` fair coins show at most v1 heads.
    """
    coins = first + second + 1
    at_most: int = sum(math.comb(coins, heads) for heads in range(first + 1))
    return at_most / (1 << coins)


@lru_cache(maxsize=16_384)
def leads_all(counts: tuple[int, ...], steps: int = 600) -> float:
    """The posterior chance that the first answer is the most likely one, by Simpson's rule."""
    known = counts if len(counts) > 1 else (*counts, 0)
    shape, *rivals = (count + 1 for count in known)
    spread = 12.0 * math.sqrt(shape)
    low, high = max(0.0, shape - spread), shape + spread + 20.0
    width, total = (high - low) / steps, 0.0
    for step in range(steps + 1):
        t = low + step * width
        weight = 1 if step in (0, steps) else 4 if step % 2 else 2
        below = _erlang(t, max(rivals))
        density = math.exp((shape - 1) * math.log(t) - t - math.lgamma(shape)) if t > 0 else 0.0
        total += weight * density * math.prod(below[rival] for rival in rivals)
    return min(1.0, total * width / 3)


def _erlang(t: float, most: int) -> list[float]:
    """For each shape up to `most` the chance that a Gamma of it is below t."""
    below, term, rest = [1.0], math.exp(-t), 1.0
    for shape in range(1, most + 1):
        rest -= term
        below.append(max(0.0, rest))
        term *= t / shape
    return below


@lru_cache(maxsize=65_536)
def log_evidence(a: int, b: int) -> float:
    """The logarithm of the e-value of a wins and b losses, with a uniform prior on (1/2, 1]."""
    log_beta = math.lgamma(a + 1) + math.lgamma(b + 1) - math.lgamma(a + b + 2)
    return (a + b + 1) * math.log(2.0) + log_beta + math.log(leads(a, b))


def _counts(tally: Tally) -> list[int]:
    """Votes by answer, the most first."""
    return sorted((count for _, count in tally.votes()), reverse=True)


def _two_most(tally: Tally) -> tuple[int, int]:
    counts = [*_counts(tally), 0, 0]
    return counts[0], counts[1]


def _check_chance(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} lies between 0 and 1, not at {value!r}")
