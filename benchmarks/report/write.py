"""Writing the reports of a folder: a page, figures, JSON, CSV and, where it can be, Parquet."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ttc.benchmarks.harness.measures import CellMeasures
from ttc.benchmarks.report.compare import Chosen, Disagreement, Side, disagreements
from ttc.benchmarks.report.figures import draw_curves
from ttc.benchmarks.report.html import page
from ttc.benchmarks.report.study import Study, read_study
from ttc.benchmarks.report.tables import rows, selection_rows, write_csv, write_parquet

__all__ = ["Written", "write_report"]

_MOST_DIFFERING = 40
"""Of one comparison, on the page; `ttc compare` shows all."""


class Written:
    """What was written, and what could not be."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.left_out: list[str] = []


def write_report(folder: Path, *, figures: bool = True) -> tuple[Study, Written]:
    """Measures a folder, and writes its reports into it.

    Args:
        folder: the folder.
        figures: whether figures are drawn, too: they take seconds.

    Raises:
        RecordError: it holds no evaluation, or no results.
    """
    study = read_study(folder)
    written = Written()
    differing = [
        replace(one, first=_viewed(folder, one.first), second=_viewed(folder, one.second))
        for found in _differing(folder, study)
        for one in found[:_MOST_DIFFERING]
    ]
    _put(folder / "report.html", page(study, differing), written)
    values = json.dumps(study.values, indent=2, ensure_ascii=False, allow_nan=False)
    _put(folder / "report.json", values + "\n", written)
    found = rows(study)
    write_csv(folder / "report.csv", found)
    written.paths.append(folder / "report.csv")
    if study.selections:
        write_csv(folder / "selection.csv", selection_rows(study))
        written.paths.append(folder / "selection.csv")
    try:
        write_parquet(folder / "report.parquet", found)
        written.paths.append(folder / "report.parquet")
    except ModuleNotFoundError as error:
        written.left_out.append(f"report.parquet, which needs {error.name}")
    groups = study.groups() if figures else []
    for path, (task, model, cells) in zip(_figures(folder, groups), groups, strict=True):
        results = [cell for cell in cells if not cell.oracle]
        try:
            written.paths += draw_curves(path, results, title=f"{task}, {model}") if results else []
        except ModuleNotFoundError as error:
            written.left_out.append(f"{path.name}, which needs {error.name}")
    return study, written


def _figures(folder: Path, groups: Sequence[tuple[str, str, list[CellMeasures]]]) -> list[Path]:
    """Where the figure of each task and model is, without a suffix: no two are in one place."""
    told = (f"accuracy-{task}-{model}" for task, model, _ in groups)
    names = [re.sub(r"[^\w.-]+", "-", name) for name in told]
    if len(set(names)) < len(names):
        names = [f"{name}-{place}" for place, name in enumerate(names, start=1)]
    return [folder / name for name in names]


def _viewed(folder: Path, side: Side) -> Side:
    """A side with a page of its run, where its journal was kept."""
    if side.journal is None:
        return side
    from ttc.view import written

    page = Path("views") / f"{side.journal.parent.name}-{side.journal.stem}.html"
    (folder / page).parent.mkdir(exist_ok=True)
    (folder / page).write_text(written(side.journal), encoding="utf-8")
    return replace(side, page=page.as_posix())


def _put(path: Path, text: str, written: Written) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    written.paths.append(path)


def _differing(folder: Path, study: Study) -> list[list[Disagreement]]:
    if study.config.pool is not None:  # its texts stand in the pool
        return []
    found = []
    for verdict in study.verdicts:
        compared = verdict.comparison
        first, second = (
            Chosen(folder=folder, config=study.config, measures=cell)
            for arm in (compared.first, compared.second)
            for cell in study.cells
            if (cell.cell.task, cell.cell.model, cell.cell.budget, cell.cell.arm)
            == (compared.task, compared.model, compared.budget, arm)
        )
        found.append(disagreements(first, second))
    return found
