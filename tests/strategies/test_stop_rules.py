"""Statistical stop rules: the numbers of their sources, their limits, their names."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from tests.core.lab import solved
from tests.strategies.test_stopping import tally
from ttc import Budget, GraphError, Usage
from ttc.strategies import (
    AdaptiveConsistency,
    AgreeingWindow,
    AnytimeValid,
    CannotBeOvertaken,
    Confident,
    Deadline,
    Doubling,
    Sample,
    Share,
    StopRule,
    Tally,
    Vote,
)
from ttc.strategies.stopping_votes import leads, leads_all, log_evidence
from ttc.strategies.vote import gain
from ttc.testing import ScriptedVerifier
from ttc.text_form import parse

COUNTS = st.lists(st.integers(0, 40), min_size=2, max_size=5)


@pytest.mark.parametrize(
    ("first", "second", "chance"),
    [(4, 0, 0.96875), (3, 0, 0.9375), (7, 1, 0.980), (10, 3, 0.971), (5, 5, 0.5)],
)
def test_the_beta_criterion_has_the_published_values(
    first: int, second: int, chance: float
) -> None:
    """A lead of 4-0 passes 0.95, one of 3-0 does not."""
    assert leads(first, second) == pytest.approx(chance, abs=5e-4)


@pytest.mark.parametrize(
    ("answers", "decided"), [("111", False), ("1111", True), ("11121111", True), ("1212", False)]
)
@pytest.mark.parametrize("prior", ["beta", "dirichlet"])
def test_adaptive_consistency_stops_on_a_clear_lead(
    answers: str, decided: bool, prior: str
) -> None:
    """With two answers both priors say the same."""
    rule = AdaptiveConsistency(prior=prior)  # type: ignore[arg-type]
    assert rule(tally(answers, None)) is decided


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(0, 60))
def test_the_integral_is_the_binomial_tail_for_two_answers(first: int, second: int) -> None:
    """Quadrature against the exact sum."""
    if first > 0:
        assert leads_all((first, second)) == pytest.approx(leads(first, second), abs=1e-6)


@settings(max_examples=40)
@given(COUNTS)
def test_the_chances_of_all_answers_add_up(counts: Sequence[int]) -> None:
    """Exactly one of them is the most likely."""
    total = sum(leads_all((count, *counts[:i], *counts[i + 1 :])) for i, count in enumerate(counts))
    assert total == pytest.approx(1.0, abs=2e-3)


def test_more_rivals_are_harder_to_lead() -> None:
    """What `beta` overlooks."""
    assert leads_all((6, 2, 2, 2)) < leads_all((6, 2, 2)) < leads(6, 2)


@given(st.integers(0, 40), st.integers(0, 40))
def test_evidence_is_a_mean_likelihood_ratio(a: int, b: int) -> None:
    """Of a chance drawn from (1/2, 1] against a fair coin, by a midpoint sum."""
    steps = 4000
    ratios = (
        2.0 ** (a + b) * p**a * (1 - p) ** b
        for p in (0.5 + (i + 0.5) / (2 * steps) for i in range(steps))
    )
    assert math.exp(log_evidence(a, b)) == pytest.approx(sum(ratios) / steps, rel=1e-3)


@pytest.mark.parametrize(
    ("rule", "answers", "decided"),
    [
        (AgreeingWindow(size=3), "111", True),
        (AgreeingWindow(size=3), "112", False),
        (AgreeingWindow(size=3), "2111", False),
        (AgreeingWindow(size=3), "212111", True),
        (AgreeingWindow(size=3), "---", False),
        (AgreeingWindow(size=3), "", False),
        (Doubling(), "11", False),
        (Doubling(), "1112", True),
        (Doubling(), "11112", False),
        (Doubling(), "11-2", False),
        (Doubling(), "12111111", True),
        (Confident(), "1111", True),
        (Confident(), "111", False),
        (Confident(at_least=0.75), "1112", True),
        (AnytimeValid(), "1" * 8, False),
        (AnytimeValid(), "1" * 9, True),
        (AnytimeValid(is_known_pair=True), "1" * 7, True),
        (AnytimeValid(), "2" + "1" * 10, False),
        (AnytimeValid(), "", False),
    ],
)
def test_when_each_rule_stops(rule: StopRule, answers: str, decided: bool) -> None:
    """To the sample. Each letter is an answer, and a dash none."""
    assert rule(tally(answers, 99)) is decided


@pytest.mark.parametrize(
    "rule",
    [
        AdaptiveConsistency(),
        AdaptiveConsistency(prior="dirichlet"),
        AgreeingWindow(),
        AnytimeValid(),
        Confident(),
        Doubling(),
        CannotBeOvertaken(),
    ],
)
def test_every_rule_survives_small_votes(rule: StopRule) -> None:
    """Of nothing, of one and of two samples, with and without answers (field defect 8)."""
    for answers in ("", "1", "-", "12", "1-", "--", "11"):
        assert rule(tally(answers, 8)) is False
    assert eval(repr(rule)) == rule
    assert solved(Sample(n=1) >> Vote(stop=rule), "It is 1").outcome.answer == "1"
    assert solved(Sample(n=2) >> Vote(stop=rule), "It is 1").outcome.answer == "1"


def test_rules_say_how_far_ahead_they_want_to_run() -> None:
    """And the trace tells it where one acted."""
    ahead = {rule.name: rule.ahead for rule in (AgreeingWindow(), Doubling(), AnytimeValid())}
    assert ahead == {
        "agreeing_window": (5,),
        "doubling": (2, 2, 4, 8, 16, 32, 64),
        "anytime_valid": (1,),
    }
    assert (CannotBeOvertaken() | Doubling()).ahead == Doubling().ahead
    outcome = solved(Sample(n=9, ahead=1) >> Vote(stop=AgreeingWindow(size=3)), "It is 1").outcome
    assert outcome.trace[-1].detail == {
        "rule": "agreeing_window",
        "num_samples": 3,
        "ahead": (3,),
    }


def test_rules_have_a_text_form() -> None:
    """By their names, with their parameters, and combined."""
    text = "sample(n=9) >> vote(stop=doubling(share=0.8) | adaptive_consistency(prior='dirichlet'))"

    rule = Doubling(share=0.8) | AdaptiveConsistency(prior="dirichlet")
    assert parse(text) == Sample(n=9) >> Vote(stop=rule)
    assert parse("sample(n=4) >> vote(limit=share(at=0.25))") == Sample(n=4) >> Vote(
        limit=Share(at=0.25)
    )


def test_a_rule_that_counts_votes_cannot_end_a_weighted_vote() -> None:
    """Refused before anything runs."""
    graph = Sample(n=3) >> ScriptedVerifier({"1": 1.0}) >> Vote(weighted=True, stop=Doubling())
    with pytest.raises(GraphError, match="counts votes, so it cannot end a weighted vote"):
        graph.validate()


@pytest.mark.parametrize("wrong", [0, 1, -0.5, 1.5])
def test_chances_lie_between_0_and_1(wrong: float) -> None:
    """Both ends are refused, with the value."""
    for make in (
        lambda: AdaptiveConsistency(threshold=wrong),
        lambda: AnytimeValid(delta=wrong),
        lambda: Doubling(share=wrong),
        lambda: Confident(at_least=wrong),
    ):
        with pytest.raises(ValueError, match=f"not at {wrong!r}"):
            make()


def test_a_share_of_the_budget_ends_a_vote() -> None:
    """At the same sample at any speed: it sees what candidates cost, in launch order."""
    graph = Sample(n=20, max_tokens=8) >> Vote(limit=Share("tokens", 0.25))
    runs = [
        solved(graph, "The answer is 1.", budget=Budget(tokens=200), concurrency=slots).outcome
        for slots in (1, 4, None)
    ]

    assert {len(outcome.candidates) for outcome in runs} == {11}  # 8 + 11 x 4 tokens of 50
    assert {outcome.stopped_by for outcome in runs} == {"share of tokens"}
    assert not any(outcome.timing_dependent for outcome in runs)


def test_a_deadline_of_a_vote_is_told_to_depend_on_timing() -> None:
    """It ends the vote, and not the run's other work."""
    outcome = solved(
        Sample(n=9, ahead=1) >> Vote(limit=Deadline(seconds=1.0)), "The answer is 1.", pace=0.1
    ).outcome

    assert len(outcome.candidates) == 3
    assert outcome.stopped_by == "deadline"
    assert outcome.timing_dependent == ("a rule on what is measured acted: deadline",)


