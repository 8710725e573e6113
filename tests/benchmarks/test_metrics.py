"""Estimators against closed forms, enumeration and published values."""

import math
from collections import Counter
from itertools import combinations
from random import Random
from statistics import fmean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ttc.benchmarks.metrics import (
    best_of_k,
    bootstrap,
    coverage,
    detectable_difference,
    difference_of_grades,
    holm,
    maj_at_k,
    paired_bootstrap,
    pass_at_k,
    weighted_at_k,
    wilson,
)


@pytest.mark.parametrize(
    ("c", "n", "k", "value"),
    [(4, 10, 3, 5 / 6), (5, 5, 5, 1.0), (1, 20, 1, 0.05), (20, 20, 1, 1.0), (0, 10, 10, 0.0)],
)
def test_pass_at_k_is_the_closed_form(c: int, n: int, k: int, value: float) -> None:
    """BK-01 and BK-03: 1 - C(n - c, k) / C(n, k), a probability and not a flag."""
    assert pass_at_k(c, n, k) == pytest.approx(value)


@pytest.mark.parametrize(("c", "n", "k"), [(0, 3, 5), (1, 3, 5), (0, 0, 1), (1, 1, 10), (1, 5, 0)])
def test_pass_at_k_needs_k_samples(c: int, n: int, k: int) -> None:
    """BK-01, BK-04: with fewer it is undefined, and not 1."""
    with pytest.raises(ValueError, match=rf"pass@{k} needs at least {k} samples.*there are {n}"):
        pass_at_k(c, n, k)


@pytest.mark.parametrize("c", [6, -1])
def test_more_right_samples_than_samples_are_an_error(c: int) -> None:
    """BK-01, last case."""
    with pytest.raises(ValueError, match=f"between 0 and 5.*not at {c}"):
        pass_at_k(c, 5, 5)


def test_pass_at_k_agrees_with_enumeration() -> None:
    """Every subset of k of n samples, counted."""
    correct = [True, False, False, True, False, False, False]

    for k in range(1, 8):
        truth = fmean(any(subset) for subset in combinations(correct, k))
        assert pass_at_k(2, 7, k) == pytest.approx(truth)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilson_gives_the_published_intervals(
    successes: int, n: int, low: float, high: float
) -> None:
    """Newcombe 1998, Statistics in Medicine 17, table I, for 81 of 263; the others by hand."""
    interval = wilson(successes, n)

    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_what_is_no_proportion(successes: int, n: int) -> None:
    """No data is no interval."""
    with pytest.raises(ValueError, match=f"not {successes} of {n}"):
        wilson(successes, n)


def test_best_of_k_agrees_with_enumeration_and_splits_ties() -> None:
    """The best of each subset of k; equal scores share the win."""
    random = Random(1)
    scores = [round(random.random(), 1) for _ in range(8)]
    correct = [random.random() < 0.5 for _ in range(8)]

    for k in range(1, 9):
        truth = fmean(_best(subset, scores, correct) for subset in combinations(range(8), k))
        assert best_of_k(scores, correct, k) == pytest.approx(truth)


def test_best_of_k_does_not_depend_on_the_order_of_samples() -> None:
    """Ties are averaged and not broken."""
    assert best_of_k([0.5, 0.5], [True, False], 2) == best_of_k([0.5, 0.5], [False, True], 2) == 0.5


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_best_of_k_refuses_a_score_without_a_rank(score: float) -> None:
    """VO-07: no rule makes NaN the best or the worst."""
    with pytest.raises(ValueError, match="not finite has no rank"):
        best_of_k([0.1, score], [True, False], 1)


def test_best_of_k_needs_k_samples() -> None:
    """As pass@k does."""
    with pytest.raises(ValueError, match=r"best-of-3 needs at least 3 samples.*there are 2"):
        best_of_k([0.1, 0.2], [True, False], 3)


