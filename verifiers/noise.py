"""Noise: verifiers that are sometimes wrong, and what their verdicts are then worth.

A verifier passes a right candidate with its true-positive rate and a wrong one with its
false-positive rate. Both are estimated, from labels or from how verifiers agree, and then a verdict
is evidence: it moves the odds by the ratio of the two chances, and no further. A verdict that is
unknown moves nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from ttc.ports import Scope, Verifier
from ttc.types import Candidate, Problem, Score
from ttc.verifiers.combination import Combined, bounds_of

__all__ = [
    "Agreement",
    "Bayes",
    "BayesVote",
    "Rates",
    "accepted_precision",
    "best_num_samples",
    "rates_from_agreement",
    "rates_from_labels",
]

Verdict = bool | None
Pattern = tuple[Verdict, ...]
_ROUNDS = 1000


@dataclass(frozen=True)
class Rates:
    """How often a verifier passes what is right, and what is wrong."""

    remote: ClassVar[bool] = True

    true_positive: float
    false_positive: float

    def __post_init__(self) -> None:
        for name in ("true_positive", "false_positive"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(
                    f"{name} lies inside (0, 1), not {value}: no verifier is beyond doubt"
                )

    def log_ratio(self, verdict: Verdict) -> float:
        """What a verdict adds to the log odds that a candidate is right."""
        if verdict is None:
            return 0.0
        if verdict:
            return math.log(self.true_positive / self.false_positive)
        return math.log((1 - self.true_positive) / (1 - self.false_positive))


def rates_from_labels(verdicts: Sequence[Verdict], labels: Sequence[bool]) -> Rates:
    """A verifier's rates on candidates whose truth is known, each as if seen half a time more.

    Source: the prior of Jeffreys 1946, which keeps a rate out of 0 and 1.
    """
    pairs = [(v, ok) for v, ok in zip(verdicts, labels, strict=True) if v is not None]
    right = [verdict for verdict, ok in pairs if ok]
    wrong = [verdict for verdict, ok in pairs if not ok]
    return Rates((sum(right) + 0.5) / (len(right) + 1), (sum(wrong) + 0.5) / (len(wrong) + 1))


class Agreement(NamedTuple):
    """What verdicts alone tell of verifiers and candidates."""

    rates: tuple[Rates, ...]
    """One for each verifier."""
    prior: float
    """The share of candidates that are right."""
    posteriors: tuple[float, ...]
    """The chance of each candidate to be right."""


def rates_from_agreement(verdicts: Sequence[Sequence[Verdict]]) -> Agreement:
    """The rates of verifiers, out of how they agree with each other, without any label.

    It starts from the share of verifiers that pass a candidate, so that most of them are taken to
    be better than chance, and alternates between candidates and verifiers until nothing moves.

    Source: Dawid and Skene 1979, "Maximum likelihood estimation of observer error-rates using the
    EM algorithm", for two classes, with the prior of Jeffreys.

    Args:
        verdicts: (candidates, verifiers).

    Raises:
        ValueError: there are fewer than three verifiers, whose agreement says too little.
    """
    count = len(verdicts[0]) if verdicts else 0
    if count < 3 or any(len(row) != count for row in verdicts):
        raise ValueError(
            f"agreement needs at least three verdicts on each candidate, as many on each, and not "
            f"{count}; estimate the rates from labels"
        )
    patterns = Counter(map(tuple, verdicts))
    posteriors = {row: _share(row) for row in patterns}
    rates: tuple[Rates, ...] = ()
    prior = 0.5
    for _ in range(_ROUNDS):
        right = math.fsum(posteriors[row] * number for row, number in patterns.items())
        prior = (right + 0.5) / (len(verdicts) + 1)
        rates = tuple(_weighed_rates(k, patterns, posteriors) for k in range(count))
        before = posteriors
        posteriors = {row: _posterior(prior, rates, row) for row in patterns}
        if max(abs(before[row] - posteriors[row]) for row in patterns) < 1e-10:
            break
    return Agreement(rates, prior, tuple(posteriors[tuple(row)] for row in verdicts))


@dataclass(frozen=True, init=False)
class Bayes(Combined):
    """The chance that a candidate is right, by the verdicts of verifiers that err independently.

    A verifier passes a candidate with a score of at least `at_least`, as a share of its range. The
    chance is unknown where all verdicts are.

    Source: naive Bayes, as in Maron 1961, with the two-rate model of Stroebl et al. 2024,
    arXiv 2411.17501.
    Cost: what its parts cost.
    """

    remote: ClassVar[bool] = True

    rates: tuple[Rates, ...]
    prior: float
    at_least: float

    def __init__(
        self,
        *parts: Verifier,
        rates: Sequence[Rates],
        prior: float = 0.5,
        at_least: float = 0.5,
        name: str = "bayes",
    ) -> None:
        """Verifiers, with their rates in the same order."""
        self._set(parts, name=name, rates=tuple(rates), prior=prior, at_least=at_least)
        bounds_of(name, parts)
        _check_rates(self.rates, parts)
        if not 0 < prior < 1 or not 0 < at_least <= 1:
            raise ValueError(
                f"prior ({prior}) lies inside (0, 1), and at_least ({at_least}) in (0, 1]"
            )

    @property
    def range(self) -> tuple[float, float]:
        """Of a probability."""
        return 0.0, 1.0

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The posterior of each candidate."""
        return tuple(map(self._score, await self._asked(candidates, scope)))

    def _score(self, scores: Sequence[Score]) -> Score:
        verdicts = [_verdict(score, self.at_least) for score in scores]
        evidence = {score.verifier: score.value for score in scores}
        if all(verdict is None for verdict in verdicts):
            return Score(value=None, evidence=evidence)
        value = _posterior(self.prior, self.rates, verdicts)
        return Score(value=value, is_probability=True, evidence=evidence)


