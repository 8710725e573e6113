"""The planner: what it chooses, and that it is told on problems that chose nothing."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.evals import config_of, facts_of, sums
from ttc.benchmarks.harness.config import Arm, Config
from ttc.benchmarks.harness.measures import measures
from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.harness.setup import SetUp, parts
from ttc.benchmarks.planner import LOOK, Plan, front, planned, recommended, table
from ttc.errors import RecordError
from ttc.text_form import parse

ARMS = (
    Arm(name="one", strategy="sample(n=1) >> vote()"),
    Arm(name="many", strategy="sample(n=9) >> vote()"),
    Arm(name=LOOK, strategy="sample(n=4) >> vote()"),
)
CONFIG = config_of(sums(40), arms=ARMS, comparisons=())
EASY = range(20)
"""Problems of which the look is sure; on the others it is not, and `many` alone is right."""


def _results(config: Config = CONFIG, *, hard_by: str = "many") -> list[Result]:
    spends = {"one": 10.0, "many": 90.0, LOOK: 40.0}
    return [
        Result(
            cell=cell.key,
            problem=f"p{i}",
            repeat=0,
            grade=float(i in EASY or cell.arm == hard_by),
            answer="1",
            text=None,
            confidence=(1.0 if i in EASY else 0.25) if cell.arm == LOOK else 0.5,
            stopped_by="completed",
            usage={"tokens": spends[cell.arm]},
        )
        for cell in config.cells
        for i in range(40)
    ]


def _plan(budget: float, hard_by: str = "many") -> Plan:
    results = _results(hard_by=hard_by)
    return planned(CONFIG, measures(CONFIG, results), results, budget)


def test_the_front_holds_what_no_other_beats() -> None:
    """The look costs more than one sample and reaches no more."""
    points = front(measures(CONFIG, _results()), 0)
    assert [(p.arm, p.spend, p.accuracy) for p in points] == [("one", 10, 0.5), ("many", 90, 1.0)]
    assert [p.is_distinguishable for p in points] == [None, True]


def test_the_most_accurate_within_the_budget_is_recommended() -> None:
    cells = measures(CONFIG, _results())
    points = front(cells, 0)
    assert recommended(points, cells, 100, 0)[0].arm == "many"
    assert recommended(points, cells, 50, 0)[0].arm == "one"
    with pytest.raises(RecordError, match="the cheapest spends 10"):
        recommended(points, cells, 5, 0)


def test_a_cheaper_one_that_cannot_be_told_from_it_is_named() -> None:
    results = _results(hard_by="nobody")
    better = next(c.key for c in CONFIG.cells if c.arm == "many")
    lucky = [r if (r.cell, r.problem) != (better, "p39") else Result(
        **{**vars(r), "grade": 1.0}) for r in results]  # fmt: skip
    cells = measures(CONFIG, lucky)
    best, cheaper = recommended(front(cells, 0), cells, 100, 0)
    assert (best.arm, [point.arm for point in cheaper]) == ("many", ["one"])


def test_each_difficulty_gets_its_own_strategy() -> None:
    """The sure ones keep the look's answer; the others get what is right there."""
    made = _plan(90).table
    assert made is not None
    assert [(level.below, level.num_runs, level.arm) for level in made.levels] == [
        (0.5, 20, "many"),
        (None, 20, LOOK),
    ]
    assert made.spend == (130 + 40) / 2
    assert parse(made.route) == parse(
        "route(sample(n=4) >> vote(), sample(n=9) >> vote(), below=(0.5,))"
    )


def test_a_table_holds_its_budget_the_look_included() -> None:
    made = _plan(60, hard_by="many").table
    assert made is not None
    assert made.spend <= 60
    assert "many" not in [level.arm for level in made.levels]


def test_where_nothing_fits_there_is_no_table() -> None:
    assert _plan(20).table is None


def test_where_the_look_is_equally_sure_of_all_there_is_no_table() -> None:
    results = [Result(**{**vars(r), "confidence": 1.0}) for r in _results()]
    assert table(CONFIG, results, 1_000) is None


def test_a_plan_is_json() -> None:
    values = _plan(90).values
    assert values["schema_version"] == 1
    assert json.loads(json.dumps(values))["recommended"]["arm"] == "many"


def test_the_two_parts_share_no_problem() -> None:
    """Field defect 43: nothing is tuned on what is reported."""
    task = sums(40)
    whole = SetUp(config=CONFIG, tasks={"sums": task}, pool=None, left_out={})
    tuned, told = parts(whole, 0.25)
    ids = [{p.id for p in made.tasks["sums"].problems} for made in (tuned, told)]
    assert [len(part) for part in ids] == [10, 30]
    assert not ids[0] & ids[1]
    assert tuned.config.tasks[0].digest != facts_of(task).digest
    again = parts(whole, 0.25)[0]
    assert again.tasks["sums"].problems == tuned.tasks["sums"].problems


def test_a_task_of_one_problem_has_no_two_parts() -> None:
    whole = SetUp(config=CONFIG, tasks={"sums": sums(1)}, pool=None, left_out={})
    with pytest.raises(ValueError, match="sums has too few problems for two parts: 1"):
        parts(whole, 0.5)
