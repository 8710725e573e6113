"""Tables of a page: what is written into it, and out of which files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.evals import evaluation, sums
from tests.meta.tree import ROOT
from ttc.benchmarks.report.page import main, renewed, tables
from ttc.benchmarks.report.study import read_study
from ttc.benchmarks.report.summary import summary
from ttc.benchmarks.results import write_result
from ttc.errors import RecordError

BUDGETS = {"tokens=9": {"tokens": 9}, "tokens=6000": {"tokens": 6000}}
RESULTS = ROOT / "benchmarks" / "results"


def _written(folder: Path, **changes: Any) -> Path:
    """The summary of an evaluation, in a file."""
    evaluation(folder / "run", sums(6), changes=changes).run()
    path = folder / "sums.json"
    write_result(path, command=["ttc", "eval"], rows=summary(read_study(folder / "run")), seed=1)
    return path


def test_a_strategy_has_one_line_and_each_budget_a_column(tmp_path: Path) -> None:
    """With the accuracies and intervals that the summary has."""
    told = json.loads(_written(tmp_path, budgets=BUDGETS).read_text("utf-8"))

    head, _, greedy, vote, *_ = tables(told).splitlines()

    assert head.startswith("| strategy | 9 tokens | 6,000 tokens | spent at 6,000 tokens |")
    cells = {row["name"]: row for row in told["rows"] if row["kind"] == "strategy"}
    for line, name in ((greedy, "greedy"), (vote, "vote")):
        first = cells[f"sums, {name}, tokens=9"]
        assert line.startswith(
            f"| {name} | {first['accuracy_percent']:.1f} % [{first['low']:.1f}, "
        )
        last = cells[f"sums, {name}, tokens=6000"]
        assert f"| {last['tokens_of_a_problem']:,.0f} tokens |" in line


def test_a_verdict_is_told_with_its_difference_and_what_is_detectable(tmp_path: Path) -> None:
    told = json.loads(_written(tmp_path).read_text("utf-8"))
    (row,) = (row for row in told["rows"] if row["kind"] == "verdict")

    (line,) = (line for line in tables(told).splitlines() if line.startswith("| vote > greedy"))

    difference = f"{row['difference_points']:+.1f} [{row['low']:.1f}, {row['high']:.1f}]"
    assert line == (
        f"| vote > greedy, 60 tokens | {difference} | too few problems | "
        f"{row['detectable_points']:.1f} |"
    )


def test_only_what_stands_between_the_marks_is_written_anew(tmp_path: Path) -> None:
    """And a page that is as its files are stays as it is."""
    _written(tmp_path)
    page = "before\n<!-- sums.json -->\nold\n<!-- /sums.json -->\nafter\n"

    once = renewed(page, tmp_path)

    assert once.startswith("before\n<!-- sums.json -->\n| strategy |")
    assert once.endswith("\n<!-- /sums.json -->\nafter\n")
    assert "old" not in once
    assert renewed(once, tmp_path) == once


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '{"rows": [{"kind": "task"}]}'])
def test_a_file_that_is_no_summary_is_told_by_its_name(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "sums.json").write_text(text, encoding="utf-8")

    with pytest.raises(RecordError, match=r"the page names sums\.json"):
        renewed("<!-- sums.json -->\n<!-- /sums.json -->\n", tmp_path)


@pytest.mark.parametrize(
    "page", ["", "<!-- a.json -->\n", "<!-- a.json -->\n<!-- /b.json -->\n", "<!-- /a.json -->\n"]
)
def test_a_page_whose_marks_do_not_match_is_refused(tmp_path: Path, page: str) -> None:
    """And one without any: nothing would be written anew, and nobody would know."""
    with pytest.raises(RecordError, match="<!-- "):
        renewed(page, tmp_path)


def test_a_page_that_cannot_be_written_anew_stays_as_it_is(tmp_path: Path) -> None:
    """And the command ends with a line that says why."""
    page = tmp_path / "page.md"
    page.write_text("<!-- a.json -->\n<!-- /a.json -->\n", encoding="utf-8")

    with pytest.raises(SystemExit, match=r"the page names a\.json"):
        main([str(page), str(tmp_path)])

    assert page.read_text(encoding="utf-8") == "<!-- a.json -->\n<!-- /a.json -->\n"


def test_the_page_of_what_was_measured_has_the_figures_of_the_results() -> None:
    """Every table of it comes from a file in `benchmarks/results/`."""
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")

    assert page.count("<!-- /") > 10
    assert renewed(page, RESULTS) == page