@dataclass(frozen=True, init=False)
class BayesVote(Combined):
    """The chance that a candidate's answer is the right one, by all votes and all verdicts.

    Each sample gives the right answer with the chance `right`, and one wrong answer with the chance
    `wrong`, so that there are 1 + (1 - right)/wrong answers, each as likely beforehand. A vote for
    an answer multiplies its odds by right/wrong, a verdict by its ratio; answers that nobody gave
    keep the weight 1. All candidates of an answer share its score.

    Source: the class form of naive Bayes; the two rates as in Stroebl et al. 2024,
    arXiv 2411.17501.
    Cost: what its parts cost.
    """

    remote: ClassVar[bool] = True

    rates: tuple[Rates, ...]
    right: float
    wrong: float
    at_least: float

    def __init__(
        self,
        *parts: Verifier,
        rates: Sequence[Rates],
        right: float = 0.5,
        wrong: float = 0.1,
        at_least: float = 0.5,
        name: str = "bayes_vote",
    ) -> None:
        """Verifiers with their rates, and the chances of a sample."""
        self._set(parts, name=name, rates=tuple(rates), right=right, wrong=wrong, at_least=at_least)
        bounds_of(name, parts)
        _check_rates(self.rates, parts)
        if not (0 < right < 1 and 0 < wrong <= 1 - right):
            raise ValueError(f"right ({right}) and wrong ({wrong}) are chances, of 1 together")
        if not 0 < at_least <= 1:
            raise ValueError(f"at_least lies in (0, 1], not {at_least}")

    @property
    def range(self) -> tuple[float, float]:
        """Of a probability."""
        return 0.0, 1.0

    @property
    def needs(self) -> Literal["each", "all"]:
        """Votes are counted over all."""
        return "all"

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The posterior of each candidate's answer; unknown without an answer."""
        weights: dict[Hashable, float] = {}
        for candidate, scores in zip(candidates, await self._asked(candidates, scope), strict=True):
            if candidate.key is not None:
                verdicts = [_verdict(score, self.at_least) for score in scores]
                gain = math.log(self.right / self.wrong) + _log_ratio(self.rates, verdicts)
                weights[candidate.key] = weights.get(candidate.key, 0.0) + gain
        unseen = max(0.0, 1 + (1 - self.right) / self.wrong - len(weights))
        chances = _shares(weights, unseen)
        return tuple(
            Score(value=None)
            if candidate.key is None
            else Score(value=chances[candidate.key], is_probability=True)
            for candidate in candidates
        )