def test_limits_combine_and_know_no_limit_where_there_is_none() -> None:
    """An unknown amount never reaches a share."""
    usage = Usage(tokens=50, seconds=3.0)
    half = Share("tokens", 0.5)

    assert half(usage, Budget(tokens=100))
    assert not half(usage, Budget())
    assert (half & Deadline(seconds=2))(usage, Budget(tokens=100))
    assert not (half & Deadline(seconds=4))(usage, Budget(tokens=100))
    assert (half | Deadline(seconds=4)).is_physical
    with pytest.raises(ValueError, match="none of tokens"):
        Share("token")
    with pytest.raises(ValueError, match="lies in"):
        Share(at=0)


def test_a_budget_can_be_what_bounds_the_samples() -> None:
    """`n="budget"` samples until the limit refuses; without any limit it is refused."""
    graph = Sample(n="budget", max_tokens=4) >> Vote()
    outcome = solved(graph, "The answer is 1.", budget=Budget(tokens=8 + 4 * 4 + 1)).outcome

    assert outcome.usage.tokens == 8 + 4 * 4
    assert outcome.stopped_by == "tokens"
    assert parse('sample(n="budget", max_tokens=4) >> vote()') == graph
    with pytest.raises(ttc.NodeError, match="there is no limit"):
        solved(graph, "It is 1")


def test_what_a_sample_is_worth_falls_with_the_lead() -> None:
    """And is even odds before the first."""
    assert gain(Tally()) == 0.5
    worth = [gain(tally(answers, None)) for answers in ("1", "11", "111", "1111", "1112")]

    assert worth[0] > worth[1] > worth[2] > worth[3]
    assert worth[4] > worth[3]
