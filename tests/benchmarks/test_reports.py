"""Reports: one page without scripts, figures, tables; what models wrote stays text."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.evals import VOTE, adder, config_of, evaluation, sums
from ttc.benchmarks.harness.config import Arm, default_comparisons
from ttc.benchmarks.report import svg
from ttc.benchmarks.report.compare import chosen, disagreements
from ttc.benchmarks.report.html import page
from ttc.benchmarks.report.study import Study, read_study
from ttc.benchmarks.report.tables import equal_table, points, verdict_table
from ttc.benchmarks.report.write import write_report
from ttc.errors import RecordError
from ttc.ports import Request
from ttc.testing import FakeEngine

ATTACK = " <script>document.title='taken'</script><img src=x onerror=alert(1)>"
BUDGETS = {"tokens=20": {"tokens": 20}, "tokens=60": {"tokens": 60}}
CHROMIUM = Path("/usr/bin/chromium")


def _attacker(request: Request) -> str:
    return adder(request) + ATTACK


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation whose model writes markup, with its reports."""
    made = tmp_path_factory.mktemp("eval")
    arms = config_of(sums()).arms
    changes = {"budgets": BUDGETS, "arms": arms}
    evaluation(made, sums(12), engine=FakeEngine(_attacker), changes=changes).run()
    write_report(made, figures=False)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, where it is installed."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"Chromium is not installed at {CHROMIUM}")
    with sync.sync_playwright() as play:
        made = play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield made
        made.close()


def _of_two_models(folder: Path) -> Study:
    """A vote against itself, by two models whose names differ behind their last dot alone."""
    models, arms = ("org/m2.5-7b", "org/m2.5-14b"), (VOTE, replace(VOTE, name="again"))
    named = default_comparisons(["sums"], models, arms, ["tokens=60"])
    changes = {"models": models, "arms": arms, "comparisons": named}
    evaluation(folder, sums(4), engine=FakeEngine(adder), changes=changes).run()
    return read_study(folder)


def test_a_row_of_several_models_tells_which_one_it_is_of(tmp_path: Path) -> None:
    """Verdicts and equal spends of two models, in a terminal's tables and on the page."""
    study = _of_two_models(tmp_path)

    for headings, rows in (verdict_table(study), equal_table(study)):
        assert headings[0] == "model"
        assert {row[0] for row in rows} == {"org/m2.5-7b", "org/m2.5-14b"}
    assert page(study).count('<td class="s">org/m2.5-7b</td>') >= 2


def test_every_model_has_a_figure_of_its_own(tmp_path: Path) -> None:
    """Names that differ behind their last dot alone are no reason to write over a figure."""
    _of_two_models(tmp_path)
    _, written = write_report(tmp_path)

    assert len(set(written.paths)) == len(written.paths)
    assert len(list(tmp_path.glob("accuracy-*.png"))) == 2


def test_a_figure_takes_names_as_they_are(tmp_path: Path) -> None:
    """What would be a formula, and a wrong one, is drawn as a text."""
    arms = (Arm(name=r"a $\frac$", strategy="greedy(max_tokens=8)"),)
    changes = {"models": (r"m $\frac$",), "arms": arms, "comparisons": ()}
    evaluation(tmp_path, sums(2), engine=FakeEngine(adder), changes=changes).run()
    write_report(tmp_path)

    (drawn,) = tmp_path.glob("accuracy-*.svg")
    assert drawn.read_text(encoding="utf-8").count(r"$\frac$") >= 2


def test_a_difference_that_rounds_to_nothing_has_no_minus() -> None:
    assert [points(value) for value in (-0.0001, 0.0, -0.01)] == ["+0.0", "+0.0", "-1.0"]


def test_the_page_shows_in_a_browser_what_models_wrote_as_text(folder: Path, browser: Any) -> None:
    """No script runs, nothing is fetched, every chart is drawn, nothing overflows."""
    view = browser.new_page(viewport={"width": 1100, "height": 900})
    told: list[str] = []
    asked: list[str] = []
    view.on("console", lambda message: told.append(message.text))
    view.on("request", lambda request: asked.append(request.url))
    view.goto((folder / "report.html").as_uri())

    assert view.title() == "sums - ttc"
    assert told == []
    assert len(asked) == 1
    assert view.locator("script, img, iframe").count() == 0
    told_texts = view.locator("pre").all_text_contents()
    assert any("<script>document.title" in text for text in told_texts)
    assert view.locator("svg[role=img]").count() >= 4
    drawn = view.locator("polyline.line").first.evaluate("e => getComputedStyle(e).fill")
    assert drawn == "none"
    assert view.evaluate("document.documentElement.scrollWidth") <= 1100
    view.close()


