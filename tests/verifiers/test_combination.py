"""Verifiers made of others."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import ttc
from tests.verifiers.lab import generated, scored, values
from ttc import GraphError
from ttc.ports import Verifier
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Candidate, Score
from ttc.verifiers import (
    FirstDecided,
    Gate,
    MeanLogprob,
    Product,
    Rank,
    SelfCertainty,
    Surprisal,
    WeightedSum,
)


def by_answer(name: str, **scores: float | None) -> ScriptedVerifier:
    """A verifier that scores the answers `a`, `b` and so on."""
    return ScriptedVerifier(lambda candidate: scores.get(candidate.answer or ""), name=name)


def answers(*letters: str) -> list[Candidate]:
    return [generated(letter, text=letter) for letter in letters]


CHEAP = by_answer("cheap", a=1.0, b=0.0, c=0.4)
DEAR = by_answer("dear", a=0.1, b=0.2, c=0.8, d=0.6)
UNBOUNDED = ScriptedVerifier({"a": 7.0}, name="unbounded", range=None)


def test_the_cheap_verifier_decides_where_it_can() -> None:
    """The dear one is asked about the others alone: an undecided and an unknown one."""
    asked: list[tuple[str, int]] = []
    scores = scored(FirstDecided(CHEAP, DEAR), answers("a", "b", "c", "d"), asked)

    assert [score.value for score in scores] == [1.0, 0.0, 0.8, 0.6]
    assert asked == [("cheap", 4), ("dear", 2)]
    assert scores[0].evidence == {"cheap": 1.0}
    assert scores[2].evidence == {"dear": 0.8}


def test_nobody_is_asked_once_all_is_decided() -> None:
    """Not even about no candidates."""
    asked: list[tuple[str, int]] = []
    scored(FirstDecided(CHEAP, DEAR), answers("a", "b"), asked)

    assert asked == [("cheap", 2)]


def test_thresholds_say_what_is_decided() -> None:
    """0.4 is low enough for `low=0.4`."""
    assert values(FirstDecided(CHEAP, DEAR, low=0.4), answers("c")) == [0.4]


def test_the_latest_known_score_stands_where_nobody_decides() -> None:
    """And it is unknown where nobody knows."""
    silent = by_answer("silent", a=None)

    assert values(FirstDecided(CHEAP, silent), answers("c", "z")) == [0.4, None]


def test_who_needs_all_candidates_is_asked_about_all() -> None:
    """A rank among the undecided would be another rank."""
    asked: list[tuple[str, int]] = []
    scored(FirstDecided(CHEAP, Rank(MeanLogprob())), answers("a", "c"), asked)

    assert asked == [("cheap", 2), ("rank_mean_logprob", 2), ("mean_logprob", 2)]


def test_a_weighted_sum_is_a_weighted_mean() -> None:
    """(3 x 0.4 + 1 x 0.8) / 4 = 0.5; the parts are its evidence."""
    (score,) = scored(WeightedSum(CHEAP, DEAR, weights=(3, 1)), answers("c"))

    assert score.value == pytest.approx(0.5)
    assert score.evidence == {"cheap": 0.4, "dear": 0.8}
    assert score.range == (0.0, 1.0)


def test_equal_weights_are_the_default_and_bounds_are_weighed_too() -> None:
    """(0.4 + 3) / 2, between (0 - 5)/2 and (1 + 5)/2."""
    wide = ScriptedVerifier({"c": 3.0}, name="wide", range=(-5.0, 5.0))
    verifier = WeightedSum(CHEAP, wide)

    assert verifier.range == (-2.5, 3.0)
    assert values(verifier, answers("c")) == pytest.approx([1.7])


def test_a_product_multiplies() -> None:
    """0.4 x 0.8."""
    assert values(Product(CHEAP, DEAR), answers("c", "b")) == pytest.approx([0.32, 0.0])


@pytest.mark.parametrize("combined", [WeightedSum(CHEAP, DEAR), Product(CHEAP, DEAR)])
def test_an_unknown_part_makes_the_whole_unknown(combined: Verifier) -> None:
    """Field defect 18: nothing is filled in for it; the evidence tells which part it was."""
    (score,) = scored(combined, answers("d"))

    assert score.value is None
    assert score.evidence == {"cheap": None, "dear": 0.6}


def test_a_rank_is_the_share_that_is_no_better() -> None:
    """3, 1 and 2 of three; a power favours the first."""
    raw = ScriptedVerifier({"a": 9.0, "b": -3.0, "c": 0.5}, range=None)

    assert values(Rank(raw), answers("a", "b", "c")) == pytest.approx([1, 1 / 3, 2 / 3])
    assert values(Rank(raw, power=2), answers("a", "b", "c")) == pytest.approx([1, 1 / 9, 4 / 9])


def test_equal_scores_share_a_rank_and_unknown_ones_have_none() -> None:
    """Two firsts of three share (1 + 2/3) / 2; order changes nothing."""
    raw = ScriptedVerifier({"a": 2.0, "b": 2.0, "c": 1.0, "d": None}, range=None)

    assert values(Rank(raw), answers("a", "d", "b", "c")) == pytest.approx(
        [5 / 6, None, 5 / 6, 1 / 3]
    )


def test_the_borda_vote_of_self_certainty() -> None:
    """Kang et al.: one very certain candidate loses to two fairly certain ones that agree.

    Ranks of four: 7 has (4/4)^1, 5 has 3/4 + 2/4, 9 has 1/4.
    """
    sure = {"7": -0.1, "5": -0.4, "9": -2.0}
    engine = FakeEngine(
        ["The answer is 7.", "The answer is 5.", "The answer is 5.", "The answer is 9."],
        in_order=True,
    )
    candidate_score = ScriptedVerifier(lambda c: sure[c.answer or ""], range=None)
    strategy = Sample(n=4) >> Rank(candidate_score) >> Vote(weighted=True)

    assert ttc.solve("?", strategy, model=engine).answer == "5"


def test_a_gate_scores_what_has_passed() -> None:
    """Surprisal-guided selection: the least likely one of those that are right."""
    check = ScriptedVerifier({"a": 1.0, "b": 1.0, "c": 0.0}, name="check")
    candidates = [
        generated("a", logprobs=(-0.1,)),
        generated("b", logprobs=(-2.0,)),
        generated("c", logprobs=(-9.0,)),
        generated("d", logprobs=(-9.0,)),
    ]
    asked: list[tuple[str, int]] = []
    scores = scored(Gate(check, Surprisal()), candidates, asked)

    assert [score.value for score in scores] == [0.1, 2.0, None, None]
    assert asked == [("check", 4), ("surprisal", 2)]


def test_where_nothing_passes_there_is_no_finite_score() -> None:
    """And no answer, rather than one that failed its check."""
    check = ScriptedVerifier({}, name="check")
    strategy = Sample(n=2) >> Gate(check, Surprisal()) >> Best()

    outcome = ttc.solve("?", strategy, model=FakeEngine("The answer is 1."))

    assert (outcome.answer, outcome.stopped_by) == (None, "no_finite_score")


@pytest.mark.parametrize("make", [FirstDecided, WeightedSum, Product])
def test_what_needs_bounds_refuses_an_unbounded_part(make: Callable[..., Verifier]) -> None:
    """When it is made, naming every one, and how to give it bounds."""
    other = ScriptedVerifier({}, name="other", range=None)
    with pytest.raises(GraphError, match=r"unbounded have no bounds; wrap it in Cal") as caught:
        make(UNBOUNDED, CHEAP, other)
    assert "other have no bounds" in str(caught.value)
    with pytest.raises(GraphError, match="unbounded have no bounds"):
        Gate(UNBOUNDED, CHEAP)

    assert make(Rank(UNBOUNDED), CHEAP).range == (0.0, 1.0)
    assert Gate(UNBOUNDED, CHEAP, at_least=3.0).range == (0.0, 1.0)


def test_a_product_refuses_scores_below_zero() -> None:
    """Two bad ones would make a good one."""
    below = ScriptedVerifier({}, name="below", range=(-1.0, 1.0))
    with pytest.raises(GraphError, match=r"below may score below 0, to -1\.0"):
        Product(below, CHEAP)


@pytest.mark.parametrize(
    "weights", [(1,), (1, 1, 1), (-1, 2), (0, 0), (math.inf, 1), (math.nan, 1)]
)
def test_weights_that_make_no_sense_are_refused(weights: tuple[float, ...]) -> None:
    """One for each part, none below 0, one above."""
    with pytest.raises(ValueError, match="weights are one for each of the 2 parts"):
        WeightedSum(CHEAP, DEAR, weights=weights)


def test_parts_are_verifiers_with_names_of_their_own() -> None:
    """All faults at once."""
    with pytest.raises(GraphError, match=r"two parts are called 'cheap'") as caught:
        WeightedSum(CHEAP, CHEAP, 7)  # type: ignore[arg-type]
    assert "7 is no verifier" in str(caught.value)
    with pytest.raises(GraphError, match="at least one verifier"):
        Product()


def test_a_combination_needs_what_its_parts_need() -> None:
    """Capabilities, roles, and all candidates where one of them does."""
    judge = ScriptedVerifier({}, name="judge", roles=frozenset({"judge"}), needs="all")
    both = WeightedSum(Rank(SelfCertainty()), judge)

    assert both.requires == {"entropy"}
    assert both.roles == {"judge"}
    assert both.needs == "all"
    assert WeightedSum(CHEAP, DEAR).needs == "each"


def test_a_part_that_fails_leaves_the_others_alone() -> None:
    """In a run: its scores are unknown, and the next one is asked."""

    def breaks(candidate: Candidate) -> float:
        raise RuntimeError("broken")

    broken = ScriptedVerifier(breaks, name="broken")
    strategy = Sample(n=2) >> FirstDecided(broken, by_answer("last", **{"1": 0.7})) >> Best()

    outcome = ttc.solve("?", strategy, model=FakeEngine("The answer is 1."))

    assert outcome.candidate is not None
    assert outcome.candidate.scores["first_decided"].value == 0.7
    assert outcome.usage.verifier_calls == 4


def test_a_limit_ends_a_combination_as_any_verifier() -> None:
    """Three calls are too few for two candidates and two parts; nothing is overrun."""
    strategy = Sample(n=2) >> WeightedSum(CHEAP, DEAR) >> Vote()

    outcome = ttc.solve(
        "?",
        strategy,
        model=FakeEngine("The answer is a."),
        budget=ttc.Budget(verifier_calls=3),
    )

    assert outcome.usage.verifier_calls == 3
    assert outcome.stopped_by == "verifier_calls"


def test_combinations_nest_and_cost_what_their_leaves_cost() -> None:
    """Three leaves for each of two candidates."""
    nested = WeightedSum(FirstDecided(CHEAP, DEAR), Rank(UNBOUNDED))
    strategy = Sample(n=2) >> nested >> Best()
    outcome = ttc.solve("?", strategy, model=FakeEngine("The answer is 5."))

    assert outcome.usage.verifier_calls == 6
    bound = strategy.worst_case(outcome.problem, FakeEngine("")).verifier_calls
    assert bound == 6


def test_rounding_never_leaves_the_bounds() -> None:
    """0.1 + 0.2 and its kind."""
    parts = [ScriptedVerifier({"a": 1.0}, name=str(i)) for i in range(10)]
    (score,) = scored(WeightedSum(*parts, weights=(0.1,) * 10), answers("a"))

    assert score.value is not None
    assert 0.0 <= score.value <= 1.0
    assert isinstance(score, Score)
