"""Measures of a cell: what it reached, what it spent, and what stands beside an accuracy.

A problem counts once: what it came to is averaged over its repeats first. Unanswered, undecided and
faulty ones are wrong, and stay in the denominator. What every role spent is counted, and so is what
ttc itself took.

Source: calibration error with bins of equal size, Nguyen and O'Connor 2015, arXiv 1508.05154; risk
against coverage, Geifman and El-Yaniv 2017, arXiv 1705.08500.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean

from ttc.benchmarks.harness.config import Cell, Config
from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.metrics import Interval, bootstrap

__all__ = ["BIN", "RESOURCES", "Calibration", "CellMeasures", "calibration", "measures", "natural"]

RESOURCES = ("tokens", "flops", "seconds", "cost_usd")
"""What accuracies are compared at."""
BIN = 32
"""Tokens of a bin of lengths."""
_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How well a selector's confidence tells right from wrong."""

    num: int
    """Outcomes with a confidence."""
    error: float
    """The mean distance of confidence and accuracy, over ten bins of equally many outcomes; where a
    bin ends among equally sure ones, each of them counts as their mean."""
    brier: float
    """The mean square of confidence less grade."""
    risk_coverage: float
    """The mean risk over all coverages, the surest first; less is better."""
    curve: tuple[tuple[float, float], ...]
    """Coverage, and the accuracy of what is answered there."""

    def accuracy_at(self, coverage: float) -> float:
        """The accuracy of the surest, as many as cover so much of the problems at least."""
        return next(accuracy for answered, accuracy in self.curve if answered >= coverage - 1e-9)


@dataclass(frozen=True, kw_only=True)
class CellMeasures:
    """What a cell came to."""

    cell: Cell
    problems: tuple[str, ...]
    values: tuple[float, ...]
    """By problem: the share of its repeats that were right."""
    spends: Mapping[str, tuple[float | None, ...]]
    """By resource, as far as it was measured everywhere, and by problem: the mean of repeats.
    `None` is a problem of which a fault left it unknown."""
    interval: Interval
    """Of the accuracy, over problems."""
    accuracy_of_completed: float | None
    """Without those that a fault left without an outcome; `None` where none is left."""
    num_missing: int
    """Results that are not there yet."""
    num_errors: int
    num_unanswered: int
    num_undecided: int
    """Answers that no grader could decide on in time."""
    num_timing_dependent: int
    truncation_rate: float | None
    """Of candidates: how many were cut by their length."""
    coverage: float
    """The share of problems of which a right candidate was drawn."""
    mean_length: float | None
    """Of a candidate, in tokens."""
    mean_length_right: float | None
    mean_length_wrong: float | None
    lengths: Mapping[int, tuple[int, int]]
    """Right and wrong candidates, by bins of `BIN` tokens."""
    roles: Mapping[str, float]
    """Mean tokens of a problem, by the role that spent them."""
    stopped_by: Mapping[str, int]
    """How many results each reason has ended."""
    overhead: float | None
    """The share of all seconds in which ttc itself worked."""
    calibration: Calibration | None
    oracle: bool
    """Whether right answers helped to choose: then it is a bound, and no result."""

    @property
    def accuracy(self) -> float:
        """The share of problems whose chosen answer is right."""
        return fmean(self.values)

    @property
    def regret(self) -> float:
        """What a perfect choice among the candidates that were drawn would gain."""
        return self.coverage - self.accuracy

    @property
    def num_results(self) -> int:
        """Runs of problems that there are results of."""
        return sum(self.stopped_by.values())

    @property
    def num_used_up(self) -> int:
        """Runs in which a pool had no further completion, while the budget had room for one."""
        return self.stopped_by.get("pool", 0)

    def spend(self, resource: str) -> float | None:
        """The mean of a problem; `None` where it was not measured."""
        values = [value for value in self.spends.get(resource, ()) if value is not None]
        return fmean(values) if values else None


def measures(config: Config, results: Iterable[Result]) -> list[CellMeasures]:
    """What every cell came to that has results, in the order of the configuration."""
    cells = {cell.key: cell for cell in config.cells}
    sizes = {task.name: task.num_problems * config.repeats for task in config.tasks}
    # how long it takes to read a pool tells nothing of how long its samples took
    known = tuple(name for name in RESOURCES if config.pool is None or name != "seconds")
    found: dict[str, _Sum] = {}
    for result in results:
        if result.cell in cells:
            found.setdefault(result.cell, _Sum(known)).add(result)
    return [
        found[key].measured(cell, sizes[cell.task], config.seed)
        for key, cell in cells.items()
        if key in found
    ]


