"""Answering only where a guarantee allows it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

import ttc
from tests.verifiers.lab import generated
from ttc import GraphError, confidence
from ttc.strategies import Abstain, Cascade, Sample, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Score
from ttc.verifiers import Conformal, fit_conformal


def test_the_threshold_is_an_order_statistic_of_the_wrong() -> None:
    """Of nine, the ceil(10 x 0.8) = 8th smallest; the right ones count as minus infinity."""
    scores = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    wrong = {0.3, 0.6, 0.7}

    rule = fit_conformal(scores, [score not in wrong for score in scores], error=0.2)

    assert rule.threshold == 0.6
    assert rule == Conformal(threshold=0.6, error=0.2)


def test_where_few_are_wrong_everything_known_is_accepted() -> None:
    """One of twenty is wrong, and a tenth may be."""
    rule = fit_conformal([0.5] * 20, [False] + [True] * 19, error=0.1)

    assert rule.threshold == -math.inf
    assert rule(replace(generated(), confidence=0.0))
    assert not rule(generated())


def test_an_unknown_score_is_never_accepted_and_so_never_wrong() -> None:
    """In the fit as in use."""
    assert fit_conformal([None] * 9, [False] * 9, error=0.1).threshold == -math.inf


def test_too_few_problems_are_refused() -> None:
    """An error of 5 % takes nineteen."""
    with pytest.raises(ValueError, match=r"18 problems say nothing .* 0\.05; it takes at least 19"):
        fit_conformal([0.5] * 18, [True] * 18, error=0.05)
    assert fit_conformal([0.5] * 19, [False] * 19, error=0.05).threshold == 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("informative", [True, False])
def test_the_share_of_wrong_answers_is_the_promised_one(informative: bool) -> None:
    """Neither above nor, while enough are wrong, below, and whatever the score is worth.

    2,000 fits on 99 problems. A score s is uniform and right with the chance s, or with 1/2: the
    chance to be answered wrongly at a threshold t is then (1 - t)^2/2, or (1 - t)/2. Over fits it
    has the distribution Beta(10, 90), of mean 0.1 and deviation 0.03; the mean of 2,000 is off by
    0.0035, which is 5.2 deviations, once in 5 million times.
    """
    rng, risks = random.Random(17), []
    for _ in range(2000):
        scores = [rng.random() for _ in range(99)]
        right = [rng.random() < (score if informative else 0.5) for score in scores]
        threshold = fit_conformal(scores, right, error=0.1).threshold
        gap = 1 - threshold
        risks.append(gap * gap / 2 if informative else gap / 2)

    assert math.fsum(risks) / 2000 == pytest.approx(0.1, abs=0.0035)


@pytest.mark.statistical
def test_held_out_problems_keep_the_promise() -> None:
    """20,000 further problems after one large fit, against the binomial error.

    A fit on 4,999 has a risk of 0.05 with a deviation of 0.003, the count another of 0.0015; 6 of
    0.0034 together are exceeded once in 500 million times.
    """
    rng = random.Random(3)

    def draw(count: int) -> tuple[list[float], list[bool]]:
        scores = [rng.betavariate(3, 2) for _ in range(count)]
        return scores, [rng.random() < score for score in scores]

    rule = fit_conformal(*draw(4999), error=0.05)
    candidate = generated()
    wrong = sum(
        rule(replace(candidate, confidence=score)) and not right
        for score, right in zip(*draw(20000), strict=True)
    )

    assert wrong / 20000 == pytest.approx(0.05, abs=0.0205)


def test_it_decides_by_a_score_or_by_the_confidence() -> None:
    """Strictly above the threshold."""
    candidate = replace(
        generated(), confidence=0.6, scores={"judge": Score(value=0.4), "none": Score(value=None)}
    )

    assert Conformal(threshold=0.5, error=0.1)(candidate)
    assert not Conformal(threshold=0.6, error=0.1)(candidate)
    assert Conformal(threshold=0.3, error=0.1, by="judge")(candidate)
    assert not Conformal(threshold=-math.inf, error=0.1, by="none")(candidate)
    assert not Conformal(threshold=-math.inf, error=0.1, by="missing")(candidate)


def test_a_strategy_abstains_and_says_so() -> None:
    """With its candidates and without an answer."""
    engine = FakeEngine(["The answer is 1.", "The answer is 2."], in_order=True)
    strategy = Sample(n=4) >> Vote() >> Abstain(Conformal(threshold=0.5, error=0.1))

    outcome = ttc.solve("?", strategy, model=engine)

    assert (outcome.answer, outcome.stopped_by) == (None, "abstained")
    assert len(outcome.candidates) == 4
    assert ttc.solve("?", strategy, model=FakeEngine("The answer is 1.")).answer == "1"


def test_no_answer_is_not_an_abstention() -> None:
    """There was none to keep back."""
    strategy = Sample(n=2) >> Vote() >> Abstain(confidence(0.5))

    assert ttc.solve("?", strategy, model=FakeEngine("Hm.")).stopped_by == "no_valid_answer"


def test_a_cascade_climbs_until_the_guarantee_accepts() -> None:
    """As with any rule."""
    engine = FakeEngine(
        ["The answer is 1.", "The answer is 2.", *["The answer is 3."] * 3], in_order=True
    )
    rule = Conformal(threshold=0.9, error=0.1)
    strategy = Cascade(Sample(n=2) >> Vote(), Sample(n=3) >> Vote(), accept=rule)

    assert ttc.solve("?", strategy, model=engine).answer == "3"


def test_a_rule_by_a_score_that_does_not_exist_is_refused() -> None:
    """When the graph is built."""
    judge = ScriptedVerifier({}, name="judge")
    rule = Conformal(threshold=0.5, error=0.1, by="judge")

    with pytest.raises(GraphError, match="no score is called 'judge'; there is none"):
        (Sample() >> Vote() >> Abstain(rule)).validate()
    with pytest.raises(GraphError, match="unless=7 is no rule"):
        (Sample() >> Vote() >> Abstain(7)).validate()  # type: ignore[arg-type]
    (Sample() >> judge >> Vote() >> Abstain(rule)).validate()


@pytest.mark.parametrize("numbers", [(math.nan, 0.1), (0.5, 0.0), (0.5, 1.0)])
def test_numbers_that_are_no_rule_are_refused(numbers: tuple[float, float]) -> None:
    """With their values."""
    with pytest.raises(ValueError, match="is a number, and error"):
        Conformal(threshold=numbers[0], error=numbers[1])
    with pytest.raises(ValueError, match="NaN"):
        fit_conformal([math.nan] * 9, [False] * 9, error=0.1)