def accepted_precision(share_right: float, rates: Rates) -> float:
    """How often what a verifier passes is right: `p t / (p t + (1 - p) f)`.

    More samples of one problem never raise it; they raise the chance that anything passes.

    Source: Stroebl et al. 2024, arXiv 2411.17501.
    """
    right = share_right * rates.true_positive
    return right / (right + (1 - share_right) * rates.false_positive)


def best_num_samples(
    shares_right: Sequence[float], rates: Rates, *, penalty: float = 1.0, most: int = 1024
) -> int:
    """The number of samples beyond which a verifier that errs costs more than it finds.

    A problem is answered by its first sample that passes, of at most N. A right answer is worth 1,
    a wrong one `-penalty`, none 0. With one share of right samples the value rises or falls with N
    for good; over a mix, easy problems are found early, and hard ones come to be answered wrongly.

    Source: Stroebl et al. 2024, arXiv 2411.17501, section 4.

    Args:
        shares_right: the chance that a sample is right, of each kind of problem.
        rates: the verifier's.
        penalty: what a wrong answer costs.
        most: the most samples that are considered.

    Returns:
        The best N, from 0: not to answer at all.
    """
    kinds = []
    for share in shares_right:
        passes = share * rates.true_positive + (1 - share) * rates.false_positive
        precision = accepted_precision(share, rates)
        kinds.append((1 - passes, precision - penalty * (1 - precision)))
    values = [math.fsum((1 - fails**n) * worth for fails, worth in kinds) for n in range(most + 1)]
    return values.index(max(values))


def _verdict(score: Score, at_least: float) -> Verdict:
    if score.value is None or score.range is None:
        return None
    low, high = score.range
    return score.value >= low + at_least * (high - low)


def _check_rates(rates: Sequence[Rates], parts: Sequence[Verifier]) -> None:
    if len(rates) != len(parts) or not all(isinstance(rate, Rates) for rate in rates):
        raise ValueError(f"rates are one Rates for each of the {len(parts)} parts, not {rates}")


def _log_ratio(rates: Sequence[Rates], verdicts: Sequence[Verdict]) -> float:
    return math.fsum(r.log_ratio(v) for r, v in zip(rates, verdicts, strict=True))


def _posterior(prior: float, rates: Sequence[Rates], verdicts: Sequence[Verdict]) -> float:
    odds = math.log(prior / (1 - prior)) + _log_ratio(rates, verdicts)
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def _share(verdicts: Sequence[Verdict]) -> float:
    """The share of known verdicts that pass; a half where none is known."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known else 0.5


def _weighed_rates(
    verifier: int, patterns: Mapping[Pattern, int], posteriors: Mapping[Pattern, float]
) -> Rates:
    """A verifier's rates, where candidates are right with some chance each."""
    known = [
        (row[verifier], number * posteriors[row], number * (1 - posteriors[row]))
        for row, number in patterns.items()
        if row[verifier] is not None
    ]
    right, wrong = math.fsum(r for _, r, _ in known), math.fsum(w for _, _, w in known)
    return Rates(
        (math.fsum(r for passes, r, _ in known if passes) + 0.5) / (right + 1),
        (math.fsum(w for passes, _, w in known if passes) + 0.5) / (wrong + 1),
    )


def _shares(weights: Mapping[Hashable, float], unseen: float) -> dict[Hashable, float]:
    """The shares of log weights, beside `unseen` more of weight 1."""
    peak = max([0.0, *weights.values()])
    total = unseen * math.exp(-peak) + math.fsum(math.exp(w - peak) for w in weights.values())
    return {key: min(1.0, math.exp(weight - peak) / total) for key, weight in weights.items()}