class _Sum:
    """Adds results up; texts are not kept."""

    def __init__(self, resources: Sequence[str]) -> None:
        self._resources = resources
        self._values: dict[str, list[float]] = defaultdict(list)
        self._spends: dict[str, dict[str, list[float | None]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._covered: dict[str, list[bool]] = defaultdict(list)
        self._completed: list[float] = []
        self._sure: list[tuple[float, float]] = []
        self._lengths: Counter[tuple[int, bool]] = Counter()
        self._tokens: Counter[bool] = Counter()
        self._graded: Counter[bool] = Counter()
        self._counts: Counter[str] = Counter()
        self._stopped: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        self._overhead: list[tuple[float, float]] = []
        self._oracle = False

    def add(self, result: Result) -> None:
        """Takes one result in."""
        problem, counts = result.problem, self._counts
        counts["results"] += 1
        self._values[problem].append(result.value)
        self._covered[problem].append(
            result.value == 1.0 or any(c.grade == 1.0 for c in result.candidates)
        )
        self._stopped[result.stopped_by] += 1
        if result.error is not None:
            counts["errors"] += 1
        else:
            self._completed.append(result.value)
        if result.error is None or result.usage:
            self._take_spends(result)
        counts["unanswered"] += result.error is None and result.answer is None
        counts["undecided"] += result.grade is None
        counts["timing"] += bool(result.timing_dependent)
        if result.confidence is not None:
            self._sure.append((result.confidence, result.value))
        self._oracle |= result.oracle
        self._roles.update(result.roles)
        self._take_candidates(result)

    def _take_spends(self, result: Result) -> None:
        usage = result.usage
        for resource in self._resources:
            self._spends[resource][result.problem].append(usage.get(resource, 0.0))
        seconds = usage.get("seconds")
        if result.overhead_s is not None and seconds:
            self._overhead.append((result.overhead_s, seconds))

    def _take_candidates(self, result: Result) -> None:
        for candidate in result.candidates:
            is_right = candidate.grade == 1.0
            self._counts["truncated"] += candidate.status == "truncated"
            self._graded[is_right] += 1
            self._tokens[is_right] += candidate.tokens
            self._lengths[candidate.tokens // BIN * BIN, is_right] += 1

    def measured(self, cell: Cell, size: int, seed: int) -> CellMeasures:
        """What all of them came to."""
        problems = tuple(sorted(self._values, key=natural))
        values = tuple(fmean(self._values[problem]) for problem in problems)
        counts, graded = self._counts, self._graded
        num = graded[True] + graded[False]
        tokens, bins = self._tokens, sorted({place for place, _ in self._lengths})
        return CellMeasures(
            cell=cell,
            problems=problems,
            values=values,
            spends=self._all_spends(problems),
            interval=bootstrap(values, seed=seed),
            accuracy_of_completed=fmean(self._completed) if self._completed else None,
            num_missing=size - counts["results"],
            num_errors=counts["errors"],
            num_unanswered=counts["unanswered"],
            num_undecided=counts["undecided"],
            num_timing_dependent=counts["timing"],
            truncation_rate=counts["truncated"] / num if num else None,
            coverage=fmean(fmean(self._covered[problem]) for problem in problems),
            mean_length=sum(tokens.values()) / num if num else None,
            mean_length_right=tokens[True] / graded[True] if graded[True] else None,
            mean_length_wrong=tokens[False] / graded[False] if graded[False] else None,
            lengths={b: (self._lengths[b, True], self._lengths[b, False]) for b in bins},
            roles={r: spent / counts["results"] for r, spent in sorted(self._roles.items())},
            stopped_by=dict(sorted(self._stopped.items())),
            overhead=_ratio(self._overhead),
            calibration=calibration(self._sure),
            oracle=self._oracle,
        )

    def _all_spends(self, problems: Sequence[str]) -> dict[str, tuple[float | None, ...]]:
        spends = {}
        for resource, by_problem in self._spends.items():
            known = [by_problem.get(problem, []) for problem in problems]
            if any(None in values for values in known):
                continue
            means = tuple(_mean(v for v in values if v is not None) for values in known)
            if resource == "tokens" or any(means):
                spends[resource] = means
        return spends


def _mean(values: Iterable[float]) -> float | None:
    known = tuple(values)
    return fmean(known) if known else None


def calibration(pairs: Sequence[tuple[float, float]]) -> Calibration | None:
    """How well confidences tell right from wrong; `None` where there are none in [0, 1].

    Args:
        pairs: confidence, and 1 where the answer was right.
    """
    ranked = sorted((pair for pair in pairs if 0 <= pair[0] <= 1), key=_surest)
    if not ranked:
        return None
    num, levelled = len(ranked), _levelled(ranked)
    edges = [num * place // _BINS for place in range(_BINS + 1)]
    bins = [levelled[a:b] for a, b in pairwise(edges) if b > a]
    error = sum(
        len(block) / num * abs(fmean(c for c, _ in block) - fmean(v for _, v in block))
        for block in bins
    )
    curve, risk = _curve(ranked)
    return Calibration(
        num=num,
        error=error,
        brier=fmean((confidence - value) ** 2 for confidence, value in ranked),
        risk_coverage=risk,
        curve=curve,
    )


def _levelled(ranked: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same, with the mean of equally sure ones for each of them, as none comes first."""
    found: list[tuple[float, float]] = []
    for confidence, block in groupby(ranked, key=lambda pair: pair[0]):
        values = [value for _, value in block]
        found += [(confidence, fmean(values))] * len(values)
    return found


def _curve(ranked: Sequence[tuple[float, float]]) -> tuple[tuple[tuple[float, float], ...], float]:
    """Accuracy by coverage, and the mean risk; equal confidences are answered in mean order."""
    num, answered, right = len(ranked), 0, 0.0
    points, risks = [], 0.0
    for _, block in groupby(ranked, key=lambda pair: pair[0]):
        values = [value for _, value in block]
        mean = fmean(values)
        risks += sum(
            1 - (right + mean * place) / (answered + place) for place in range(1, len(values) + 1)
        )
        answered, right = answered + len(values), right + sum(values)
        points.append((answered / num, right / answered))
    return tuple(points), risks / num


def _surest(pair: tuple[float, float]) -> tuple[float, float]:
    """The surest first; equally sure ones in an order that no run changes."""
    return -pair[0], pair[1]


def _ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    whole = sum(seconds for _, seconds in pairs)
    return sum(part for part, _ in pairs) / whole if whole else None


def natural(text: str) -> tuple[int, str, str]:
    """Sorts numbers in names by their value, as far as they stand alone."""
    digits = text.rpartition("-")[2].rpartition("/")[2]
    return (len(digits), digits, text) if digits.isdecimal() else (99, text, "")