def test_a_chance_is_never_more_than_one() -> None:
    """All right, by any numbers of samples: intervals refuse a share above 1."""
    random = Random(5)
    for n in range(1, 60):
        scores = [random.random() for _ in range(n)]
        assert all(0.9999 < best_of_k(scores, [True] * n, k) <= 1.0 for k in range(1, n + 1))
        answers = [random.choice("abc") for _ in range(n)]
        assert all(0.9999 < maj_at_k(answers, [True] * n, k) <= 1 for k in range(1, n // 2 + 1))


def test_thousands_of_samples_are_within_reach() -> None:
    """2,200 samples, of which all but 200 are right: more subsets than a float can count."""
    answers = ["a"] * 2000 + ["b"] * 200
    correct = [answer == "a" for answer in answers]

    assert maj_at_k(answers, correct, 1024) == pytest.approx(1.0)
    assert best_of_k(list(range(2200, 0, -1)), correct, 1024) == pytest.approx(1.0)


def test_an_answer_that_a_grader_finds_right_in_one_spelling_alone_is_worth_its_share() -> None:
    """Equal answers of which one in two is right: whoever votes for them is right half the time."""
    answers, correct = ["a", "a", "a", "a"], [True, False, True, False]

    assert maj_at_k(answers, correct, 2) == 0.5
    assert maj_at_k(answers, correct[::-1], 2) == 0.5
    assert weighted_at_k(answers, [1.0] * 4, correct, 2, seed=0) == 0.5
    assert weighted_at_k(answers, [1.0] * 4, correct[::-1], 2, seed=0) == 0.5


def test_a_weighted_vote_does_not_depend_on_the_scale_of_its_weights() -> None:
    """Weights of which each is a millionth of a millionth of a millionth, or as much larger."""
    answers, weights = ["a", "b", "a", "b"], [3.0, 1.0, 3.0, 1.0]
    correct = [answer == "a" for answer in answers]

    values = {
        weighted_at_k(answers, [weight * scale for weight in weights], correct, 2, seed=0)
        for scale in (1e-18, 1.0, 1e18)
    }
    assert len(values) == 1


def test_maj_at_k_agrees_with_enumeration() -> None:
    """Two votes for the right answer, one for each of two others, two without an answer."""
    answers = ["a", "a", "b", "c", None, None]
    correct = [answer == "a" for answer in answers]

    for k in (1, 2, 3):
        truth = fmean(_majority([answers[i] for i in s]) for s in combinations(range(6), k))
        assert maj_at_k(answers, correct, k) == pytest.approx(truth)


def test_maj_at_one_is_the_mean_accuracy() -> None:
    """A vote of one is a sample."""
    answers = ["a", "b", "a", None]

    assert maj_at_k(answers, [answer == "a" for answer in answers], 1) == 0.5


def test_no_answer_never_wins_a_majority() -> None:
    """Field defect 4, VO-01."""
    answers = [None] * 6 + ["a"] * 2

    value = maj_at_k(answers, [answer == "a" for answer in answers], 4)
    assert value == pytest.approx(1 - math.comb(6, 4) / math.comb(8, 4))


@pytest.mark.parametrize(("n", "k"), [(3, 2), (15, 8), (0, 1), (4, 0)])
def test_maj_at_k_needs_twice_k_samples(n: int, k: int) -> None:
    """From fewer, the subsets are nearly the same one."""
    with pytest.raises(ValueError, match=f"maj@{k} needs k >= 1 and at least {2 * k} samples"):
        maj_at_k(["a"] * n, [True] * n, k)


def test_maj_at_k_is_exact_where_there_are_too_many_subsets_to_list() -> None:
    """30 samples, 18 right, k = 15: C(30, 15) subsets, by the hypergeometric law."""
    answers = ["a"] * 18 + ["b"] * 12
    exact = sum(math.comb(18, i) * math.comb(12, 15 - i) for i in range(8, 16)) / math.comb(30, 15)

    assert maj_at_k(answers, [a == "a" for a in answers], 15) == pytest.approx(exact)


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=2, max_size=9),
    st.integers(1, 4),
    st.sets(st.sampled_from("abcd")),
)
def test_maj_at_k_is_the_mean_over_all_subsets(
    answers: list[str | None], k: int, right: set[str]
) -> None:
    """Several keys may be right, ties share the win, and no answer never votes."""
    assume(2 * k <= len(answers))
    chosen = [[answers[i] for i in subset] for subset in combinations(range(len(answers)), k)]
    truth = fmean(_right_share(subset, right) for subset in chosen)

    assert maj_at_k(answers, [answer in right for answer in answers], k) == pytest.approx(truth)


def _right_share(votes: list[str | None], right: set[str]) -> float:
    counts = Counter(vote for vote in votes if vote is not None)
    leaders = [a for a, count in counts.items() if count == max(counts.values())]
    return sum(leader in right for leader in leaders) / len(leaders) if leaders else 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_helps_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    pairs = sorted(zip(ps, adjusted, strict=True))
    assert all(p <= q <= 1 for p, q in pairs)
    assert [q for _, q in pairs] == sorted(adjusted)
    assert min(adjusted) == pytest.approx(min(1, len(ps) * min(ps)))


def test_holm_gives_the_values_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_an_interval_of_few_problems_moves_with_each_run_of_them() -> None:
    """Four runs of each: 3.5 and 4.25 right ones of 15 are not the same."""
    fewer, more = [0.25, 0.25, 1.0, 1.0, 1.0], [0.25, 1.0, 1.0, 1.0, 1.0]
    low, high = (bootstrap(v + [0.0] * (15 - len(v)), seed=0) for v in (fewer, more))
    assert low.low < high.low
    assert low.high < high.high


def test_an_interval_of_few_problems_or_of_all_right_ones_is_wilsons() -> None:
    assert bootstrap([1.0, 0.0] * 10, seed=0) == wilson(10, 20)
    assert bootstrap([1.0] * 50, seed=0) == wilson(50, 50)
    assert bootstrap([0.75] * 40, seed=0) == wilson(30, 40)
    assert bootstrap([1.0, 0.0] * 50, seed=0) != wilson(50, 100)


