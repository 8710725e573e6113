"""Metrics: estimators over problems and over the samples of one problem, with their intervals.

Nothing here is defined beyond its data: an estimator that would need more samples than there are is
an error, and never a friendly number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import groupby
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

__all__ = [
    "MIN_PROBLEMS",
    "Difference",
    "Interval",
    "best_of_k",
    "bootstrap",
    "coverage",
    "detectable_difference",
    "difference_of_grades",
    "holm",
    "maj_at_k",
    "paired_bootstrap",
    "pass_at_k",
    "weighted_at_k",
    "wilson",
]

MIN_PROBLEMS = 30
"""With fewer, a percentile interval is too narrow, and no verdict is given."""
_CHUNK = 500
_ROUNDING = 1e-12


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


class Difference(NamedTuple):
    """How much better one method is than another on the same problems, with a 95 % interval."""

    mean: float
    low: float
    high: float
    seed: int
    resamples: int
    p: float
    """Two-sided, of no difference: how seldom a resample turns the sign around."""


def wilson(successes: float, n: int) -> Interval:
    """The Wilson score interval of a proportion.

    Of problems that were run several times, `successes` may be a sum of shares.

    Source: Wilson 1927, Journal of the American Statistical Association 22, pages 209-212.
    """
    if not 0 <= successes <= n or n == 0:
        raise ValueError(
            f"a proportion needs 0 <= successes <= n and n >= 1, not {successes} of {n}"
        )
    z = NormalDist().inv_cdf(0.975)
    share, scale = successes / n, 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    spread = z / scale * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(max(0.0, centre - spread), min(1.0, centre + spread))


def pass_at_k(num_correct: int, num_samples: int, k: int) -> float:
    """The chance that at least one of k samples of a problem is right, without bias.

    `1 - C(n - c, k) / C(n, k)`, as a product. Average it over problems.

    Source: Chen et al. 2021, arXiv 2107.03374, equation 1.
    """
    n, c = num_samples, num_correct
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples, and at least 1; there are {n}")
    if not 0 <= c <= n:
        raise ValueError(f"num_correct lies between 0 and {n}, the number of samples, not at {c}")
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


def maj_at_k(answers: Sequence[Hashable | None], correct: Sequence[bool], k: int) -> float:
    """The chance that a majority of k samples of a problem is right, without bias.

    The mean over all subsets of k, counted and not drawn: for each right answer and each number of
    its votes, the ways in which no rival has more. Answers that tie share the win. A sample without
    an answer does not vote.

    Source: maj@k is the accuracy of self-consistency, Wang et al. 2022, arXiv 2203.11171; the count
    is that of the multivariate hypergeometric law.

    Args:
        answers: the key of each sample's answer, `None` where there is none.
        correct: whether each sample is right.
        k: how many vote: at most half of the samples, else the subsets are too much alike.
    """
    n = _check_lengths(answers, correct)
    if k < 1 or n < 2 * k:
        raise ValueError(f"maj@{k} needs k >= 1 and at least {2 * k} samples of a problem, not {n}")
    counts = Counter(answers)
    silent = counts.pop(None, 0)
    rows = {count: [math.comb(count, i) for i in range(k + 1)] for count in set(counts.values())}
    whole, parts = math.comb(n, k), []
    for answer, worth in _worths(answers, correct).items():
        others = [rows[count] for rival, count in counts.items() if rival != answer]
        for votes in range(1, min(k, counts[answer]) + 1) if worth else ():
            own = rows[counts[answer]][votes]
            leads = _ways_to_lead(others, silent, votes, k - votes)
            # whole numbers outgrow a float; the quotient of two does not
            parts += [worth * (own * ways / (whole * (1 + ties))) for ties, ways in leads.items()]
    return min(1.0, math.fsum(parts))


def _worths(answers: Sequence[Hashable | None], correct: Sequence[bool]) -> dict[Hashable, float]:
    """How right each answer is: the share of its samples, where graders tell equal ones apart."""
    grades: dict[Hashable, list[bool]] = {}
    for answer, is_right in zip(answers, correct, strict=True):
        if answer is not None:
            grades.setdefault(answer, []).append(is_right)
    return {answer: fmean(mine) for answer, mine in grades.items()}


def _ways_to_lead(
    others: Sequence[Sequence[int]], silent: int, votes: int, rest: int
) -> dict[int, int]:
    """The ways to draw `rest` samples with at most `votes` of each rival, by how many rivals tie.

    A rival with fewer samples than that can do no more harm than samples without an answer.

    Args:
        others: of each rival in how many ways 0, 1, 2 and more of its samples are drawn.
        silent: samples without an answer.
        votes: of the answer that leads.
        rest: how many samples are not its own.
    """
    rivals = [row for row in others if row[votes]]
    harmless = silent + sum(row[1] for row in others if not row[votes])
    ways: dict[tuple[int, int], int] = {(0, 0): 1}  # by samples drawn, and rivals that tie
    for row in rivals:
        grown: dict[tuple[int, int], int] = {}
        for (drawn, ties), known in ways.items():
            for more in range(min(votes, rest - drawn) + 1):
                place = drawn + more, ties + (more == votes)
                grown[place] = grown.get(place, 0) + known * row[more]
        ways = grown
    found: dict[int, int] = {}
    for (drawn, ties), known in ways.items():
        found[ties] = found.get(ties, 0) + known * math.comb(harmless, rest - drawn)
    return found


def best_of_k(scores: Sequence[float], correct: Sequence[bool], k: int) -> float:
    """The chance that the best-scored of k samples of a problem is right.

    With the n samples sorted by score, the one at rank j is the best of k with probability
    `C(j - 1, k - 1) / C(n, k)`; samples of equal score share what their ranks are worth. That is
    how much less often all k lie below rank j than below rank j + 1, `C(j, k) / C(n, k)`.

    Source: the order statistics of a subset that is drawn without replacement.
    """
    n = _check_lengths(scores, correct)
    if not 1 <= k <= n:
        raise ValueError(f"best-of-{k} needs at least {k} samples, and at least 1; there are {n}")
    if not all(map(math.isfinite, scores)):
        raise ValueError("a score that is not finite has no rank; leave such samples out")
    ranked = sorted(zip(scores, correct, strict=True), reverse=True)
    parts, above, beaten = [], 0, 1.0  # beaten: how often all k lie below what was seen
    for _, block in groupby(ranked, key=lambda pair: pair[0]):
        grades = [is_right for _, is_right in block]
        before = beaten
        for place in range(above, above + len(grades)):
            beaten *= (n - k - place) / (n - place)  # 0 from place n - k on
        parts.append(fmean(grades) * (before - beaten))
        above += len(grades)
    return min(1.0, math.fsum(parts))


def weighted_at_k(
    answers: Sequence[Hashable | None],
    weights: Sequence[float | None],
    correct: Sequence[bool],
    k: int,
    *,
    seed: int,
    draws: int = 1_000,
) -> float:
    """The chance that a weighted vote of k samples of a problem is right, without bias.

    The mean over subsets of k that are drawn without replacement, since there is no closed form.
    Answers that tie share the win. An unknown weight is 0; where all of a subset are, votes count.

    Source: the vote by summed scores of Snell et al. 2024, arXiv 2408.03314, section 5.1.

    Args:
        answers: the key of each sample's answer, `None` where there is none.
        weights: of the samples, at least 0; `None` is unknown.
        correct: whether each sample is right.
        k: how many vote: at most half of the samples.
        seed: of the draws.
        draws: how many subsets. Their spread adds `0.5 / sqrt(draws)` to a problem at most.
    """
    import numpy

    n = _check_lengths(answers, correct)
    _check_lengths(answers, weights)
    if k < 1 or n < 2 * k:
        raise ValueError(
            f"a vote of {k} needs k >= 1 and at least {2 * k} samples of a problem, not {n}"
        )
    known = numpy.array([0.0 if weight is None else weight for weight in weights])
    if not (numpy.isfinite(known).all() and (known >= 0).all()):
        raise ValueError("a weight is a finite number of at least 0, or unknown")
    found = [answer for answer in dict.fromkeys(answers) if answer is not None]
    if not found:
        return 0.0
    member = numpy.array([[answer == one for one in found] for answer in answers], dtype=float)
    worths = _worths(answers, correct)
    right = numpy.array([float(worths[one]) for one in found])
    chosen = numpy.random.default_rng(seed).random((draws, n)).argsort(axis=1)[:, :k]
    tallies = (known[chosen][:, :, None] * member[chosen]).sum(axis=1)
    votes = member[chosen].sum(axis=1)
    tallies = numpy.where(tallies.any(axis=1, keepdims=True), tallies, votes)
    leading = (tallies >= tallies.max(axis=1, keepdims=True) * (1 - _ROUNDING)) & (votes > 0)
    shares = (leading * right).sum(axis=1) / numpy.maximum(leading.sum(axis=1), 1)
    return float(shares.mean())


def coverage(correct: Sequence[Sequence[bool]]) -> float:
    """The share of problems with at least one right sample among those drawn.

    Source: Brown et al. 2024, arXiv 2407.21787.
    """
    if not correct:
        raise ValueError("coverage needs at least one problem")
    return fmean(any(samples) for samples in correct)


def paired_bootstrap(
    first: Sequence[float], second: Sequence[float], *, seed: int, resamples: int = 10_000
) -> Difference:
    """How much `first` exceeds `second`, from their values on the same problems.

    Problems are resampled, with their samples and seeds averaged before; the interval is that of
    the percentiles. Below 30 problems it is too narrow to lean on.

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapters 13 and 16.
    """
    n = _check_lengths(first, second)
    if n == 0:
        raise ValueError("a comparison needs at least one problem")
    gains = [a - b for a, b in zip(first, second, strict=True)]
    means = _resampled(gains, seed, resamples)
    low, high = _percentiles(means)
    worse, better = sum(m <= _ROUNDING for m in means), sum(m >= -_ROUNDING for m in means)
    p = min(1.0, 2 * (1 + min(worse, better)) / (resamples + 1))
    return Difference(fmean(gains), low, high, seed, resamples, p)


def difference_of_grades(
    first: Sequence[float], second: Sequence[float], *, seed: int
) -> Difference:
    """How much one method is better than another, from their grades in [0, 1] on the same problems.

    That of a paired bootstrap. Where it is the same on all problems, resamples know no other: then
    as large a share of problems may differ to either end as Wilson's interval leaves to what was
    seen on none, and p is no less than that of as many equal signs.
    """
    found = paired_bootstrap(first, second, seed=seed)
    if not _are_alike([a - b for a, b in zip(first, second, strict=True)]):
        return found
    unseen = wilson(0, len(first)).high
    low, high = ((1 - unseen) * found.mean + way * unseen for way in (-1, 1))
    return found._replace(low=low, high=high, p=max(found.p, 2.0 ** (1 - len(first))))


def bootstrap(values: Sequence[float], *, seed: int, resamples: int = 10_000) -> Interval:
    """The percentile interval of a mean over problems.

    Below 30 problems, and where all are alike, as all right or all wrong, it would be too narrow:
    then it is Wilson's.

    Source: Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13.
    """
    n = len(values)
    if n < MIN_PROBLEMS or _are_alike(values):
        return wilson(sum(values), n)
    return Interval(*_percentiles(_resampled(values, seed, resamples)))


def holm(ps: Sequence[float]) -> list[float]:
    """P values, adjusted for how many there are, so that one error in all of them stays unlikely.

    Source: Holm 1979, Scandinavian Journal of Statistics 6, pages 65-70.
    """
    order = sorted(range(len(ps)), key=lambda place: ps[place])
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        adjusted[place] = largest
    return adjusted


def _resampled(values: Sequence[float], seed: int, resamples: int) -> list[float]:
    """Sorted means of resamples."""
    import numpy  # only where something is compared

    data, generator = numpy.asarray(values, dtype=float), numpy.random.default_rng(seed)
    means: list[float] = []
    for begin in range(0, resamples, _CHUNK):
        rows = min(_CHUNK, resamples - begin)
        means += data[generator.integers(len(data), size=(rows, len(data)))].mean(axis=1).tolist()
    return sorted(means)


def _are_alike(values: Sequence[float]) -> bool:
    """Whether no resample can tell how far a mean may be off."""
    return max(values) - min(values) <= _ROUNDING


def _percentiles(means: Sequence[float]) -> tuple[float, float]:
    count = len(means)
    return means[int(0.025 * count)], means[math.ceil(0.975 * count) - 1]


def detectable_difference(first: Sequence[float], second: Sequence[float]) -> float:
    """The smallest mean difference that a comparison of so many problems would show.

    Of a two-sided test at 5 % with a power of 80 %: `(z_0.975 + z_0.8) * s / sqrt(n)`, s the
    deviation of the differences of the problems. Where all are equal, as if one of them were not.

    Source: the usual sample size of a paired comparison, solved for the difference.
    """
    n = _check_lengths(first, second)
    if n < 2:
        raise ValueError(f"a spread needs at least two problems, not {n}")
    deviation = stdev(a - b for a, b in zip(first, second, strict=True))
    quantiles = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    return quantiles * max(deviation, math.sqrt(1 / n)) / math.sqrt(n)


def _check_lengths(first: Sequence[object], second: Sequence[object]) -> int:
    if len(first) != len(second):
        raise ValueError(
            f"two sequences of one length are needed, not of {len(first)} and {len(second)}"
        )
    return len(first)
