"""The planner: which strategy for which budget, and which for which difficulty.

Candidates run on one part of the problems. There the front of accuracy against spend is drawn, one
is recommended, and a table is made that gives each difficulty its own; difficulty is how sure a
cheap look is, so it is known when a problem is asked. All of it then runs on the other part, and
what is expected is what came out there: choosing by luck does not flatter itself.

In the table what a look says of one run is held against what strategies came to in the next run of
the same problem, so that the samples that made the look unsure are not counted against them.

Source: the compute-optimal choice by difficulty of Snell et al. 2024, arXiv 2408.03314, section 3.
Differs: difficulty is the look's own confidence and not a model's reward or the right answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from statistics import fmean
from typing import Any, NamedTuple

from ttc.benchmarks.harness.config import Arm, Config
from ttc.benchmarks.harness.measures import CellMeasures
from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.harness.verdicts import differences
from ttc.benchmarks.metrics import Difference
from ttc.errors import RecordError
from ttc.strategies import Route
from ttc.text_form import parse, write

__all__ = [
    "LOOK",
    "FrontPoint",
    "Level",
    "Plan",
    "Table",
    "front",
    "planned",
    "recommended",
    "table",
]

SCHEMA_VERSION = 1
LOOK = "look"
"""The name of the cheap look among the strategies."""
_EDGES = (0.0, 0.5, 0.75, 1.0)
"""Of levels: below half of the votes, below three quarters, below all, and all."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A cell that no other beats in both accuracy and spend."""

    arm: str
    budget: str
    spend: float
    """Mean tokens of a problem."""
    accuracy: float
    gain: Difference | None
    """Over the next cheaper one; `None` for the cheapest."""
    is_distinguishable: bool | None
    """Whether the interval of the gain lies above 0."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """Problems of one difficulty, and what they get."""

    below: float | None
    """The confidence of the look below which a problem is of this level; `None` is the easiest."""
    num_runs: int
    """Runs of problems in it on the part that was tuned on."""
    arm: str
    """The strategy that it gets; the look itself where nothing follows."""
    accuracy: float
    """What that came to there."""
    spend: float
    """Mean tokens, with the look."""
    by_arm: Mapping[str, tuple[float, float]]
    """Accuracy and mean tokens of every strategy there."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A strategy for each difficulty."""

    levels: tuple[Level, ...]
    """The hardest first."""
    route: str
    """The text of the node that goes by it."""

    @property
    def spend(self) -> float:
        """Mean tokens on the part that it was tuned on."""
        runs = sum(level.num_runs for level in self.levels)
        return sum(level.spend * level.num_runs for level in self.levels) / runs


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was chosen on one part of the problems."""

    budget: float
    front: tuple[FrontPoint, ...]
    recommended: FrontPoint
    cheaper: tuple[FrontPoint, ...]
    """Cheaper ones that are not distinguishable from it."""
    table: Table | None

    @property
    def values(self) -> dict[str, Any]:
        """As JSON."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


class _Run(NamedTuple):
    value: float
    tokens: float


def planned(
    config: Config, cells: Sequence[CellMeasures], results: Sequence[Result], budget: float
) -> Plan:
    """What is chosen by results on the part that is tuned on.

    Args:
        config: the evaluation there; the look is one of its strategies.
        cells: its measures.
        results: its results.
        budget: mean tokens that a problem may spend.

    Raises:
        RecordError: every candidate spends more than the budget.
    """
    candidates = [cell for cell in cells if not cell.oracle]
    points = front(candidates, config.seed)
    chosen, cheaper = recommended(points, candidates, budget, config.seed)
    made = table(config, results, budget)
    return Plan(budget=budget, front=points, recommended=chosen, cheaper=cheaper, table=made)


def front(cells: Sequence[CellMeasures], seed: int) -> tuple[FrontPoint, ...]:
    """The cells that no other beats, the cheapest first, each against the one before it."""
    ranked = sorted(cells, key=lambda cell: (_spend(cell), -cell.accuracy, cell.cell.key))
    kept: list[CellMeasures] = []
    for cell in ranked:
        if not kept or cell.accuracy > kept[-1].accuracy:
            kept.append(cell)
    points = [_point(kept[0], None)] if kept else []
    for before, cell in pairwise(kept):
        gain, _, _ = differences(cell, before, seed)
        points.append(_point(cell, gain))
    return tuple(points)


def recommended(
    points: Sequence[FrontPoint], cells: Sequence[CellMeasures], budget: float, seed: int
) -> tuple[FrontPoint, tuple[FrontPoint, ...]]:
    """The most accurate one within a budget, and cheaper ones that cannot be told from it.

    Raises:
        RecordError: every one spends more.
    """
    within = [point for point in points if point.spend <= budget]
    if not within:
        least = min((point.spend for point in points), default=0.0)
        raise RecordError(
            f"no candidate spends at most {budget:g} tokens of a problem in the mean; the cheapest "
            f"spends {least:,.0f}"
        )
    best = within[-1]
    measured = {(cell.cell.arm, cell.cell.budget): cell for cell in cells}
    cheaper = tuple(
        point
        for point in within[:-1]
        if differences(measured[best.arm, best.budget], measured[point.arm, point.budget], seed)[
            0
        ].low
        <= 0
    )
    return best, cheaper


