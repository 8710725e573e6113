"""The first chart: the strategy that was chosen, against one sample and against self-consistency.

    python -m ttc.benchmarks.first_chart "gsm8k[300:700]" --data DATA --pool POOL --plan PLAN -o OUT

`ttc plan` chose the strategy on other problems, and wrote it into the folder PLAN; a problem that
it was chosen on is refused here. All three draw from one pool, in the same orders, so they are
compared on the same problems and the same samples. Self-consistency is run with 1, 2, 4 ...
samples, and with further numbers until two that follow each other have the mean tokens of the
chosen strategy between them. Self-consistency at these tokens is a coin that chooses between the
two, never one between numbers that lie apart, which would run below the curve; beyond the last
there is none. Two comparisons get a verdict, both named here before anything is run: against one
sample, and against self-consistency at equal tokens.

Writes OUT.json, OUT.svg and OUT.png, for whatever number of problems the pool holds by then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ttc.benchmarks.data import Asking
from ttc.benchmarks.harness.config import Arm, Config, budget_name
from ttc.benchmarks.harness.measures import CellMeasures, measures
from ttc.benchmarks.harness.results import read_results
from ttc.benchmarks.harness.run import Evaluation
from ttc.benchmarks.harness.setup import Asked, SetUp, set_up
from ttc.benchmarks.harness.verdicts import Said, said
from ttc.benchmarks.metrics import Difference, detectable_difference, difference_of_grades, holm
from ttc.benchmarks.report.figures import draw_curves
from ttc.benchmarks.report.tables import percent, points
from ttc.benchmarks.results import Value, write_result
from ttc.errors import RecordError, TTCError
from ttc.pools import Completion
from ttc.strategies import Sample, Vote
from ttc.text_form import write
from ttc.types import PENALTIES, Budget, Sampling

__all__ = ["Against", "Chosen", "Compared", "chosen_by", "compared", "main"]

ONE, SELF_CONSISTENCY = "one sample", "self-consistency"


class Chosen(NamedTuple):
    """What a plan recommends, and on what it was chosen."""

    arm: str
    strategy: str
    budget: Budget
    task: str
    problems: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Against:
    """How the chosen strategy compares with another one."""

    other: str
    tokens: float
    """The mean of a problem at which the other one is taken."""
    accuracy: float
    """Of the other one there."""
    difference: Difference
    adjusted_p: float
    detectable: float
    said: Said


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All that the chart shows."""

    chosen: CellMeasures
    baseline: tuple[CellMeasures, ...]
    """Self-consistency, the cheapest first; the first is one sample."""
    against: tuple[Against, ...]
    model: str


