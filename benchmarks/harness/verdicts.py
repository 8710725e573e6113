"""Verdicts: on the comparisons that were written down before the run, and on nothing else.

Two strategies are compared on the same problems, and on the same samples where both draw them, by a
paired bootstrap over problems. The p values of a task are adjusted for how many comparisons it has.

At equal spend means at an equal mean. Where one strategy has no result at the other's spend,
nothing is read off the straight line between its budgets: a curve that flattens lies above that
line, so it would look worse than it is. It is held at both budgets beside that spend, and what is
told is how far its accuracy, the difference and the interval then reach. Nothing is extrapolated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from ttc.benchmarks.harness.config import Comparison, Config
from ttc.benchmarks.harness.measures import RESOURCES, CellMeasures
from ttc.benchmarks.metrics import (
    MIN_PROBLEMS,
    Difference,
    Interval,
    detectable_difference,
    difference_of_grades,
    holm,
)

__all__ = [
    "AtEqualSpend",
    "Said",
    "Verdict",
    "at_equal_spend",
    "differences",
    "said",
    "verdicts",
]

Said = Literal["better", "worse", "not distinguishable", "too few problems", "an oracle took part"]
_LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one comparison came to."""

    comparison: Comparison
    num_problems: int
    difference: Difference
    """How much the first is better, with its interval, which is not adjusted."""
    adjusted_p: float
    detectable: float
    """The smallest difference that so many problems would have shown with a power of 80 %."""
    said: Said


@dataclass(frozen=True, kw_only=True)
class AtEqualSpend:
    """How two strategies differ where their mean spend is the same: told, without a verdict."""

    task: str
    model: str
    resource: str
    spend: float
    """The most that both reach."""
    first: str
    second: str
    first_accuracy: Interval
    """At its budgets beside that spend: both ends are one number where it spends just so much."""
    second_accuracy: Interval
    difference: Interval
    """How much the first is better, at either of these budgets."""
    interval: Interval
    """What the 95 % intervals of all these differences cover."""


def verdicts(config: Config, cells: Sequence[CellMeasures]) -> list[Verdict]:
    """All comparisons whose two cells have results, with p values adjusted within each task."""
    found: list[Verdict] = []
    for _, group in groupby(config.comparisons, key=lambda comparison: comparison.task):
        pairs = [(c, *_cells_of(c, cells)) for c in group]
        whole = [(c, a, b) for c, a, b in pairs if a is not None and b is not None]
        raw = [_difference(a, b, config.seed) for _, a, b in whole]
        adjusted = holm([difference.p for _, _, difference in raw])
        for (comparison, a, b), (ours, theirs, difference), p in zip(
            whole, raw, adjusted, strict=True
        ):
            found.append(
                Verdict(
                    comparison=comparison,
                    num_problems=len(ours),
                    difference=difference,
                    adjusted_p=p,
                    detectable=_detectable(ours, theirs),
                    said=said(difference, p, len(ours), is_bound=a.oracle or b.oracle),
                )
            )
    return found


def differences(
    first: CellMeasures, second: CellMeasures, seed: int
) -> tuple[Difference, float, int]:
    """How much better the first is, what could have been seen, and on how many problems."""
    ours, theirs, difference = _difference(first, second, seed)
    return difference, _detectable(ours, theirs), len(ours)


def at_equal_spend(config: Config, cells: Sequence[CellMeasures]) -> list[AtEqualSpend]:
    """Every strategy against the first, and each pair that was named, as far as spends meet.

    Each at the largest mean spend that both reach.
    """
    return list(_equal_spends(config, cells))


def _equal_spends(config: Config, cells: Sequence[CellMeasures]) -> Iterator[AtEqualSpend]:
    pairs = [(arm.name, config.arms[0].name) for arm in config.arms[1:]]
    pairs += [(c.first, c.second) for c in config.comparisons if (c.second, c.first) not in pairs]
    for task in config.tasks:
        for model in config.models:
            mine = [c for c in cells if (c.cell.task, c.cell.model) == (task.name, model)]
            for resource in RESOURCES:
                for first, second in dict.fromkeys(pairs):
                    made = _equal(mine, resource, first, second, config.seed)
                    if made is not None:
                        yield made


def _equal(
    cells: Sequence[CellMeasures], resource: str, first: str, second: str, seed: int
) -> AtEqualSpend | None:
    lines = [
        sorted(
            (c for c in cells if c.cell.arm == arm and c.spends.get(resource)),
            key=lambda c: c.spend(resource) or 0.0,
        )
        for arm in (first, second)
    ]
    if not all(lines) or len({c.problems for line in lines for c in line}) > 1:
        return None
    most = min(line[-1].spend(resource) or 0.0 for line in lines)
    least = max(line[0].spend(resource) or 0.0 for line in lines)
    if most < least:
        return None
    ours, theirs = (_beside(line, resource, most) for line in lines)
    found = [
        difference_of_grades(mine.values, other.values, seed=seed)
        for mine in ours
        for other in theirs
    ]
    return AtEqualSpend(
        task=cells[0].cell.task,
        model=cells[0].cell.model,
        resource=resource,
        spend=most,
        first=first,
        second=second,
        first_accuracy=_reach(cell.accuracy for cell in ours),
        second_accuracy=_reach(cell.accuracy for cell in theirs),
        difference=_reach(one.mean for one in found),
        interval=_reach(end for one in found for end in (one.low, one.high)),
    )


def _beside(line: Sequence[CellMeasures], resource: str, spend: float) -> tuple[CellMeasures, ...]:
    """The cells that spend next to so much: one where it is just that, else one on either side."""
    below = [c for c in line if (c.spend(resource) or 0.0) <= spend][-1]
    if below.spend(resource) == spend:
        return (below,)
    return below, next(c for c in line if (c.spend(resource) or 0.0) > spend)


def _reach(values: Iterable[float]) -> Interval:
    known = tuple(values)
    return Interval(min(known), max(known))


def _cells_of(
    comparison: Comparison, cells: Sequence[CellMeasures]
) -> tuple[CellMeasures | None, CellMeasures | None]:
    def cell(arm: str) -> CellMeasures | None:
        wanted = (comparison.task, comparison.model, arm, comparison.budget)
        return next(
            (c for c in cells if (c.cell.task, c.cell.model, c.cell.arm, c.cell.budget) == wanted),
            None,
        )

    return cell(comparison.first), cell(comparison.second)


def _difference(
    first: CellMeasures, second: CellMeasures, seed: int
) -> tuple[list[float], list[float], Difference]:
    ours = dict(zip(first.problems, first.values, strict=True))
    theirs = dict(zip(second.problems, second.values, strict=True))
    common = [problem for problem in first.problems if problem in theirs]
    if not common:
        raise ValueError("two cells without a common problem cannot be compared")
    pair = [ours[problem] for problem in common], [theirs[problem] for problem in common]
    return *pair, difference_of_grades(*pair, seed=seed)


def _detectable(first: Sequence[float], second: Sequence[float]) -> float:
    return min(1.0, detectable_difference(first, second)) if len(first) > 1 else 1.0


def said(difference: Difference, p: float, num: int, *, is_bound: bool = False) -> Said:
    """The verdict on a difference that was asked for beforehand.

    Args:
        difference: of so many problems.
        p: adjusted for how many were asked for.
        num: the problems.
        is_bound: whether right answers helped to choose on either side.
    """
    if is_bound:
        return "an oracle took part"
    if num < MIN_PROBLEMS:
        return "too few problems"
    if p >= _LEVEL:
        return "not distinguishable"
    return "better" if difference.mean > 0 else "worse"