def test_coverage_is_the_share_of_problems_with_a_right_sample() -> None:
    """However many are right."""
    assert coverage([[True, True], [False, True], [False, False], []]) == 0.5


def test_the_coverage_of_nothing_is_an_error() -> None:
    """It is not 0."""
    with pytest.raises(ValueError, match="at least one problem"):
        coverage([])


def test_the_bootstrap_compares_problem_by_problem() -> None:
    """A constant gain has no spread, however much the problems differ."""
    second = [0.0, 0.3, 0.9, 0.5]

    difference = paired_bootstrap([value + 0.1 for value in second], second, seed=5, resamples=500)

    assert difference[:3] == pytest.approx((0.1, 0.1, 0.1))
    assert difference.seed == 5


@pytest.mark.parametrize(
    ("gain", "n", "low", "high"),
    [
        (0.0, 40, -0.0876, 0.0876),
        (1.0, 40, 0.8248, 1.0),
        (-1.0, 40, -1.0, -0.8248),
        (1.0, 1, -0.587, 1),
    ],
)
def test_a_difference_that_all_problems_share_is_not_certain(
    gain: float, n: int, low: float, high: float
) -> None:
    """The next problem may differ: of n none did, which leaves z² / (n + z²) of them."""
    second = [float(gain < 0)] * n

    found = difference_of_grades([value + gain for value in second], second, seed=0)

    assert found[:3] == pytest.approx((gain, low, high), abs=1e-3)
    assert found.p >= 2.0 ** (1 - n)


def test_a_difference_with_a_spread_is_that_of_the_bootstrap() -> None:
    first, second = [1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0]

    assert difference_of_grades(first, second, seed=3) == paired_bootstrap(first, second, seed=3)


def test_the_bootstrap_is_a_function_of_its_seed() -> None:
    """And leaves the global generator alone."""
    first, second = [1.0, 0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0]

    again = [paired_bootstrap(first, second, seed=1, resamples=200) for _ in range(2)]

    assert again[0] == again[1]


@pytest.mark.statistical
def test_two_equal_methods_rarely_differ() -> None:
    """A/A: 200 comparisons of 60 problems; about 5 % of the intervals leave out 0.

    More than 14 % by luck has a chance below 1e-6 at a true rate of 5.5 %; the seed is fixed.
    """
    random = Random(11)
    outside = 0
    for trial in range(200):
        pairs = [(float(random.random() < 0.5), float(random.random() < 0.5)) for _ in range(60)]
        first, second = zip(*pairs, strict=True)
        difference = paired_bootstrap(first, second, seed=trial, resamples=200)
        outside += not difference.low <= 0 <= difference.high

    assert outside <= 28


@pytest.mark.parametrize("lengths", [(2, 3), (0, 1)])
def test_two_methods_are_compared_on_the_same_problems(lengths: tuple[int, int]) -> None:
    """Sequences of other lengths cannot be paired."""
    with pytest.raises(ValueError, match=f"not of {lengths[0]} and {lengths[1]}"):
        paired_bootstrap([0.0] * lengths[0], [0.0] * lengths[1], seed=0)


def _best(subset: tuple[int, ...], scores: list[float], correct: list[bool]) -> float:
    best = max(scores[i] for i in subset)
    return fmean(correct[i] for i in subset if scores[i] == best)


def _majority(votes: list[str | None]) -> float:
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return 0.0
    leaders = [answer for answer, count in counts.items() if count == max(counts.values())]
    return ("a" in leaders) / len(leaders)


def test_few_problems_show_large_differences_only() -> None:
    few, many = [1.0, 0.0] * 5, [1.0, 0.0] * 500
    none = [0.0] * 1000
    assert detectable_difference(few, none[:10]) == pytest.approx(0.467, abs=0.001)
    assert detectable_difference(many, none) == pytest.approx(0.0443, abs=0.001)
    assert detectable_difference(none[:50], none[:50]) == pytest.approx(0.056, abs=0.001)


def test_pass_at_k_is_over_the_samples_of_one_problem() -> None:
    """BK-04: ten problems of one sample each have a pass@1, and no pass@10."""
    solved = [1] * 5 + [0] * 5
    assert fmean(pass_at_k(right, 1, 1) for right in solved) == 0.5
    with pytest.raises(ValueError, match="pass@10 needs at least 10 samples"):
        pass_at_k(solved[0], 1, 10)


def test_pass_at_one_of_two_problems_is_the_mean_of_their_shares() -> None:
    """BK-03: one of twenty and twenty of twenty are 0.525, and not two solved problems."""
    assert fmean([pass_at_k(1, 20, 1), pass_at_k(20, 20, 1)]) == pytest.approx(0.525)
