"""What allocators gain: problems solved against tokens spent, on simulated problems.

Run as `python -m ttc.benchmarks.allocation [--seeds N] [--json PATH] [--png PATH]`.

A problem is solved once one of its units is right, as with a verifier that is never wrong. The
chance p of a unit is drawn from Beta(0.3, 0.9): many problems are hopeless, a few are easy. The
machine that gives units away is the one of `solve_many`, driven here without engines and tasks; a
test holds the two against each other. What a stop cuts costs its whole length here, which is the
most that it can have cost; the machine's own books charge it at its worst case.

Every method but `uniform` gets as its budget what `uniform_stop` has spent. `signal` is a number of
each problem that correlates with logit p; `useless` is noise that is taken for such a signal.
Differences are means over seeds, with bootstrap intervals over seeds.
"""

from __future__ import annotations

import argparse
import math
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import NormalDist, fmean, pstdev
from typing import NamedTuple

from ttc.allocate import (
    Allocation,
    Allocator,
    Bandit,
    Belief,
    GreedyGain,
    Open,
    OptScale,
    ShadowPrice,
    Terms,
    Uniform,
    UniformStop,
)
from ttc.benchmarks.metrics import paired_bootstrap
from ttc.benchmarks.results import write_result
from ttc.engine.simulator import Lengths, SimulatedProblem, Simulator
from ttc.journal import derive_seed
from ttc.registry import install_hint

__all__ = ["METHODS", "Curve", "World", "beliefs", "knapsack", "main", "measure", "play"]

A, B = 0.3, 0.9
"""The law of p."""
PROMPT, MAX_TOKENS = 32, 256
LENGTHS = Lengths(median=128.0, sigma=0.25)
CORRELATION = 0.7
PRIOR = Belief(A / (A + B), A + B)
WINDOW = 4
SHARES = (4, 6, 10, 18, 34)
"""Budgets, in mean units for each problem."""
_UNIT = PROMPT / 4 + LENGTHS.median * math.exp(LENGTHS.sigma**2 / 2)


class Curve(NamedTuple):
    """How a run went: tokens spent and problems solved after each unit."""

    spent: list[int]
    solved: list[int]

    def spent_for(self, solved: int) -> float:
        """What was spent when so many were solved; infinite where they never were."""
        reached = (s for s, n in zip(self.spent, self.solved, strict=True) if n >= solved)
        return next(reached, math.inf)


class World:
    """Simulated problems, and what each unit of each comes to."""

    def __init__(self, seed: int, num_problems: int = 200) -> None:
        random = Random(derive_seed(seed, "world", 0))
        chances = [min(1 - 1e-9, max(1e-9, random.betavariate(A, B))) for _ in range(num_problems)]
        self.seed = seed
        self.laws = [
            SimulatedProblem(id=f"q{i}", success=p, lengths=LENGTHS, prompt_tokens=PROMPT)
            for i, p in enumerate(chances)
        ]
        self.noise = [random.gauss(0.0, 1.0) for _ in self.laws]
        self._simulator = Simulator(self.laws, seed=seed)
        self._seeds: list[int] = []
        self._units: list[list[tuple[bool, int]]] = [[] for _ in self.laws]

    @property
    def ids(self) -> list[str]:
        """The problems, in their order."""
        return [law.id for law in self.laws]

    def unit(self, problem: int, index: int) -> tuple[bool, int]:
        """Whether a problem's unit is right, and what it costs: as `solve_many` would draw it."""
        drawn = self._units[problem]
        while index >= len(drawn):  # once for all methods and budgets
            drawn.append(self._draw(problem, len(drawn)))
        return drawn[index]

    def _draw(self, problem: int, index: int) -> tuple[bool, int]:
        while index >= len(self._seeds):
            self._seeds.append(derive_seed(self.seed, "0.sample", len(self._seeds)))
        answer, length = self._simulator.draw(self.laws[problem].id, self._seeds[index])
        tokens = min(length, MAX_TOKENS) + (PROMPT if index == 0 else 0)
        return answer == "1" and length <= MAX_TOKENS, tokens

    def cost_of(self, problem: int, most: int) -> float:
        """What a problem costs up to its first right unit; infinite where none of `most` is."""
        total = 0
        for index in range(most):
            is_right, tokens = self.unit(problem, index)
            total += tokens
            if is_right:
                return total
        return math.inf

    def signal(self, correlation: float) -> dict[str, float]:
        """A number for each problem with this correlation to logit p."""
        rest = math.sqrt(1 - correlation**2)
        return {
            law.id: correlation * _standard(law.success) + rest * noise
            for law, noise in zip(self.laws, self.noise, strict=True)
        }