def table(config: Config, results: Sequence[Result], budget: float) -> Table | None:
    """The strategy for each difficulty that is most often right within a budget.

    All combinations are tried, under the last budget of the evaluation. `None` where there is no
    look, or it is equally sure of everything.

    Args:
        config: the evaluation.
        results: its results.
        budget: mean tokens that a problem may spend, the look included.
    """
    arms = [arm for arm in config.arms if arm.name != LOOK]
    looks = [arm for arm in config.arms if arm.name == LOOK]
    last = list(config.budgets)[-1]
    keys = {cell.key: cell.arm for cell in config.cells if cell.budget == last}
    runs: dict[str, dict[tuple[str, int], _Run]] = defaultdict(dict)
    sure: dict[tuple[str, int], float] = {}
    for result in results:
        arm = keys.get(result.cell)
        if arm is None or result.error is not None:
            continue
        is_look = arm == LOOK
        repeat = result.repeat if is_look else (result.repeat - 1) % config.repeats
        place = result.problem, repeat
        runs[arm][place] = _Run(result.value, result.usage.get("tokens") or 0.0)
        if is_look:
            sure[place] = result.confidence or 0.0
    if not looks or not sure or not arms:
        return None
    bins = _bins(sure)
    if len(bins) < 2:
        return None
    names = [arm.name for arm in arms]
    found = [_options(places, runs, names if below is not None else []) for below, places in bins]
    best = _best(found, [len(places) for _, places in bins], budget)
    if best is None:
        return None
    levels = _levels(bins, found, best)
    return Table(levels=levels, route=_route(levels, looks[0], arms))


def _bins(sure: Mapping[tuple[str, int], float]) -> list[tuple[float | None, list[Any]]]:
    """Runs by level, the hardest first; levels that nothing falls into are left out."""
    edges: list[float | None] = [*_EDGES[1:], None]
    found: list[tuple[float | None, list[Any]]] = []
    for below, above in zip(edges, _EDGES, strict=True):
        places = sorted(
            place
            for place, value in sure.items()
            if above <= value and (below is None or value < below)
        )
        if places:
            found.append((below, places))
    return found


def _options(
    places: Sequence[Any], runs: Mapping[str, Mapping[Any, _Run]], arms: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Accuracy and mean tokens of each strategy on some runs; a graph comes on top of the look."""
    looks = [runs[LOOK][place] for place in places]
    look = fmean(run.tokens for run in looks)
    found = {LOOK: (fmean(run.value for run in looks), look)}
    for arm in arms:
        mine = [runs[arm][place] for place in places if place in runs[arm]]
        if len(mine) == len(places):
            spent = look + fmean(run.tokens for run in mine)
            found[arm] = fmean(run.value for run in mine), spent
    return found


def _best(
    found: Sequence[Mapping[str, tuple[float, float]]], sizes: Sequence[int], budget: float
) -> tuple[str, ...] | None:
    """The combination that is most often right; of equals the cheapest."""
    whole = sum(sizes)
    best: tuple[float, float, tuple[str, ...]] | None = None
    for arms in product(*found):
        kept = arms[arms.index(LOOK) :] if LOOK in arms else ()
        if set(kept) - {LOOK}:  # where the look has the last word, it has it wherever it is surer
            continue
        chosen = [options[arm] for options, arm in zip(found, arms, strict=True)]
        right = sum(c[0] * size for c, size in zip(chosen, sizes, strict=True)) / whole
        spent = sum(c[1] * size for c, size in zip(chosen, sizes, strict=True)) / whole
        if spent <= budget and (best is None or (right, -spent) > (best[0], -best[1])):
            best = right, spent, arms
    return None if best is None else best[2]


def _levels(
    bins: Sequence[tuple[float | None, Sequence[Any]]],
    found: Sequence[Mapping[str, tuple[float, float]]],
    arms: Sequence[str],
) -> tuple[Level, ...]:
    return tuple(
        Level(
            below=below,
            num_runs=len(places),
            arm=arm,
            accuracy=options[arm][0],
            spend=options[arm][1],
            by_arm=dict(options),
        )
        for (below, places), options, arm in zip(bins, found, arms, strict=True)
    )


def _route(levels: Sequence[Level], look: Arm, arms: Sequence[Arm]) -> str:
    """The node that goes by a table; neighbours of one strategy are one level of it."""
    texts = {arm.name: arm.strategy for arm in arms}
    graphs, below = [], []
    for place, level in enumerate(levels):
        if level.arm == LOOK:
            continue
        following = levels[place + 1] if place + 1 < len(levels) else None
        if following is not None and following.arm == level.arm:
            continue
        graphs.append(parse(texts[level.arm]))
        below.append(1.0 if level.below is None else level.below)
    if not graphs:
        return look.strategy
    return write(Route(parse(look.strategy), *graphs, below=tuple(below)))


def _spend(cell: CellMeasures) -> float:
    return cell.spend("tokens") or 0.0


def _point(cell: CellMeasures, gain: Difference | None) -> FrontPoint:
    return FrontPoint(
        arm=cell.cell.arm,
        budget=cell.cell.budget,
        spend=_spend(cell),
        accuracy=cell.accuracy,
        gain=gain,
        is_distinguishable=None if gain is None else gain.low > 0,
    )
