"""Verifiers that are sometimes wrong."""

from __future__ import annotations

import itertools
import math

import pytest

import ttc
from tests.verifiers.lab import generated, scored, values
from ttc import GraphError
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Candidate
from ttc.verifiers import (
    Bayes,
    BayesVote,
    MeanLogprob,
    Rates,
    accepted_precision,
    best_num_samples,
    rates_from_agreement,
    rates_from_labels,
)

TESTS = ScriptedVerifier({"a": 1.0, "b": 0.0, "c": None}, name="tests")
JUDGE = ScriptedVerifier({"a": 0.3, "b": 0.9, "c": 0.9}, name="judge")
RATES = (Rates(0.9, 0.1), Rates(0.8, 0.4))


def answers(*letters: str) -> list[Candidate]:
    return [generated(letter) for letter in letters]


def test_verdicts_multiply_the_odds() -> None:
    """Passed by one (9), failed by the other (0.2/0.6): even odds become 3 to 1."""
    one, other, half_known = values(Bayes(TESTS, JUDGE, rates=RATES), answers("a", "b", "c"))

    assert one == pytest.approx(0.75)
    assert other == pytest.approx(2 / 11)  # 1/9 times 2, as odds 2 to 9
    assert half_known == pytest.approx(2 / 3)  # the judge's 2 alone


def test_a_prior_counts_as_evidence_before() -> None:
    """One in four: odds of 1/3, times 9 times 1/3."""
    assert values(Bayes(TESTS, JUDGE, rates=RATES, prior=0.25), answers("a")) == pytest.approx(
        [0.5]
    )


def test_without_any_verdict_the_chance_is_unknown() -> None:
    """A prior is no score."""
    assert values(Bayes(TESTS, rates=RATES[:1]), answers("c", "z")) == [None, None]


def test_what_passes_is_a_share_of_the_range() -> None:
    """At 0.5 of a range from -1 to 3 that is 1."""
    wide = ScriptedVerifier({"a": 0.9, "b": 1.0}, name="wide", range=(-1.0, 3.0))

    assert values(Bayes(wide, rates=RATES[:1]), answers("a", "b")) == pytest.approx([0.1, 0.9])


def test_a_bayesian_score_is_a_confidence() -> None:
    """It is a probability."""
    verifier = Bayes(ScriptedVerifier({"1": 1.0}), rates=[Rates(0.9, 0.1)])

    outcome = ttc.solve("?", Sample() >> verifier >> Best(), model=FakeEngine("The answer is 1."))

    assert outcome.confidence == pytest.approx(0.9)


def test_votes_and_verdicts_together() -> None:
    """Five times the odds for each vote, nine for a pass, a ninth for a fail.

    a: one vote and a pass, 5 x 9 = 45. b: two votes and two fails, (5/9)^2. Of the six answers that
    there are, four were never given and weigh 1 each.
    """
    a, b1, b2 = scored(BayesVote(TESTS, rates=RATES[:1]), answers("a", "b", "b"))
    total = 45 + 25 / 81 + 4

    assert a.value == pytest.approx(45 / total)
    assert b1.value == b2.value == pytest.approx(25 / 81 / total)
    assert a.is_probability


def test_votes_count_where_no_verdict_is_known() -> None:
    """25 against 5, and four answers unseen; without an answer there is no score."""
    silent = ScriptedVerifier({}, name="silent")
    two, _, one, none = values(
        BayesVote(silent, rates=RATES[:1]), [*answers("x", "x", "y"), generated(None)]
    )

    assert two == pytest.approx(25 / 34)
    assert one == pytest.approx(5 / 34)
    assert none is None


def test_a_thousand_votes_overflow_nothing() -> None:
    """5^1000 is beyond any float."""
    chances = values(BayesVote(TESTS, rates=RATES[:1]), answers(*"a" * 1000, "b"))

    assert chances[0] == pytest.approx(1.0)
    assert chances[-1] == pytest.approx(0.0)


def test_rates_from_labels() -> None:
    """Two of two right passed, one of two wrong; each as if seen half a time more."""
    rates = rates_from_labels([True, True, True, False, None], [True, True, False, False, True])

    assert rates == Rates(2.5 / 3, 1.5 / 3)