def play(allocator: Allocator, tokens: int, world: World) -> Curve:
    """A run of the machine to the end of its budget."""
    machine = Allocation(allocator, Terms(tokens=tokens, num_problems=len(world.laws)), world.ids)
    given, told, cost = ([0] * len(world.laws) for _ in range(3))
    solved: set[int] = set()
    curve = Curve([0], [0])
    worst = MAX_TOKENS + PROMPT
    pending: deque[tuple[bool, int]] = deque()
    total = 0
    while True:
        asked = machine.ask()
        if isinstance(asked, Open):
            machine.size(asked.problem, need=worst, floor=worst)
            continue
        if asked is not None:
            pending.append(world.unit(asked.problem, given[asked.problem]))
            given[asked.problem] += 1
            continue
        unit = machine.oldest
        if unit is None:
            return curve
        is_right, spent = pending.popleft()
        problem, total = unit.problem, total + spent
        if problem in solved:
            machine.tell(unit, tokens=unit.tokens)  # it was cut, at a moment that depends on timing
        else:
            told[problem] += 1
            cost[problem] += spent
            if is_right:
                solved.add(problem)
            gain = 0.0 if is_right else 1.0 / (told[problem] + 1)
            machine.tell(unit, tokens=spent, offer=(gain, cost[problem] / told[problem], None))
        curve.spent.append(total)
        curve.solved.append(len(solved))


def knapsack(world: World, tokens: int) -> int:
    """The most problems that anyone could solve: it knows what every unit will come to."""
    solved = 0
    for most in (16, 64, 256, 1024):  # few of the dear ones have to be looked at
        costs = (world.cost_of(problem, most) for problem in range(len(world.laws)))
        totals = list(accumulate(sorted(cost for cost in costs if cost < math.inf)))
        solved = bisect_right(totals, tokens)
        if solved < len(totals):
            break
    return solved


@lru_cache(maxsize=1)
def _population() -> tuple[tuple[float, ...], float, float]:
    """Quantiles of p, and the mean and the deviation of logit p."""
    random = Random(0)
    draws = sorted(min(1 - 1e-9, max(1e-9, random.betavariate(A, B))) for _ in range(40_000))
    logits = [math.log(p / (1 - p)) for p in draws]
    return tuple(draws[100::200]), fmean(logits), pstdev(logits)


def _standard(p: float) -> float:
    _, mean, deviation = _population()
    return (math.log(p / (1 - p)) - mean) / deviation


def beliefs(signal: Mapping[str, float], correlation: float = CORRELATION) -> dict[str, Belief]:
    """What a signal says of each p, for those who know its correlation with logit p."""
    return {name: _belief(round(value, 2), correlation) for name, value in signal.items()}


@lru_cache(maxsize=4096)
def _belief(signal: float, correlation: float) -> Belief:
    """The Beta law with the mean and the variance of p, given its signal."""
    chances = _population()[0]
    law = NormalDist(0.0, math.sqrt(1 - correlation**2))
    weights = [law.pdf(signal - correlation * _standard(p)) for p in chances]
    total = sum(weights)
    mean = sum(w * p for w, p in zip(weights, chances, strict=True)) / total
    square = sum(w * p * p for w, p in zip(weights, chances, strict=True)) / total
    variance = max(square - mean**2, 1e-12)
    return Belief(mean, max(0.05, mean * (1 - mean) / variance - 1))


def _known(world: World) -> dict[str, Belief]:
    return {law.id: Belief(law.success, math.inf) for law in world.laws}


METHODS: Mapping[str, Callable[[World], Allocator]] = {
    "uniform": lambda world: Uniform(window=WINDOW),
    "uniform_stop": lambda world: UniformStop(window=WINDOW),
    "greedy_gain": lambda world: GreedyGain(window=WINDOW, belief=PRIOR),
    "bandit": lambda world: Bandit(window=WINDOW),
    "optscale": lambda world: OptScale(window=WINDOW, belief=PRIOR),
    "shadow_price": lambda world: ShadowPrice(window=WINDOW, belief=PRIOR, num_open=32),
    "greedy_gain, known p": lambda world: GreedyGain(window=WINDOW, beliefs=_known(world)),
    "greedy_gain, signal": lambda world: GreedyGain(
        window=WINDOW, belief=PRIOR, beliefs=beliefs(world.signal(CORRELATION))
    ),
    "greedy_gain, useless signal": lambda world: GreedyGain(
        window=WINDOW, belief=PRIOR, beliefs=beliefs(world.signal(0.0))
    ),
}
"""The allocators that are compared, by name."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One method at one budget, over all seeds."""

    method: str
    share: int
    """The budget of `uniform_stop`, in mean units for each problem; 0: the mean of all budgets."""
    tokens: float
    """What the method spent, in the mean."""
    solved: float
    """The part of all problems that it solved, in the mean."""
    gain: float
    """How much more of them than `uniform_stop`, at equal spend, in points."""
    low: float
    high: float
    """The 95 % interval of the gain, over seeds."""
    ratio: float
    """What it spent until it had solved as many as `uniform_stop`, in parts of that one's spend;
    infinite where it never did in some run."""