def test_the_page_fits_a_telephone(folder: Path, browser: Any) -> None:
    view = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    view.goto((folder / "report.html").as_uri())
    assert view.evaluate("document.documentElement.scrollWidth") <= 390
    dark = view.locator("body").evaluate("e => getComputedStyle(e).backgroundColor")
    assert dark == "rgb(18, 23, 30)"
    view.close()


def test_the_page_forbids_everything_but_its_style(folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "<script" not in text
    assert " style=" not in text
    assert "&lt;script&gt;" in text


def test_json_csv_and_parquet_tell_the_same(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    whole = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    table = parquet.read_table(folder / "report.parquet").to_pylist()
    with (folder / "report.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    accuracies = [cell["accuracy"] for cell in whole["cells"]]
    assert [row["accuracy"] for row in table] == accuracies
    assert [float(row["accuracy"]) for row in rows] == accuracies
    assert len(accuracies) == 4


def test_figures_hold_no_date_and_no_folder(folder: Path, tmp_path: Path) -> None:
    """Drawn again, they are the same."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from ttc.benchmarks.report.figures import draw_curves

    cells = read_study(folder).results
    png, drawn = draw_curves(tmp_path / "a", cells, title="t")
    assert (png.suffix, drawn.suffix) == (".png", ".svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = drawn.read_text(encoding="utf-8")
    assert "<dc:date>" not in text
    assert str(tmp_path) not in text


def test_an_unfinished_evaluation_says_so(folder: Path, tmp_path: Path) -> None:
    config_of(sums(12), budgets=BUDGETS).begin(tmp_path)
    lines = (folder / "results.jsonl").read_bytes().split(b"\n")
    (tmp_path / "results.jsonl").write_bytes(b"\n".join(lines[:10]) + b"\n")
    study = read_study(tmp_path)
    assert study.num_missing == 38
    assert "38 results are still missing" in page(study)


def test_an_oracle_stands_apart_and_in_no_chart(folder: Path, tmp_path: Path) -> None:
    config_of(sums(12), budgets=BUDGETS).begin(tmp_path)
    lines = (folder / "results.jsonl").read_bytes().replace(b'"oracle": false', b'"oracle": true')
    (tmp_path / "results.jsonl").write_bytes(lines)
    study = read_study(tmp_path)
    assert study.results == []
    assert len(study.bounds) == 4
    told = page(study)
    assert "Upper bounds: chosen by the right answers, and no results" in told
    assert "polyline" not in told.partition("Problem by problem")[0]


def test_the_page_tells_numerics_digests_seeds_and_prompts(folder: Path) -> None:
    """Field defect 46, and the card."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    for told in ("seed 7", sums(12).digest, "What is 0 + 1?", "batching", "FakeEngine; fake"):
        assert told in text


def test_disagreements_are_the_problems_that_one_alone_gets_right(folder: Path) -> None:
    first = chosen(f"{folder}#vote@tokens=60")["sums"]
    second = chosen(f"{folder}#greedy@tokens=60")["sums"]
    found = disagreements(first, second)
    ours = dict(zip(first.measures.problems, first.measures.values, strict=True))
    theirs = dict(zip(second.measures.problems, second.measures.values, strict=True))
    assert [one.problem for one in found] == [p for p in ours if ours[p] != theirs[p]]
    assert all({one.first.mark, one.second.mark} == {"right", "wrong"} for one in found)


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    config_of(sums()).begin(tmp_path)
    with pytest.raises(RecordError, match="holds no results yet; run the evaluation first"):
        read_study(tmp_path)
    with pytest.raises(RecordError, match="holds no evaluation"):
        read_study(tmp_path / "nowhere")


def test_names_in_charts_are_text() -> None:
    line = svg.Line("<b>", [svg.Point(1, 0.5, 0.4, 0.6, "<i>"), svg.Point(9, 0.6, 0.5, 0.7, "")], 0)
    drawn = svg.lines([line], x="<x>", y="y")
    assert "<b>" not in drawn
    assert "<i>" not in drawn
    assert "&lt;x&gt;" in drawn


@pytest.mark.parametrize(("value", "told"), [(500, "500"), (2000, "2k"), (5e6, "5M"), (1e15, "1P")])
def test_axes_tell_round_numbers(value: float, told: str) -> None:
    assert svg.short(value) == told


def test_kept_runs_are_linked_where_strategies_differ(tmp_path: Path, browser: Any) -> None:
    evaluation(tmp_path, sums(12), engine=FakeEngine(_attacker), keep_journals=True).run()
    write_report(tmp_path, figures=False)
    view = browser.new_page()
    view.goto((tmp_path / "report.html").as_uri())
    view.locator("details:has(.pair) summary").first.click()
    view.locator("a", has_text="the whole run of vote").first.click()

    assert "views/" in view.url
    assert view.title()
    view.close()
