"""Tables of a study: for a terminal, for CSV and for Parquet, all of the same rows."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from ttc.benchmarks.harness.measures import RESOURCES, CellMeasures
from ttc.benchmarks.harness.selection import AtK
from ttc.benchmarks.harness.verdicts import AtEqualSpend, Verdict
from ttc.benchmarks.report.study import Study

__all__ = [
    "EQUAL_HEADINGS",
    "HEADINGS",
    "RIGHT",
    "SELECTION_HEADINGS",
    "SURE_HEADINGS",
    "VERDICT_HEADINGS",
    "VERDICT_RIGHT",
    "cell_row",
    "equal_row",
    "equal_table",
    "percent",
    "points",
    "rows",
    "selection_row",
    "selection_rows",
    "spend",
    "sure_row",
    "used_up",
    "verdict_row",
    "verdict_table",
    "write_csv",
    "write_parquet",
]

UNKNOWN = "-"
HEADINGS = (
    "strategy",
    "budget",
    "accuracy",
    "95 % interval",
    "coverage",
    "regret",
    "tokens/problem",
    "length",
    "cut",
    "no answer",
    "faults",
)
RIGHT = ",".join(HEADINGS[2:])
VERDICT_HEADINGS = (
    "better?",
    "than",
    "budget",
    "difference",
    "95 % interval",
    "adjusted p",
    "detectable",
    "problems",
    "verdict",
)
VERDICT_RIGHT = ",".join(VERDICT_HEADINGS[3:8])
EQUAL_HEADINGS = (
    "strategy",
    "against",
    "at",
    "accuracy",
    "of the other",
    "difference",
    "95 % interval",
)
SELECTION_HEADINGS = ("chosen by", "k", "accuracy", "95 % interval", "regret")
SURE_HEADINGS = (
    "confidence of",
    "outcomes",
    "calibration error",
    "Brier",
    "risk over coverages",
    "surest half",
    "surest 80 %",
)


def percent(value: float | None) -> str:
    """A share; unknown is a dash."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def points(value: float) -> str:
    """A difference of shares."""
    return f"{100 * value:+z.1f}"


def spend(value: float | None, resource: str) -> str:
    """A spend with its unit; unknown is a dash."""
    if value is None:
        return UNKNOWN
    if resource == "cost_usd":
        return f"${value:.4g}"
    if resource == "seconds":
        return f"{value:.3g} s"
    if resource == "flops":
        return f"{value:.3g} FLOPs"
    return f"{value:,.0f}"


def cell_row(cell: CellMeasures) -> tuple[str, ...]:
    """What a table tells of a cell, under `HEADINGS`."""
    low, high = cell.interval
    length = UNKNOWN if cell.mean_length is None else f"{cell.mean_length:.0f}"
    return (
        cell.cell.arm,
        cell.cell.budget,
        percent(cell.accuracy),
        f"{100 * low:.1f} to {100 * high:.1f}",
        percent(cell.coverage),
        points(cell.regret).lstrip("+"),
        spend(cell.spend("tokens"), "tokens"),
        length,
        percent(cell.truncation_rate),
        _part(cell.num_unanswered, cell),
        _part(cell.num_errors, cell),
    )


def _part(count: int, cell: CellMeasures) -> str:
    """Of how many runs: with repeats there are more of them than problems."""
    return f"{count:,} of {cell.num_results:,}" if count else "0"


def used_up(cells: Iterable[CellMeasures]) -> list[str]:
    """A line for each cell that a pool was too small for: its budget is not what it spent."""
    return [
        f"{cell.cell.arm} @ {cell.cell.budget}: the pool was used up in {cell.num_used_up:,} of "
        f"{cell.num_results:,} runs, so that its accuracy is that of "
        f"{spend(cell.spend('tokens'), 'tokens')} tokens, and not of the budget"
        for cell in cells
        if cell.num_used_up
    ]


def verdict_row(verdict: Verdict) -> tuple[str, ...]:
    """What a table tells of a verdict, under `VERDICT_HEADINGS`."""
    compared, difference = verdict.comparison, verdict.difference
    return (
        compared.first,
        compared.second,
        compared.budget,
        points(difference.mean),
        f"{points(difference.low)} to {points(difference.high)}",
        f"{verdict.adjusted_p:.3f}" if verdict.adjusted_p >= 0.001 else "< 0.001",
        f"{100 * verdict.detectable:.1f}",
        str(verdict.num_problems),
        verdict.said,
    )


def verdict_table(study: Study) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows of all verdicts; of several tasks or models each row tells its own."""
    of = [(verdict.comparison.task, verdict.comparison.model) for verdict in study.verdicts]
    return _placed(study, VERDICT_HEADINGS, of, list(map(verdict_row, study.verdicts)))


def equal_table(study: Study) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows of all equal spends; of several tasks or models each row tells its own."""
    of = [(row.task, row.model) for row in study.at_equal_spend]
    return _placed(study, EQUAL_HEADINGS, of, list(map(equal_row, study.at_equal_spend)))