def measure(
    seeds: Sequence[int],
    *,
    shares: Sequence[int] = SHARES,
    methods: Sequence[str] = tuple(METHODS),
    num_problems: int = 200,
) -> list[Point]:
    """Every method at the spend of `uniform_stop`, for each of its budgets."""
    names = dict.fromkeys(("uniform_stop", *methods, "knapsack"))
    runs: dict[int, dict[str, list[_Ran]]] = {s: {name: [] for name in names} for s in shares}
    for seed in seeds:
        world = World(seed, num_problems)
        for share in shares:
            for name, ran in _runs(world, share, methods).items():
                runs[share][name].append(ran)
    points = [
        _point(name, share, rows, of_share["uniform_stop"])
        for share, of_share in runs.items()
        for name, rows in of_share.items()
    ]
    means = {
        name: [_mean(rows) for rows in zip(*(runs[share][name] for share in shares), strict=True)]
        for name in runs[shares[0]]
    }
    return points + [_point(name, 0, rows, means["uniform_stop"]) for name, rows in means.items()]


class _Ran(NamedTuple):
    """One run: what it spent, the part that it solved, and its spend for `uniform_stop`'s part."""

    tokens: float
    solved: float
    ratio: float


def _mean(rows: Sequence[_Ran]) -> _Ran:
    return _Ran(*map(fmean, zip(*rows, strict=True)))


def _runs(world: World, share: int, methods: Sequence[str]) -> dict[str, _Ran]:
    """Every method in a world, at one budget."""
    num_problems = len(world.laws)
    tokens = round(num_problems * share * _UNIT)
    base = play(METHODS["uniform_stop"](world), tokens, world)
    spend, target = base.spent[-1], base.solved[-1]
    best = knapsack(world, spend) / num_problems
    runs = {
        "uniform_stop": _Ran(spend, target / num_problems, 1.0),
        "knapsack": _Ran(spend, best, math.nan),
    }
    for name in methods:
        if name == "uniform_stop":
            continue
        budget = tokens if name == "uniform" else spend  # it spends its share whole
        curve = play(METHODS[name](world), budget, world)
        ratio = curve.spent_for(target) / spend
        runs[name] = _Ran(curve.spent[-1], curve.solved[-1] / num_problems, ratio)
    return runs


def _point(
    method: str,
    share: int,
    rows: Sequence[_Ran],
    base: Sequence[_Ran],
) -> Point:
    ours, theirs = [row.solved for row in rows], [row.solved for row in base]
    gain = paired_bootstrap(ours, theirs, seed=0)
    return Point(
        method=method,
        share=share,
        tokens=fmean(row.tokens for row in rows),
        solved=fmean(ours),
        gain=100 * gain.mean,
        low=100 * gain.low,
        high=100 * gain.high,
        ratio=fmean(row.ratio for row in rows),
    )


def draw(points: Sequence[Point], path: Path) -> None:
    """The curves, as a PNG."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a figure needs matplotlib, which is not installed; {install_hint('eval')}",
            name=error.name,
        ) from error
    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    base = {p.share: p for p in points if p.method == "uniform_stop"}
    for method in dict.fromkeys(point.method for point in points):
        line = [point for point in points if point.method == method and point.share]
        x = [point.tokens for point in line]
        y = [100 * point.solved for point in line]
        low = [100 * base[p.share].solved + p.low for p in line]
        high = [100 * base[p.share].solved + p.high for p in line]
        style = ":" if method == "knapsack" else "-"
        axes.plot(x, y, style, marker="o", markersize=3, label=method)
        if method not in ("uniform_stop", "uniform"):
            axes.fill_between(x, low, high, alpha=0.15)
    axes.set(xlabel="tokens spent, in the mean", ylabel="problems solved, %", xscale="log")
    axes.set_title("200 simulated problems, p from Beta(0.3, 0.9); bands: 95 % of the difference")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints, and writes what it is asked to."""
    parser = argparse.ArgumentParser(description="What allocators gain on simulated problems.")
    parser.add_argument("--seeds", type=int, default=200, help="worlds of 200 problems")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--png", type=Path, help="draw the curves into this file")
    options = parser.parse_args(arguments)
    points = measure(range(options.seeds))
    for point in points:
        budget = f"{point.share:3} units" if point.share else "    mean "
        sys.stdout.write(
            f"{budget}  {point.method:28} {point.tokens:9.0f} tokens "
            f"{100 * point.solved:5.1f} % solved  {point.gain:+6.2f} points "
            f"[{point.low:+.2f}, {point.high:+.2f}]  {point.ratio:.3f} of the spend\n"
        )
    if options.png is not None:
        draw(points, options.png)
    if options.json is not None:
        command = ["python", "-m", "ttc.benchmarks.allocation", "--seeds", str(options.seeds)]
        rows = [_row(point, options.seeds) for point in points]
        write_result(options.json, command=command, rows=rows, seed=0)


def _row(point: Point, seeds: int) -> dict[str, str | int | float | None]:
    return {
        "name": f"{point.method}, {f'{point.share} units' if point.share else 'all budgets'}",
        "seeds": seeds,
        "tokens": round(point.tokens),
        "solved_percent": round(100 * point.solved, 2),
        "gain_points": round(point.gain, 3),
        "gain_low": round(point.low, 3),
        "gain_high": round(point.high, 3),
        "spend_ratio": round(point.ratio, 4) if math.isfinite(point.ratio) else None,
    }


if __name__ == "__main__":
    main()
