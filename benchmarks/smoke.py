"""Smoke: strategies on a few problems of several tasks, at equal budgets, all work counted.

    python -m ttc.benchmarks.smoke --model MODEL --data FOLDER --json FILE

The table shows that strategies run and what they cost; so few problems prove no gain. Each row has
the accuracy with its 95 % Wilson interval, the difference from the first strategy on the same
problems with its bootstrap interval, and the smallest difference that so many problems could have
shown (5 % two-sided, power 80 %, from the spread that was seen). A cell that the file already
holds is not run again, so a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ttc.benchmarks.files import read_task
from ttc.benchmarks.game24 import game24
from ttc.benchmarks.hidden_tests import human_eval
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.metrics import detectable_difference, paired_bootstrap, wilson
from ttc.benchmarks.results import Value, write_result
from ttc.benchmarks.tasks import Item, Task
from ttc.ports import Engine
from ttc.registry import load_engine
from ttc.solve import solve_many
from ttc.types import Budget, Message

__all__ = ["STRATEGIES", "Cell", "chat", "run_cell", "tasks_in"]

STRATEGIES = (
    "greedy(max_tokens=512)",
    "sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> vote()",
    "sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> sequence_probability() "
    ">> vote(weighted=True)",
)
"""What is compared by default; the first one is what the others are measured against."""

_ASK = "Reason step by step, and put the final answer into \\boxed{}."
_ASK_CODE = "Complete this function. Answer with one block of Python that holds all of it.\n\n"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One strategy on one task at one budget."""

    task: str
    strategy: str
    budget: int
    """Tokens of a problem."""
    grades: tuple[float, ...]
    """By problem: 1 is right; unanswered is 0."""
    tokens: tuple[int, ...]
    """By problem."""

    def row(self, baseline: Cell, seed: int) -> dict[str, Value]:
        """The cell as it is stored and printed, against the first strategy's."""
        n, right = len(self.grades), int(sum(self.grades))
        low, high = wilson(right, n)
        gain = paired_bootstrap(self.grades, baseline.grades, seed=seed)
        return {
            "task": self.task,
            "strategy": self.strategy,
            "budget": self.budget,
            "num_problems": n,
            "num_correct": right,
            "accuracy": right / n,
            "low": low,
            "high": high,
            "gain": gain.mean,
            "gain_low": gain.low,
            "gain_high": gain.high,
            "detectable": detectable_difference(self.grades, baseline.grades),
            "mean_tokens": sum(self.tokens) / n,
            "most_tokens": max(self.tokens),
            "grades": "".join(str(int(grade)) for grade in self.grades),
            "tokens": " ".join(map(str, self.tokens)),
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Value]) -> Cell:
        """What `row` was made of."""
        return cls(
            task=str(row["task"]),
            strategy=str(row["strategy"]),
            budget=int(row["budget"] or 0),
            grades=tuple(map(float, str(row["grades"]))),
            tokens=tuple(map(int, str(row["tokens"]).split())),
        )


def tasks_in(folder: Path, num_problems: int) -> dict[str, Callable[[], Task]]:
    """The tasks, by name: files of `folder`, and HumanEval from its package."""

    def gsm8k() -> Task:
        task = read_task(folder / "gsm8k_test.jsonl")
        items = [_asked(item) for item in task.items[:num_problems]]
        return Task(name="gsm8k", items=tuple(items), grader=MathEqual())

    def code() -> Task:
        task = human_eval(num_problems)
        return replace(task, items=tuple(map(chat, task.items)))

    puzzles = lambda: game24(folder / "game24.csv", num_problems=num_problems)  # noqa: E731
    return {"game24": puzzles, "gsm8k": gsm8k, "human_eval": code}


def _asked(item: Item) -> Item:
    """A problem with the form of its answer asked for."""
    question = f"{item.problem.messages[0].content}\n{_ASK}"
    message = Message(role="user", content=question)
    return Item(replace(item.problem, messages=(message,)), item.reference)


def chat(item: Item) -> Item:
    """A program to go on with, as a question that a chat model answers with all of it."""
    message = Message(role="user", content=f"{_ASK_CODE}```python\n{item.problem.prompt}\n```")
    return Item(replace(item.problem, prompt=None, messages=(message,)), item.reference)


def run_cell(task: Task, strategy: str, budget: int, engine: Engine, seed: int) -> Cell:
    """Solves a task's problems and grades what came out."""
    outcomes = solve_many(
        task.problems,
        strategy,
        model=engine,
        per_problem=Budget(tokens=budget),
        seed=seed,
    )
    grades = [
        (task.grader(item.reference, outcome.candidate).value or 0.0)
        if outcome.candidate is not None
        else 0.0
        for item, outcome in zip(task.items, outcomes, strict=True)
    ]
    return Cell(
        task=task.name,
        strategy=strategy,
        budget=budget,
        grades=tuple(grades),
        tokens=tuple(outcome.usage.tokens for outcome in outcomes),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the cells that the file lacks, one after another, and prints every one."""
    options = _options(arguments)
    engine = load_engine(options.model)
    done: dict[tuple[str, str, int], Cell] = {}
    if options.json.is_file():
        for row in json.loads(options.json.read_text(encoding="utf-8"))["rows"]:
            cell = Cell.of_row(row)
            if len(cell.grades) == options.problems:
                done[cell.task, cell.strategy, cell.budget] = cell
    makers = tasks_in(options.data, options.problems)
    rows: list[dict[str, Value]] = []
    for name in options.tasks:
        task = makers[name]()
        for budget in options.budgets:
            baseline: Cell | None = None
            for strategy in options.strategy or STRATEGIES:
                found = done.get((task.name, strategy, budget))
                cell = found or run_cell(task, strategy, budget, engine, options.seed)
                baseline = baseline or cell
                rows.append(cell.row(baseline, options.seed))
                _print(rows[-1])
                command = ["python", "-m", "ttc.benchmarks.smoke", *(arguments or sys.argv[1:])]
                write_result(options.json, command=command, rows=rows, seed=options.seed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ttc.benchmarks.smoke", description=__doc__)
    names = sorted(tasks_in(Path(), 1))
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--data", type=Path, required=True, help="holds gsm8k_test.jsonl, game24.csv"
    )
    parser.add_argument("--json", type=Path, required=True, help="a run goes on in it")
    parser.add_argument("--tasks", nargs="+", choices=names, default=names)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--budgets", type=int, nargs="+", default=[1_000, 4_000])
    parser.add_argument("--strategy", action="append", help="a text form; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def _print(row: Mapping[str, Value]) -> None:
    sys.stdout.write(
        f"{row['task']} {row['budget']:>5} {row['accuracy']:6.1%} "
        f"[{row['low']:.1%}, {row['high']:.1%}]  {row['gain']:+.1%} "
        f"[{row['gain_low']:+.1%}, {row['gain_high']:+.1%}], detectable {row['detectable']:.1%}  "
        f"{row['mean_tokens']:.0f} tokens  {row['strategy']}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
