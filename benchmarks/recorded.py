"""What allocators gain on recorded completions: the same pool for all, against `uniform`.

Run as `python -m ttc.benchmarks.recorded --pool POOL --references FILE [--json PATH]`, or with a
task in the place of the file, as `--references "gsm8k[300:700]" --data FOLDER`.

A vote over each problem's completions is run by `solve_many` on the pool, under every allocator.
`uniform` and `uniform_stop` may make a few calls for each problem; the others have the tokens that
`uniform` spent, to give away as they like. References are matched by id, and an answer is right
where it has the reference's key, or where the task's own grader says so. A run is repeated with the
completions of each problem in other orders, and what a problem comes to is the mean over them.
Differences to `uniform` are paired by problem, with percentile intervals of a bootstrap over
problems. The allocator to be shown, `greedy_gain`, was named before anything was run: it alone gets
a verdict, at each budget, with p values adjusted by Holm's method for how many budgets there are.

A call is reserved at the longest completion of the pool, so the others leave up to that much.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

import ttc
from ttc.allocate import (
    Allocator,
    Bandit,
    GreedyGain,
    OptScale,
    ShadowPrice,
    Uniform,
    UniformStop,
)
from ttc.benchmarks.data import Asking, task_named
from ttc.benchmarks.files import read_task
from ttc.benchmarks.harness.verdicts import Said, said
from ttc.benchmarks.metrics import Difference, holm, paired_bootstrap
from ttc.benchmarks.pools import graded
from ttc.benchmarks.results import Value, write_result
from ttc.benchmarks.tasks import Task
from ttc.engine.replay import ReplayEngine
from ttc.errors import RecordError
from ttc.journal import derive_seed
from ttc.pools import Pool, read
from ttc.strategies import Sample, Vote
from ttc.types import Budget

__all__ = ["ALLOCATORS", "NAMED", "Point", "main", "measure"]

NAMED = "greedy_gain"
"""The allocator that was named in advance; the others are told beside it."""
BASE = "uniform"
EQUAL = (BASE, "uniform_stop")
"""Those that share equally: in calls, since an equal share of tokens may not hold a whole call."""
ALLOCATORS: Mapping[str, Callable[[], Allocator]] = {
    BASE: Uniform,
    "uniform_stop": UniformStop,
    NAMED: GreedyGain,
    "bandit": Bandit,
    "optscale": OptScale,
    "shadow_price": ShadowPrice,
}
UNITS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One allocator at one budget."""

    allocator: str
    units: int
    """The calls of each problem, in the mean."""
    budget_tokens: int
    """What all problems together may spend."""
    tokens: float
    """What was spent, in the mean over orders."""
    accuracy: float
    """The share of problems that came to the right answer, in the mean over orders."""
    gain: float
    """How much more than `uniform` at the same budget, in points."""
    low: float
    high: float
    """The 95 % interval of the gain, over problems."""
    num_problems: int
    verdict: Said | None = None
    """Of the one that was named in advance."""


def measure(
    pool: Pool,
    task: Task,
    *,
    units: Sequence[int] = UNITS,
    orders: int = 5,
    seed: int = 0,
    resamples: int = 10_000,
) -> list[Point]:
    """Every allocator at every budget.

    Args:
        pool: the completions.
        task: the references and the grader.
        units: calls for each problem, in the mean.
        orders: how often everything is run, with the completions in other orders.
        seed: seeds orders, runs and the bootstrap.
        resamples: of the bootstrap.

    Raises:
        RecordError: the pool and the task have no problem in common, or lengths are unknown.
    """
    pool = _common(pool, task)
    lengths = [completion.length for completion in pool]
    if None in lengths:
        raise RecordError(
            "the pool does not tell how long its completions are, so nothing can be charged for "
            "them; take it in again with counting="
        )
    longest = max(length for length in lengths if length is not None)
    shuffled = [_shuffled(pool, derive_seed(seed, "order", place)) for place in range(orders)]
    points: list[Point] = []
    gains: list[Difference] = []
    for count in units:
        most = count * longest * len(pool.problems)
        equal = Budget(calls=count)
        runs = {
            name: [
                _run(order, task, ALLOCATORS[name](), (most, longest), seed, equal)
                for order in shuffled
            ]
            for name in EQUAL
        }
        tokens = [one.tokens for one in runs[BASE]]
        for name in ALLOCATORS.keys() - EQUAL:
            runs[name] = [
                _run(order, task, ALLOCATORS[name](), (spend, longest), seed)
                for order, spend in zip(shuffled, tokens, strict=True)
            ]
        base = _means(runs[BASE])
        for name in ALLOCATORS:
            ran = runs[name]
            ours = _means(ran)
            gain = paired_bootstrap(ours, base, seed=seed, resamples=resamples)
            point = Point(
                allocator=name,
                units=count,
                budget_tokens=most if name in EQUAL else round(fmean(tokens)),
                tokens=fmean(one.tokens for one in ran),
                accuracy=fmean(ours),
                gain=100 * gain.mean,
                low=100 * gain.low,
                high=100 * gain.high,
                num_problems=len(ours),
            )
            points.append(point)
            gains.append(gain)
    return _with_verdicts(points, gains)


