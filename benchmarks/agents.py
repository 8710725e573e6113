"""Agents: whether tools pay, against the same tokens spent without them.

    python -m ttc.benchmarks.agents --model MODEL --data FOLDER --json FILE

On GSM8K a calculator and Python, against samples of a plain chain of thought and a vote. On
HumanEval repair by the public tests, against the best of many samples by the same tests; the
examples in a problem's docstring are its public tests, and problems without one are left out. All
strategies of a task have the same budget of tokens for each problem, and every token counts, what
tools write included. The first strategy is what the others are measured against; intervals are as
in `smoke`. A cell that the file holds is not run again, so a run that was ended goes on.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ttc.benchmarks.hidden_tests import human_eval
from ttc.benchmarks.results import Value, write_result
from ttc.benchmarks.smoke import Cell, chat, run_cell, tasks_in
from ttc.benchmarks.tasks import Item, Task
from ttc.registry import load_engine

__all__ = ["STRATEGIES", "publicly_tested", "tasks"]

_AGENT = "n=16, ahead=1, max_turns=4, max_calls=6, max_tokens=256, temperature=0.8"
STRATEGIES: dict[str, tuple[str, ...]] = {
    "gsm8k": (
        "sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> vote()",
        f"agent(tools=(calculator(), ), {_AGENT}) >> vote()",
        f"agent(tools=(python(), ), {_AGENT}) >> vote()",
        f"agent(tools=(calculator(), ), calls='react', constrain=True, {_AGENT}) >> vote()",
    ),
    "human_eval_public": (
        "sample(n='budget', temperature=0.8, max_tokens=384, ahead=8) >> unit_tests() >> best()",
        "sample(n=1, temperature=0.2, max_tokens=384) >> debug(rounds=8, max_tokens=384) >> best()",
        "sample(n=4, temperature=0.8, max_tokens=384) >> debug(rounds=2, max_tokens=384) >> best()",
    ),
}
"""What is compared, by task."""


def tasks(folder: Path, num_problems: int) -> dict[str, Callable[[], Task]]:
    """The tasks, by name."""
    return {
        "gsm8k": tasks_in(folder, num_problems)["gsm8k"],
        "human_eval_public": lambda: publicly_tested(num_problems),
    }


def publicly_tested(num_problems: int) -> Task:
    """The first problems of HumanEval whose docstring holds an example that can be checked."""
    task = human_eval()
    items: list[Item] = []
    for item in task.items:
        if tests := tuple(_examples(item.problem.prompt or "")):
            problem = replace(item.problem, tests=tests)
            items.append(chat(Item(problem, item.reference)))
        if len(items) == num_problems:
            break
    return replace(task, name="human_eval_public", items=tuple(items))


def _examples(prompt: str) -> Iterator[str]:
    """The examples of a docstring, as asserts; what prints no literal is none."""
    try:
        examples = doctest.DocTestParser().get_examples(prompt)
    except ValueError:
        return
    for example in examples:
        source, want = example.source.strip(), example.want.strip()
        try:
            ast.parse(source, mode="eval")
            ast.literal_eval(want)
        except (SyntaxError, ValueError):
            continue
        yield f"assert {source} == {want}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the cells that the file lacks, one after another, and prints every one."""
    options = _options(arguments)
    engine = load_engine(options.model)
    done = _done(options.json, options.problems)
    rows: list[dict[str, Value]] = []
    for name in options.tasks:
        task = tasks(options.data, options.problems)[name]()
        for budget in options.budgets:
            baseline: Cell | None = None
            for strategy in STRATEGIES[name]:
                found = done.get((task.name, strategy, budget))
                cell = found or run_cell(task, strategy, budget, engine, options.seed)
                baseline = baseline or cell
                rows.append({"model": engine.name, **cell.row(baseline, options.seed)})
                _print(rows[-1])
                command = ["python", "-m", "ttc.benchmarks.agents", *(arguments or sys.argv[1:])]
                write_result(options.json, command=command, rows=rows, seed=options.seed)


def _done(path: Path, num_problems: int) -> dict[tuple[str, str, int], Cell]:
    """The cells that a file holds of so many problems."""
    done: dict[tuple[str, str, int], Cell] = {}
    if path.is_file():
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            cell = Cell.of_row(row)
            if len(cell.grades) == num_problems:
                done[cell.task, cell.strategy, cell.budget] = cell
    return done


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ttc.benchmarks.agents", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True, help="holds gsm8k_test.jsonl")
    parser.add_argument("--json", type=Path, required=True, help="a run goes on in it")
    parser.add_argument("--tasks", nargs="+", choices=sorted(STRATEGIES), default=[*STRATEGIES])
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--budgets", type=int, nargs="+", default=[2_000])
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def _print(row: Mapping[str, Value]) -> None:
    sys.stdout.write(
        f"{row['task']} {row['budget']:>5} {row['accuracy']:6.1%} "
        f"[{row['low']:.1%}, {row['high']:.1%}]  {row['gain']:+.1%} "
        f"[{row['gain_low']:+.1%}, {row['gain_high']:+.1%}]  "
        f"{row['mean_tokens']:.0f} tokens  {row['strategy']}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