def _placed(
    study: Study,
    headings: tuple[str, ...],
    of: Sequence[tuple[str, str]],
    found: Sequence[tuple[str, ...]],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The same with the task and the model before each row, as far as there are several."""
    several = len(study.config.tasks) > 1, len(study.config.models) > 1
    named = tuple(compress(("task", "model"), several)) + headings
    rows = [(*compress(names, several), *row) for names, row in zip(of, found, strict=True)]
    return named, rows


def equal_row(row: AtEqualSpend) -> tuple[str, ...]:
    """What a table tells of two strategies at equal spend."""
    return (
        row.first,
        row.second,
        spend(row.spend, row.resource) + (" tokens" if row.resource == "tokens" else ""),
        _reach(*map(percent, row.first_accuracy)),
        _reach(*map(percent, row.second_accuracy)),
        _reach(*map(points, row.difference)),
        " to ".join(map(points, row.interval)),
    )


def _reach(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def selection_row(point: AtK) -> tuple[str, ...]:
    """What a table tells of a way to choose among k samples, under `SELECTION_HEADINGS`."""
    low, high = point.interval
    regret = "" if point.is_bound else points(point.regret).lstrip("+")
    name = "a perfect choice, pass@k" if point.is_bound else point.selector
    return name, str(point.k), percent(point.value), f"{100 * low:.1f} to {100 * high:.1f}", regret


def sure_row(cell: CellMeasures) -> tuple[str, ...]:
    """What a table tells of a confidence, under `SURE_HEADINGS`."""
    sure = cell.calibration
    if sure is None:
        raise ValueError(f"{cell.cell.arm} has no confidence")
    return (
        f"{cell.cell.arm} @ {cell.cell.budget}",
        f"{sure.num:,}",
        f"{sure.error:.3f}",
        f"{sure.brier:.3f}",
        f"{sure.risk_coverage:.3f}",
        percent(sure.accuracy_at(0.5)),
        percent(sure.accuracy_at(0.8)),
    )


def selection_rows(study: Study) -> list[dict[str, Any]]:
    """A flat row for each way to choose and each k: what files of tables hold."""
    return [
        {
            "task": found.task,
            "model": found.model,
            "samples_of": found.source,
            "num_problems": found.num_problems,
            "num_samples": found.num_samples,
            "selector": point.selector,
            "k": point.k,
            "value": point.value,
            "low": point.interval.low,
            "high": point.interval.high,
            "regret": point.regret,
            "is_bound": point.is_bound,
        }
        for found in study.selections
        for point in found.points
    ]


def rows(study: Study) -> list[dict[str, Any]]:
    """A flat row for each cell: what files of tables hold."""
    return [_flat(cell) for cell in study.cells]


def _flat(cell: CellMeasures) -> dict[str, Any]:
    sure = cell.calibration
    return {
        "task": cell.cell.task,
        "model": cell.cell.model,
        "strategy": cell.cell.arm,
        "budget": cell.cell.budget,
        "oracle": cell.oracle,
        "num_problems": len(cell.problems),
        "accuracy": cell.accuracy,
        "low": cell.interval.low,
        "high": cell.interval.high,
        "accuracy_of_completed": cell.accuracy_of_completed,
        "coverage": cell.coverage,
        "regret": cell.regret,
        **{f"mean_{name}": cell.spend(name) for name in RESOURCES},
        "mean_length": cell.mean_length,
        "mean_length_right": cell.mean_length_right,
        "mean_length_wrong": cell.mean_length_wrong,
        "truncation_rate": cell.truncation_rate,
        "num_unanswered": cell.num_unanswered,
        "num_undecided": cell.num_undecided,
        "num_errors": cell.num_errors,
        "num_missing": cell.num_missing,
        "num_results": cell.num_results,
        "num_pool_used_up": cell.num_used_up,
        "num_timing_dependent": cell.num_timing_dependent,
        "calibration_error": None if sure is None else sure.error,
        "brier": None if sure is None else sure.brier,
        "risk_coverage": None if sure is None else sure.risk_coverage,
        "accuracy_of_surest_half": None if sure is None else sure.accuracy_at(0.5),
        "accuracy_of_surest_80_percent": None if sure is None else sure.accuracy_at(0.8),
        "overhead": cell.overhead,
    }


def write_csv(path: Path, found: Sequence[dict[str, Any]]) -> None:
    """Writes rows as CSV; unknown is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)


def write_parquet(path: Path, found: Sequence[dict[str, Any]]) -> None:
    """Writes rows as Parquet.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(list(found)), path)
