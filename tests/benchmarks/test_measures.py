"""Measures, verdicts and sweeps: what is counted, and what gets a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.evals import config_of, sums
from ttc.benchmarks.harness.config import (
    Arm,
    Comparison,
    Config,
    budget_name,
    default_comparisons,
)
from ttc.benchmarks.harness.estimate import detectable
from ttc.benchmarks.harness.measures import CellMeasures, calibration, measures
from ttc.benchmarks.harness.results import Graded, Result
from ttc.benchmarks.harness.sweeps import arms_of
from ttc.benchmarks.harness.verdicts import at_equal_spend, verdicts
from ttc.errors import GraphError

BUDGETS = {"tokens=10": {"tokens": 10}, "tokens=40": {"tokens": 40}}


def _config(count: int, **changes: Any) -> Config:
    return config_of(sums(count), **changes)


def _result(config: Config, arm: str, problem: int, value: float, **more: Any) -> Result:
    budget = more.pop("budget", next(iter(config.budgets)))
    cell = next(c for c in config.cells if (c.arm, c.budget) == (arm, budget))
    known: dict[str, Any] = {
        "repeat": 0,
        "grade": value,
        "answer": "1",
        "text": None,
        "confidence": None,
        "stopped_by": "completed",
    }
    return Result(cell=cell.key, problem=f"p{problem}", **{**known, **more})


def _cells(
    config: Config, values: dict[str, Callable[[int], float]], count: int, **more: Any
) -> list[CellMeasures]:
    results = [
        _result(config, arm, i, value(i), **more)
        for arm, value in values.items()
        for i in range(count)
    ]
    return measures(config, results)


def test_accuracy_is_over_all_and_over_the_completed_each_labelled() -> None:
    """BK-10: seven right, two that ended in an error, one that never ended."""
    config = _config(10, arms=(Arm(name="one", strategy="greedy()"),))
    results = [_result(config, "one", i, 1.0) for i in range(7)]
    results += [_result(config, "one", i, 0.0, error="EngineError: gone") for i in range(7, 10)]
    (cell,) = measures(config, results)
    assert (cell.accuracy, cell.accuracy_of_completed, cell.num_errors) == (0.7, 1.0, 3)


def test_unanswered_and_undecided_are_wrong_and_counted() -> None:
    config = _config(4, arms=(Arm(name="one", strategy="greedy()"),))
    grades = [(1.0, "1"), (0.0, None), (None, "2"), (0.0, "3")]
    results = [_result(config, "one", i, g, answer=a) for i, (g, a) in enumerate(grades)]  # type: ignore[arg-type]
    (cell,) = measures(config, results)
    assert (cell.accuracy, cell.num_unanswered, cell.num_undecided) == (0.25, 1, 1)


def test_repeats_are_averaged_within_a_problem_first() -> None:
    """One problem three times right does not outweigh another that is once wrong."""
    config = _config(2, repeats=3, arms=(Arm(name="one", strategy="greedy()"),))
    results = [_result(config, "one", 0, 1.0, repeat=r) for r in range(3)]
    (cell,) = measures(config, [*results, _result(config, "one", 1, 0.0)])
    assert (cell.accuracy, cell.num_missing) == (0.5, 2)


def test_regret_is_what_a_perfect_choice_would_gain() -> None:
    config = _config(2, arms=(Arm(name="one", strategy="greedy()"),))
    right = Graded(answer="1", grade=1.0, tokens=5, status="finished")
    wrong = Graded(answer="2", grade=0.0, tokens=40, status="truncated")
    results = [
        _result(config, "one", 0, 0.0, candidates=(wrong, right)),
        _result(config, "one", 1, 0.0, candidates=(wrong, wrong)),
    ]
    (cell,) = measures(config, results)
    assert (cell.coverage, cell.regret, cell.truncation_rate) == (0.5, 0.5, 0.75)
    assert (cell.mean_length_right, cell.mean_length_wrong) == (5, 40)
    assert cell.lengths == {0: (1, 0), 32: (0, 3)}


def test_what_was_not_measured_everywhere_is_unknown() -> None:
    config = _config(2, arms=(Arm(name="one", strategy="greedy()"),))
    usages = [{"tokens": 4, "cost_usd": None}, {"tokens": 6, "cost_usd": 1.0}]
    results = [_result(config, "one", i, 1.0, usage=usage) for i, usage in enumerate(usages)]
    (cell,) = measures(config, results)
    assert cell.spend("tokens") == 5
    assert cell.spend("cost_usd") is None


@pytest.mark.parametrize("pool", [None, "pool.jsonl, 2 completions, digest 0"])
def test_what_reading_a_pool_takes_is_no_spend(pool: str | None) -> None:
    """Its samples took their seconds when they were drawn, which nobody recorded."""
    config = _config(2, arms=(Arm(name="one", strategy="greedy()"),), pool=pool)
    results = [_result(config, "one", i, 1.0, usage={"tokens": 4, "seconds": 2}) for i in range(2)]
    (cell,) = measures(config, results)
    assert (cell.spend("tokens"), cell.spend("seconds")) == (4, None if pool else 2)


def test_what_a_fault_has_spent_counts_and_is_never_nothing() -> None:
    """Where it is known it stands in the mean; where it is not, the problem is left out of it."""
    config = _config(3, arms=(Arm(name="a", strategy="greedy()"),))
    lost = {"stopped_by": "error", "error": "E: gone"}
    results = [
        _result(config, "a", 0, 1.0, usage={"tokens": 10}),
        _result(config, "a", 1, 0.0, usage={"tokens": 30}, **lost),
        _result(config, "a", 2, 0.0, **lost),
    ]
    (cell,) = measures(config, results)
    assert cell.spends["tokens"] == (10.0, 30.0, None)
    assert cell.spend("tokens") == 20.0
    assert cell.num_results == 3


def test_two_budgets_never_share_a_name() -> None:
    names = [budget_name({"tokens": tokens}) for tokens in (1000, 1_000_001, 1_000_002)]
    assert names == ["tokens=1000", "tokens=1000001", "tokens=1000002"]
    assert budget_name({"cost_usd": 0.5, "flops": 1e15}) == "cost_usd=0.5,flops=1e+15"


def test_measures_do_not_depend_on_the_order_of_results() -> None:
    config = _config(30)
    random = Random(3)
    results = [
        _result(config, arm, i, float(random.random() < 0.5), confidence=random.choice([0.3, 0.7]))
        for arm in ("greedy", "vote")
        for i in range(30)
    ]
    shuffled = random.sample(results, len(results))
    assert measures(config, results) == measures(config, shuffled)


def test_calibration_of_a_sure_and_right_selector_is_perfect() -> None:
    found = calibration([(1.0, 1.0)] * 5 + [(0.0, 0.0)] * 5)
    assert found is not None
    assert (found.error, found.brier) == (0.0, 0.0)
    assert found.curve[0] == (0.5, 1.0)


def test_equally_sure_outcomes_are_calibrated_by_their_mean() -> None:
    """A confidence of one half that is right in half of all cases, alone and beside a sure one."""
    halves = [(0.5, float(i % 2)) for i in range(50)]
    for pairs in (halves, halves + [(1.0, 1.0)] * 33, halves + [(0.0, 0.0)] * 7):
        found = calibration(pairs)
        assert found is not None
        assert found.error == pytest.approx(0.0)


def test_the_risk_over_coverages_is_that_by_hand() -> None:
    """Right, wrong, right by falling confidence: risks 0, 1/2 and 1/3."""
    found = calibration([(0.9, 1.0), (0.8, 0.0), (0.7, 1.0)])
    assert found is not None
    assert found.risk_coverage == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9]), st.sampled_from([0.0, 1.0]))))
def test_calibration_is_a_function_of_the_pairs_alone(pairs: list[tuple[float, float]]) -> None:
    forwards, backwards = calibration(pairs), calibration(pairs[::-1])
    assert forwards == backwards
    assert (forwards is None) == (not pairs)


def test_only_what_was_named_beforehand_gets_a_verdict() -> None:
    config = _config(40, comparisons=())
    cells = _cells(config, {"greedy": lambda i: 0.0, "vote": lambda i: 1.0}, 40)
    assert verdicts(config, cells) == []


def test_a_clear_gain_is_better_and_a_tie_is_not_distinguishable() -> None:
    config = _config(40)
    better = _cells(config, {"greedy": lambda i: float(i < 10), "vote": lambda i: i < 30}, 40)
    tie = _cells(config, {"greedy": lambda i: float(i % 2), "vote": lambda i: float(i % 2)}, 40)
    assert [v.said for v in verdicts(config, better)] == ["better"]
    assert [v.said for v in verdicts(config, tie)] == ["not distinguishable"]


def test_below_thirty_problems_there_is_no_verdict() -> None:
    config = _config(29)
    cells = _cells(config, {"greedy": lambda i: 0.0, "vote": lambda i: 1.0}, 29)
    assert [v.said for v in verdicts(config, cells)] == ["too few problems"]


def test_an_oracle_never_wins() -> None:
    config = _config(40)
    cells = _cells(config, {"greedy": lambda i: 0.0, "vote": lambda i: 1.0}, 40, oracle=True)
    assert [v.said for v in verdicts(config, cells)] == ["an oracle took part"]


def test_p_values_are_adjusted_within_a_task() -> None:
    """Three comparisons of one difference: each is three times as large as alone."""
    arms = tuple(Arm(name=n, strategy="greedy()") for n in "abcd")
    values = {n: (lambda i: float(i < 14)) for n in "bcd"} | {"a": lambda i: float(5 < i < 14)}
    alone = _config(60, arms=arms[:2])
    three = _config(60, arms=arms)
    one = verdicts(alone, _cells(alone, {n: values[n] for n in "ab"}, 60))[0]
    many = verdicts(three, _cells(three, values, 60))
    assert len(many) == 3
    assert many[0].adjusted_p == pytest.approx(min(1, 3 * one.adjusted_p))


def test_more_than_six_comparisons_of_a_task_are_refused() -> None:
    seven = tuple(
        Comparison(task="sums", model="fake", budget="tokens=60", first="vote", second="greedy")
        for _ in range(7)
    )
    with pytest.raises(ValueError, match="sums has 7 comparisons, and at most 6"):
        _config(4, comparisons=seven)


@pytest.mark.parametrize(("arms", "budgets", "count"), [(3, 3, 6), (4, 3, 3), (8, 1, 0), (1, 1, 0)])
def test_default_comparisons_never_exceed_six(arms: int, budgets: int, count: int) -> None:
    """Against the first strategy: at all budgets, else at the last, else none."""
    made = tuple(Arm(name=str(i), strategy="greedy()") for i in range(arms))
    names = [f"tokens={i}" for i in range(budgets)]
    found = default_comparisons(["t"], ["m"], made, names)
    assert len(found) == count
    assert all(c.second == "0" for c in found)


def _spending(config: Config, places: Sequence[tuple[str, str, int, int]]) -> list[CellMeasures]:
    """Cells of 40 problems: strategy, budget, tokens of a problem, and how many are right."""
    results = [
        _result(config, arm, i, float(i < right), budget=budget, usage={"tokens": tokens})
        for arm, budget, tokens, right in places
        for i in range(40)
    ]
    return measures(config, results)


def test_a_strategy_is_held_at_both_budgets_beside_the_spend_of_another() -> None:
    """At 10 tokens none are right, at 40 all: what 25 come to lies between, and nobody ran it."""
    config = _config(40, budgets=BUDGETS)
    cells = _spending(config, [
        ("greedy", "tokens=10", 25, 10), ("greedy", "tokens=40", 25, 10),
        ("vote", "tokens=10", 10, 0), ("vote", "tokens=40", 40, 40),
    ])  # fmt: skip
    (row,) = at_equal_spend(config, cells)
    assert (row.spend, row.first_accuracy, row.second_accuracy) == (25, (0.0, 1.0), (0.25, 0.25))
    assert row.difference == (-0.25, 0.75)
    assert row.interval.low < -0.25
    assert row.interval.high > 0.75


def test_of_two_equal_strategies_on_a_curve_that_flattens_neither_is_ahead() -> None:
    """The straight line from 10 to 40 tokens passes 25 at 20 right ones: the curve has 30 there."""
    config = _config(40, budgets=BUDGETS)
    curve = {10: 8, 25: 30, 40: 32}
    cells = _spending(config, [
        ("greedy", "tokens=10", 10, curve[10]), ("greedy", "tokens=40", 25, curve[25]),
        ("vote", "tokens=10", 10, curve[10]), ("vote", "tokens=40", 40, curve[40]),
    ])  # fmt: skip
    (row,) = at_equal_spend(config, cells)
    assert row.spend == 25
    assert row.difference.low <= 0 <= row.difference.high


def test_strategies_that_were_named_meet_where_the_first_spends_less_than_any() -> None:
    """One sample of each problem spends what no vote does; the votes meet each other."""
    arms = tuple(Arm(name=name, strategy="greedy()") for name in ("one", "vote", "best"))
    named = Comparison(task="sums", model="fake", budget="tokens=40", first="best", second="vote")
    config = _config(40, budgets=BUDGETS, arms=arms, comparisons=(named,))
    places = [("one", budget, 4, 8) for budget in BUDGETS]
    for arm in ("vote", "best"):
        places += [(arm, "tokens=10", 10, 12), (arm, "tokens=40", 40, 20)]
    (row,) = at_equal_spend(config, _spending(config, places))
    assert (row.first, row.second, row.spend) == ("best", "vote", 40)


def test_at_just_the_same_spend_two_results_are_compared_as_they_are() -> None:
    config = _config(40, budgets={"tokens=10": {"tokens": 10}})
    cells = _spending(config, [("greedy", "tokens=10", 9, 8), ("vote", "tokens=10", 9, 20)])
    (row,) = at_equal_spend(config, cells)
    assert row.difference == pytest.approx((0.3, 0.3))
    assert row.first_accuracy == (0.5, 0.5)


def test_nothing_is_extrapolated_to_an_equal_spend() -> None:
    config = _config(40, budgets=BUDGETS)
    results = []
    for arm, tokens in (("greedy", (5, 6)), ("vote", (10, 40))):
        for budget, spent in zip(BUDGETS, tokens, strict=True):
            results += [
                _result(config, arm, i, 1.0, budget=budget, usage={"tokens": spent})
                for i in range(40)
            ]
    assert at_equal_spend(config, measures(config, results)) == []


def test_every_strategy_runs_under_the_same_budgets() -> None:
    """Field defect 44: equal caps by construction; no strategy has one of its own."""
    config = _config(4, budgets=BUDGETS)
    by_arm = {
        arm.name: [config.budget(c.budget) for c in config.cells if c.arm == arm.name]
        for arm in config.arms
    }
    assert by_arm["greedy"] == by_arm["vote"]
    assert len(by_arm["vote"]) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("greedy()", ["greedy()"]),
        ("plain: greedy()", ["plain"]),
        ("v: sample(n={2,4}) >> vote()", ["v n=2", "v n=4"]),
        (
            "v: sample(n={2,4}, temperature={0.5,1.0}) >> vote()",
            ["v n=2 temperature=0.5", "v n=2 temperature=1.0",
             "v n=4 temperature=0.5", "v n=4 temperature=1.0"],
        ),
        ("sample(n={1,2}) >> vote()", ["sample(n=1) >> vote()", "sample(n=2) >> vote()"]),
    ],
)  # fmt: skip
def test_braces_are_several_strategies(text: str, names: list[str]) -> None:
    assert [arm.name for arm in arms_of([text])] == names


def test_a_sweep_that_gives_no_strategy_is_refused() -> None:
    with pytest.raises(GraphError, match="n"):
        arms_of(["v: sample(n={2,x}) >> vote()"])


@pytest.mark.statistical
def test_what_is_detectable_is_detected_four_times_of_five() -> None:
    """500 problems, differing on 20 %: a difference as large as is detectable, 300 trials.

    The power is 80 %: 240 +- 7 detections; fewer than 200 or more than 275 has odds below 1e-5.
    """
    random, share, size = Random(5), 0.2, 500
    gain = detectable(size, share)
    assert gain is not None
    found = 0
    for _ in range(300):
        draws: Sequence[int] = random.choices(
            (1, -1, 0), ((share + gain) / 2, (share - gain) / 2, 1 - share), k=size
        )
        spread = math.sqrt(fmean(d * d for d in draws) - fmean(draws) ** 2)
        found += fmean(draws) > 1.96 * spread / math.sqrt(size)
    assert 200 <= found <= 275


def test_no_difference_is_larger_than_the_share_on_which_two_differ() -> None:
    """Forty problems would need 14 points, which two that differ on four of them cannot show."""
    assert detectable(40, 0.1) is None
    assert detectable(80, 0.1) == pytest.approx(0.0991, abs=1e-4)
