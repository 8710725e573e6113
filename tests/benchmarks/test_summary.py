"""Summaries of studies: what a result file tells of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmarks.evals import evaluation, sums
from ttc.benchmarks.report.study import read_study
from ttc.benchmarks.report.summary import summary

BUDGETS = {"tokens=9": {"tokens": 9}, "tokens=60": {"tokens": 60}}


def _rows(folder: Path, **changes: Any) -> dict[str, list[dict[str, Any]]]:
    evaluation(folder, sums(6), changes=changes).run()
    rows = json.loads(json.dumps(summary(read_study(folder)), allow_nan=False))
    return {kind: [r for r in rows if r["kind"] == kind] for kind in {r["kind"] for r in rows}}


def test_a_summary_has_a_row_for_each_thing_that_tables_tell(tmp_path: Path) -> None:
    found = _rows(tmp_path, budgets=BUDGETS)
    assert len(found["strategy"]) == 4
    assert len(found["verdict"]) == 2
    assert {row["k"] for row in found["upper bound among k"]} == {1, 2}
    (task,) = found["task"]
    assert (task["name"], task["problems"], task["repeats"]) == ("sums", 6, 1)
    names = [row["name"] for rows in found.values() for row in rows]
    assert len(names) == len(set(names))


def test_a_summary_tells_of_every_verdict_what_both_spent(tmp_path: Path) -> None:
    found = _rows(tmp_path)
    spends = {row["name"]: row["tokens_of_a_problem"] for row in found["strategy"]}
    (verdict,) = found["verdict"]
    assert verdict["verdict"] == "too few problems"
    assert verdict["tokens_of_first"] == spends["sums, vote, tokens=60"]
    assert verdict["tokens_of_second"] == spends["sums, greedy, tokens=60"]


def test_a_bound_is_no_strategy_in_a_summary(tmp_path: Path) -> None:
    """Of what right answers chose, nothing can be quoted as a result by mistake."""
    evaluation(tmp_path, sums(6)).run()
    study = read_study(tmp_path)
    first, second = study.cells
    rows = summary(replace(study, cells=(first, replace(second, oracle=True))))
    kinds = {row["name"]: row["kind"] for row in rows}
    assert kinds["sums, greedy, tokens=60"] == "strategy"
    assert kinds["sums, vote, tokens=60"] == "upper bound"
