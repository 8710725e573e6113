"""The summary of a study: flat rows of a result file, small enough to be kept beside the code.

It holds what tables tell: strategies, verdicts, equal spends and choices among k samples, with the
problems and samples behind each. Texts, problems one by one and charts stand in the reports alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from ttc.benchmarks.harness.config import Config
from ttc.benchmarks.harness.measures import CellMeasures
from ttc.benchmarks.harness.selection import AtK, Selection
from ttc.benchmarks.harness.verdicts import AtEqualSpend, Verdict
from ttc.benchmarks.metrics import Interval
from ttc.benchmarks.planner import FrontPoint, Plan
from ttc.benchmarks.report.study import Study
from ttc.benchmarks.results import Value

__all__ = ["plan_summary", "summary"]

Row = dict[str, Value]


def summary(study: Study) -> list[Row]:
    """All rows, each with a name and its kind."""
    return [
        *_tasks(study),
        *_models(study),
        *(_cell(cell, study) for cell in study.cells),
        *(_verdict(verdict, study) for verdict in study.verdicts),
        *(_equal(row, study) for row in study.at_equal_spend if row.resource == "tokens"),
        *(_selection(found, point) for found in study.selections for point in found.points),
    ]


def plan_summary(plan: Plan, chosen_on: Config) -> list[Row]:
    """What was chosen, on what, and the front that it was chosen from, the cheapest first."""
    best = plan.recommended
    chosen: Row = {
        "name": f"plan within {plan.budget:g} tokens",
        "kind": "plan",
        "recommended": _called(best),
        "strategy": chosen_on.strategy(best.arm),
        "cheaper_and_not_distinguishable": "; ".join(map(_called, plan.cheaper)) or None,
        "route": None if plan.table is None else plan.table.route,
        "chosen_on": chosen_on.tasks[0].name,
        "chosen_on_problems": chosen_on.tasks[0].num_problems,
    }
    return [chosen, *map(_front, plan.front)]


def _called(point: FrontPoint) -> str:
    return f"{point.arm} @ {point.budget}"


def _front(point: FrontPoint) -> Row:
    gain = point.gain
    return {
        "name": f"front, {_called(point)}",
        "kind": "front of the part that chose",
        "accuracy_percent": _percent(point.accuracy),
        "tokens_of_a_problem": _rounded(point.spend),
        "gain_points": None if gain is None else _percent(gain.mean),
        "low": None if gain is None else _percent(gain.low),
        "high": None if gain is None else _percent(gain.high),
        "is_distinguishable": point.is_distinguishable,
    }


def _tasks(study: Study) -> Iterator[Row]:
    for task in study.config.tasks:
        yield {
            "name": task.name,
            "kind": "task",
            "problems": task.num_problems,
            "source": task.source,
            "digest": task.digest,
            "grader": task.grader,
            "with_public_tests": task.num_publicly_tested,
            "repeats": study.config.repeats,
            "pool": study.config.pool,
        }


def _models(study: Study) -> Iterator[Row]:
    for name, model in study.card.get("models", {}).items():
        for role, engine in model["engines"].items():
            yield {
                "name": f"{name}, {role}",
                "kind": "model",
                "engine": engine["kind"],
                "numerics": engine["numerics"],
                "commit_of_the_run": study.card.get("commit"),
            }


def _cell(cell: CellMeasures, study: Study) -> Row:
    what = cell.cell
    return {
        "name": _name(study, what.model, what.task, what.arm, what.budget),
        "kind": "upper bound" if cell.oracle else "strategy",
        "model": what.model,
        "strategy": study.config.strategy(what.arm),
        "problems": len(cell.problems),
        "accuracy_percent": _percent(cell.accuracy),
        **_interval(cell.interval),
        "tokens_of_a_problem": _rounded(cell.spend("tokens")),
        "coverage_percent": _percent(cell.coverage),
        "truncated_percent": None
        if cell.truncation_rate is None
        else _percent(cell.truncation_rate),
        "tokens_of_a_candidate": _rounded(cell.mean_length),
        "runs": cell.num_results,
        "pool_used_up": cell.num_used_up,
        "unanswered": cell.num_unanswered,
        "undecided": cell.num_undecided,
        "faults": cell.num_errors,
        "missing": cell.num_missing,
    }


def _verdict(verdict: Verdict, study: Study) -> Row:
    what, difference = verdict.comparison, verdict.difference
    spends = {
        cell.cell.arm: _rounded(cell.spend("tokens"))
        for cell in study.cells
        if (cell.cell.task, cell.cell.model, cell.cell.budget)
        == (what.task, what.model, what.budget)
    }
    return {
        "name": _name(study, what.model, what.task, f"{what.first} > {what.second}", what.budget),
        "kind": "verdict",
        "model": what.model,
        "problems": verdict.num_problems,
        "difference_points": _percent(difference.mean),
        "low": _percent(difference.low),
        "high": _percent(difference.high),
        "adjusted_p": round(verdict.adjusted_p, 4),
        "detectable_points": _percent(verdict.detectable),
        "tokens_of_first": spends[what.first],
        "tokens_of_second": spends[what.second],
        "verdict": verdict.said,
    }


def _equal(row: AtEqualSpend, study: Study) -> Row:
    at = f"at {row.spend:.1f} tokens"
    return {
        "name": _name(study, row.model, row.task, f"{row.first} and {row.second}", at),
        "kind": "at equal spend",
        "model": row.model,
        "first_accuracy_percent": _reach(row.first_accuracy),
        "second_accuracy_percent": _reach(row.second_accuracy),
        "difference_points": _reach(row.difference),
        **_interval(row.interval),
    }


def _selection(found: Selection, point: AtK) -> Row:
    return {
        "name": f"{found.task}, {point.selector}, k={point.k}, of {found.source}",
        "kind": "upper bound among k" if point.is_bound else "chosen among k",
        "model": found.model,
        "k": point.k,
        "problems": found.num_problems,
        "samples": found.num_samples,
        "accuracy_percent": _percent(point.value),
        **_interval(point.interval),
    }


def _name(study: Study, model: str, *parts: str) -> str:
    """What a row is of; the model stands in it where there are several."""
    return ", ".join(parts if len(study.config.models) == 1 else (model, *parts))


def _interval(interval: Interval) -> Row:
    return {"low": _percent(interval.low), "high": _percent(interval.high)}


def _reach(ends: Interval) -> Value:
    """A number, or two where it is known to lie between them."""
    low, high = map(_percent, ends)
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> float:
    return round(100 * share, 2)


def _rounded(tokens: float | None) -> float | None:
    return None if tokens is None else round(tokens, 1)