def chosen_by(folder: Path) -> Chosen:
    """What the plan in a folder recommends.

    Raises:
        RecordError: it holds no plan.
    """
    path = folder / "plan.json"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))["recommended"]
        arm, budget = best["arm"], best["budget"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is no plan: {error}; make one by ttc plan -o") from error
    config = Config.read(folder / "chosen-on")
    return Chosen(
        arm=arm,
        strategy=config.strategy(arm),
        budget=config.budget(budget),
        task=config.tasks[0].name,
        problems=frozenset(r.problem for r in read_results(folder / "chosen-on")),
    )


def compared(chosen: Chosen, asked: Asked, folder: Path) -> Compared:
    """Runs all three on the pool, and compares them.

    Args:
        chosen: the strategy.
        asked: the task, the pool, the repeats and the seed; its strategies are set here.
        folder: where results are kept, so that what was done is not done again.

    Raises:
        RecordError: the pool holds none of the problems, or the strategy was chosen on some.
    """
    first = set_up(replace(asked, strategies=(f"chosen: {chosen.strategy}",)))
    _check_apart(chosen, first)
    (task,), pool = first.tasks.values(), first.pool
    assert pool is not None  # the command asks for one
    drawn = [completion for problem in task.problems for completion in pool.of(problem.id)]
    unlimited = {budget_name({}): dict[str, float]()}
    place = folder / first.config.digest

    def votes_of(numbers: Sequence[int]) -> dict[int, CellMeasures]:
        """Self-consistency with so many samples each."""
        arms = _self_consistency(drawn, numbers)
        made = replace(first, config=replace(first.config, arms=arms, budgets=unlimited))
        return dict(zip(numbers, _measured(made, place / f"votes-of-{numbers[0]}"), strict=True))

    (ours,) = _measured(first, place / "chosen")
    most = len(drawn) // len(task.items)
    line = votes_of([2**power for power in range(most.bit_length())])
    while (between := _between(line, _tokens(ours))) is not None:
        line |= votes_of([between])
    baseline = tuple(line[number] for number in sorted(line))
    return Compared(
        chosen=ours,
        baseline=baseline,
        against=_against(ours, baseline, asked.seed),
        model=next((c.model for c in drawn if c.model is not None), "a recorded model"),
    )


def _check_apart(chosen: Chosen, made: SetUp) -> None:
    (task,) = made.tasks.values()
    both = sorted(chosen.problems & {problem.id for problem in task.problems})
    if both and chosen.task.partition("[")[0] == task.name.partition("[")[0]:
        raise RecordError(
            f"{len(both)} of these problems, {both[0]} among them, were chosen on; take others"
        )


def _self_consistency(drawn: Sequence[Completion], numbers: Sequence[int]) -> tuple[Arm, ...]:
    """A vote of each of these numbers of samples, drawn as the pool was."""
    sampling = drawn[0].sampling or Sampling()
    options = {
        name: getattr(sampling, name)
        for name in ("temperature", "top_k", "top_p", "min_p", *PENALTIES)
    }
    longest = max(c.max_tokens or c.length or 1 for c in drawn)
    return tuple(
        Arm(name=f"n={n}", strategy=write(Sample(n=n, max_tokens=longest, **options) >> Vote()))
        for n in numbers
    )


def _between(line: Mapping[int, CellMeasures], spend: float) -> int | None:
    """A number of samples that comes to so many tokens, between two that do not follow each other.

    `None` where the two on either side of them do, and where nothing is on one side.
    """
    for few, many in pairwise(sorted(line)):
        less, more = _tokens(line[few]), _tokens(line[many])
        if less < spend < more and many - few > 1:
            guess = few + round((spend - less) / (more - less) * (many - few))
            return min(max(guess, few + 1), many - 1)
    return None


def _measured(made: SetUp, folder: Path) -> list[CellMeasures]:
    Evaluation(made.config, made.tasks, folder, pool=made.pool).run()
    found = measures(made.config, read_results(folder))
    faults = [cell for cell in found if cell.num_errors]
    if faults:
        bad = next(r.error for r in read_results(folder) if r.error is not None)
        raise RecordError(f"{faults[0].num_errors} runs of problems failed: {bad}")
    return found


def _tokens(cell: CellMeasures) -> float:
    return cell.spend("tokens") or 0.0


def _against(ours: CellMeasures, line: Sequence[CellMeasures], seed: int) -> tuple[Against, ...]:
    """Against one sample; and against the line at equal tokens, where it reaches so far."""
    spend = _tokens(ours)
    others = [(ONE, _tokens(line[0]), list(line[0].values))]
    if _tokens(line[0]) <= spend <= _tokens(line[-1]):
        others.append((SELF_CONSISTENCY, spend, _mixed(line, spend)))
    found = [difference_of_grades(ours.values, values, seed=seed) for _, _, values in others]
    adjusted = holm([difference.p for difference in found])
    num = len(ours.values)
    return tuple(
        Against(
            other=name,
            tokens=tokens,
            accuracy=sum(values) / num,
            difference=difference,
            adjusted_p=p,
            detectable=min(1.0, detectable_difference(ours.values, values)) if num > 1 else 1.0,
            said=said(difference, p, num),
        )
        for (name, tokens, values), difference, p in zip(others, found, adjusted, strict=True)
    )


def _mixed(line: Sequence[CellMeasures], spend: float) -> list[float]:
    """The value of each problem for a coin between the two beside a spend, which is their mean."""
    below = [c for c in line if _tokens(c) <= spend][-1]
    above = next((c for c in line if _tokens(c) >= spend), below)
    low, high = _tokens(below), _tokens(above)
    share = 0.0 if high == low else (spend - low) / (high - low)
    return [(1 - share) * a + share * b for a, b in zip(below.values, above.values, strict=True)]


def _rows(made: Compared, chosen: Chosen, pool: str) -> list[dict[str, Value]]:
    named = [(f"{SELF_CONSISTENCY}, {c.cell.arm}", c) for c in made.baseline]
    named.append((f"chosen: {chosen.arm}", made.chosen))
    rows: list[dict[str, Value]] = [
        {
            "name": name,
            "problems": len(cell.values),
            "tokens": round(_tokens(cell), 1),
            "accuracy_percent": round(100 * cell.accuracy, 2),
            "low": round(100 * cell.interval.low, 2),
            "high": round(100 * cell.interval.high, 2),
            "pool": pool,
        }
        for name, cell in named
    ]
    rows[-1] |= {
        "strategy": chosen.strategy,
        "budget": budget_name({k: v for k, v in vars(chosen.budget).items() if v is not None}),
        "chosen_on": chosen.task,
        "chosen_on_problems": len(chosen.problems),
    }
    return rows + [
        {
            "name": f"chosen against {one.other}",
            "problems": len(made.chosen.values),
            "tokens_of_the_other": round(one.tokens, 1),
            "accuracy_of_the_other_percent": round(100 * one.accuracy, 2),
            "difference_points": round(100 * one.difference.mean, 2),
            "low": round(100 * one.difference.low, 2),
            "high": round(100 * one.difference.high, 2),
            "adjusted_p": round(one.adjusted_p, 4),
            "detectable_points": round(100 * one.detectable, 1),
            "verdict": one.said,
        }
        for one in made.against
    ]


def _draw(path: Path, made: Compared, chosen: Chosen) -> list[Path]:
    task, num = made.chosen.cell.task, len(made.chosen.values)
    cells = [_called(cell, SELF_CONSISTENCY) for cell in made.baseline]
    cells += [_called(made.baseline[0], ONE), _called(made.chosen, f"chosen: {chosen.arm}")]
    chosen_on = f"{chosen.arm} was chosen on {len(chosen.problems)} others"
    title = f"{task}, {num} problems, {made.model}\n{chosen_on}"
    return draw_curves(path, cells, title=title)


def _called(cell: CellMeasures, name: str) -> CellMeasures:
    return replace(cell, cell=replace(cell.cell, arm=name))


def _tell(made: Compared) -> None:
    for cell in (*made.baseline, made.chosen):
        low, high = (100 * end for end in cell.interval)
        sys.stdout.write(
            f"{cell.cell.arm:8} {_tokens(cell):8,.0f} tokens  {percent(cell.accuracy):>7} "
            f"({low:.1f} to {high:.1f})\n"
        )
    for one in made.against:
        gain = one.difference
        sys.stdout.write(
            f"chosen against {one.other} at {one.tokens:,.0f} tokens: {points(gain.mean)} points "
            f"({points(gain.low)} to {points(gain.high)}), {one.said}\n"
        )
    if len(made.against) < 2:
        sys.stdout.write("the pool holds too few samples for self-consistency at equal tokens\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs, tells, and writes the chart with its figures."""
    parser = argparse.ArgumentParser(description="The chosen strategy against two baselines.")
    parser.add_argument("task", help="as ttc eval names it; of problems that chose nothing")
    parser.add_argument("--pool", type=Path, required=True, help="recorded completions of them")
    parser.add_argument("--plan", type=Path, required=True, help="the folder of ttc plan")
    parser.add_argument("--data", type=Path, action="append", default=[], help="data sets")
    parser.add_argument("--repeats", type=int, default=8, help="orders of the completions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="problems")
    parser.add_argument("--work", type=Path, help="where results are kept; beside the plan")
    parser.add_argument("-o", "--output", type=Path, required=True, help="without a suffix")
    options = parser.parse_args(arguments)
    try:
        chosen = chosen_by(options.plan)
        asked = Asked(
            tasks=(options.task,),
            strategies=(),
            budgets=(chosen.budget,),
            models=(),
            seed=options.seed,
            repeats=options.repeats,
            comparisons=(),
            asking=Asking(limit=options.limit, seed=options.seed, folders=tuple(options.data)),
            pool=options.pool,
        )
        made = compared(chosen, asked, options.work or options.plan / "chart")
    except TTCError as error:
        raise SystemExit(str(error)) from None
    _tell(made)
    command = ["python", "-m", "ttc.benchmarks.first_chart", *(arguments or sys.argv[1:])]
    rows = _rows(made, chosen, options.pool.name)
    write_result(options.output.with_suffix(".json"), command=command, rows=rows, seed=options.seed)
    _draw(options.output, made, chosen)


if __name__ == "__main__":
    main()