def _with_verdicts(points: Sequence[Point], gains: Sequence[Difference]) -> list[Point]:
    named = [place for place, point in enumerate(points) if point.allocator == NAMED]
    adjusted = dict(zip(named, holm([gains[place].p for place in named]), strict=True))
    return [
        replace(point, verdict=said(gain, adjusted[place], point.num_problems))
        if place in adjusted
        else point
        for place, (point, gain) in enumerate(zip(points, gains, strict=True))
    ]


@dataclass(frozen=True)
class _Ran:
    """One run over all problems."""

    right: list[bool]
    tokens: int


def _run(
    pool: Pool,
    task: Task,
    allocator: Allocator,
    sizes: tuple[int, int],
    seed: int,
    per_problem: Budget | None = None,
) -> _Ran:
    """One run. `sizes` are the tokens of the whole run, and of the longest completion."""
    tokens, longest = sizes
    most = max(len(pool.of(problem.id)) for problem in pool.problems)
    outcomes = ttc.solve_many(
        pool.problems,
        Sample(n=most, max_tokens=longest, at_least=longest, temperature=_temperature(pool))
        >> Vote(),
        model=ReplayEngine(pool),
        budget=Budget(tokens=tokens),
        per_problem=per_problem,
        allocator=allocator,
        seed=seed,
    )
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    references = task.references
    right = [
        outcome.candidate is not None
        and task.grader(references[outcome.problem.id], outcome.candidate).value == 1.0
        for outcome in outcomes
    ]
    return _Ran(right, sum(outcome.usage.tokens for outcome in outcomes))


def _temperature(pool: Pool) -> float:
    """How the pool was drawn; where it does not tell, anything is as good."""
    first = next(iter(pool))
    return 1.0 if first.sampling is None else first.sampling.temperature


def _common(pool: Pool, task: Task) -> Pool:
    """The problems of the pool that have a reference, without the room that failed calls take."""
    known = graded(pool, task)
    return Pool(completion for completion in pool if completion.problem in known)


def _shuffled(pool: Pool, seed: int) -> Pool:
    """The same completions, those of each problem in another order."""
    random, made = Random(seed), []
    for problem in pool.problems:
        completions = list(pool.of(problem.id))
        random.shuffle(completions)
        made += [replace(c, index=place) for place, c in enumerate(completions)]
    return Pool(made)


def _means(runs: Sequence[_Ran]) -> list[float]:
    """What each problem came to, in the mean over runs."""
    return [fmean(values) for values in zip(*(run.right for run in runs), strict=True)]


def _task(references: str, folders: Sequence[Path]) -> Task:
    """The task of a file, or a registered one."""
    if Path(references).is_file():
        return read_task(Path(references))
    return task_named(references, Asking(folders=tuple(folders)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints, and writes the figures where it is asked to."""
    parser = argparse.ArgumentParser(description="What allocators gain on recorded completions.")
    parser.add_argument("--pool", type=Path, required=True, help="a pool; see `ttc pool import`")
    parser.add_argument(
        "--references", required=True, help="JSON lines with id, question and answer, or a task"
    )
    parser.add_argument("--data", type=Path, action="append", default=[], help="data sets")
    parser.add_argument("--limit", type=int, help="problems")
    parser.add_argument("--orders", type=int, default=5, help="orders of the completions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=10_000, help="of the bootstrap")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    pool = read(options.pool)
    task = _task(options.references, options.data)
    task = task.only(task.items[: options.limit])
    points = measure(
        pool, task, orders=options.orders, seed=options.seed, resamples=options.resamples
    )
    for point in points:
        mark = "*" if point.allocator == NAMED else " "
        sys.stdout.write(
            f"{point.units:3} units {mark}{point.allocator:14} {point.tokens:9.0f} tokens "
            f"{100 * point.accuracy:5.1f} % right  {point.gain:+6.2f} points "
            f"[{point.low:+.2f}, {point.high:+.2f}] {point.verdict or ''}\n"
        )
    sys.stdout.write(f"* named in advance; {BASE} is what gains are against\n")
    if options.json is not None:
        rows = [_row(point, options) for point in points]
        command = ["python", "-m", "ttc.benchmarks.recorded", *(arguments or sys.argv[1:])]
        write_result(options.json, command=command, rows=rows, seed=options.seed)


def _row(point: Point, options: argparse.Namespace) -> dict[str, Value]:
    return {
        "name": f"{point.allocator}, {point.units} units",
        "pool": options.pool.name,
        "orders": options.orders,
        "budget_tokens": point.budget_tokens,
        "tokens": round(point.tokens),
        "right_percent": round(100 * point.accuracy, 2),
        "gain_points": round(point.gain, 3),
        "gain_low": round(point.low, 3),
        "gain_high": round(point.high, 3),
        "bootstrap_resamples": options.resamples,
        "bootstrap_seed": options.seed,
        "is_named_in_advance": point.allocator == NAMED,
        "problems": point.num_problems,
        "verdict": point.verdict,
    }


if __name__ == "__main__":
    main()