def table(prior: float, rates: list[Rates], scale: int) -> list[tuple[bool, ...]]:
    """Verdicts in their exact expected numbers."""
    rows: list[tuple[bool, ...]] = []
    for row in itertools.product([True, False], repeat=len(rates)):
        right = prior * math.prod(
            r.true_positive if v else 1 - r.true_positive for v, r in zip(row, rates, strict=True)
        )
        wrong = (1 - prior) * math.prod(
            r.false_positive if v else 1 - r.false_positive for v, r in zip(row, rates, strict=True)
        )
        rows += [row] * round(scale * (right + wrong))
    return rows


def test_rates_are_found_from_agreement_alone() -> None:
    """From the expected numbers of verdicts, without any label, whatever their order."""
    truth = [Rates(0.9, 0.1), Rates(0.8, 0.3), Rates(0.7, 0.2)]
    rows = table(0.4, truth, 10_000)
    found = rates_from_agreement(rows)

    for one, other in zip(found.rates, truth, strict=True):
        assert one.true_positive == pytest.approx(other.true_positive, abs=0.01)
        assert one.false_positive == pytest.approx(other.false_positive, abs=0.01)
    assert found.prior == pytest.approx(0.4, abs=0.01)
    assert rates_from_agreement(rows[::-1]).rates == pytest.approx(found.rates)


def test_agreement_gives_each_candidate_its_posterior() -> None:
    """That of the rates that were found; an unknown verdict moves nothing."""
    rows = table(0.5, [Rates(0.9, 0.1)] * 3, 1000)
    found = rates_from_agreement([*rows, (None, None, None)])

    assert found.posteriors[0] > 0.99  # passed by all
    assert found.posteriors[-2] < 0.01  # failed by all
    assert found.posteriors[-1] == pytest.approx(found.prior)


@pytest.mark.parametrize("verdicts", [[], [[True, False]], [[True] * 3, [True] * 4]])
def test_too_few_verifiers_say_nothing_of_each_other(verdicts: list[list[bool]]) -> None:
    """Two could be wrong together."""
    with pytest.raises(ValueError, match="at least three verdicts on each candidate"):
        rates_from_agreement(verdicts)


@pytest.mark.parametrize("rates", [(0.0, 0.1), (1.0, 0.1), (0.9, 0.0), (0.9, 1.0), (2, math.nan)])
def test_rates_are_never_certain(rates: tuple[float, float]) -> None:
    """An infinite weight would silence every other verifier."""
    with pytest.raises(ValueError, match="no verifier is beyond doubt"):
        Rates(*rates)


def test_what_has_no_bounds_or_no_rates_is_refused() -> None:
    """When it is made."""
    with pytest.raises(GraphError, match="mean_logprob have no bounds"):
        Bayes(MeanLogprob(), rates=RATES[:1])
    with pytest.raises(ValueError, match="one Rates for each of the 2 parts"):
        BayesVote(TESTS, JUDGE, rates=RATES[:1])
    with pytest.raises(ValueError, match="of 1 together"):
        BayesVote(TESTS, rates=RATES[:1], right=0.9, wrong=0.2)


def test_more_samples_do_not_make_accepted_ones_better() -> None:
    """P t/(p t + (1 - p) f): 0.2 x 0.9 of 0.18 + 0.08."""
    assert accepted_precision(0.2, Rates(0.9, 0.1)) == pytest.approx(0.18 / 0.26)


def value_of(num_samples: int, shares: list[float], rates: Rates, penalty: float) -> float:
    """The worth of N samples, by going through them one after the other."""
    total = 0.0
    for share in shares:
        reached = 1.0
        for _ in range(num_samples):
            right, wrong = share * rates.true_positive, (1 - share) * rates.false_positive
            total += reached * (right - penalty * wrong)
            reached *= 1 - right - wrong
    return total


def test_a_mix_of_problems_has_a_finite_best_number_of_samples() -> None:
    """A false-positive rate of a tenth: the optimum is where theory has it; beyond, value falls."""
    mix, rates = [0.7, 0.6, 0.02, 0.01], Rates(0.9, 0.1)
    best = best_num_samples(mix, rates, most=200)
    worth = [value_of(n, mix, rates, 1.0) for n in range(200)]

    assert best == worth.index(max(worth))
    assert 1 <= best <= 5
    assert worth[100] < worth[best] - 0.5


def test_one_kind_of_problem_has_none() -> None:
    """All samples that there are, or no answer at all."""
    rates = Rates(0.9, 0.1)

    assert best_num_samples([0.3], rates, most=10) == 10
    assert best_num_samples([0.02], rates, most=10) == 0
