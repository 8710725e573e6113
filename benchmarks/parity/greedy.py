"""The greedy answers that others' harness and other arithmetic are held against."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ttc.benchmarks.data import Asking
from ttc.benchmarks.harness.results import Result, read_results
from ttc.benchmarks.harness.run import Evaluation, Load, Options
from ttc.benchmarks.harness.setup import Asked, set_up
from ttc.benchmarks.results import Value, write_result
from ttc.errors import RecordError
from ttc.types import Budget

__all__ = ["asked_by", "greedy_results", "parser_of", "text_of", "told"]


def parser_of(description: str) -> argparse.ArgumentParser:
    """The options of a command that answers greedily."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("task", help="as ttc eval names it; its answers are numbers")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, action="append", default=[], help="data sets")
    parser.add_argument("--limit", type=int, help="problems")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser


def asked_by(options: argparse.Namespace) -> Asked:
    """What the options ask for: one greedy answer of each problem."""
    return Asked(
        tasks=(options.task,),
        strategies=(f"greedy: greedy(max_tokens={options.max_tokens})",),
        budgets=(Budget(),),
        models=(options.model,),
        comparisons=(),
        asking=Asking(limit=options.limit, folders=tuple(options.data)),
    )


def greedy_results(
    asked: Asked, folder: Path, load: Load, concurrency: int = 64
) -> dict[str, Result]:
    """The greedy answer of each problem, by its id, from a folder that any kill leaves whole.

    Raises:
        RecordError: a problem failed.
    """
    made = set_up(asked)
    options = Options(load=load, concurrency=concurrency)
    Evaluation(made.config, made.tasks, folder, options=options).run()
    found = {result.problem: result for result in read_results(folder, texts=True)}
    bad = next((r for r in found.values() if r.error is not None), None)
    if bad is not None:
        raise RecordError(f"{bad.problem} failed: {bad.error}; the same command runs it again")
    return {p.id: found[p.id] for task in made.tasks.values() for p in task.problems}


def text_of(result: Result) -> str:
    """What was written, whether or not an answer was found in it."""
    return next((c.text for c in result.candidates if c.text is not None), result.text or "")


def told(
    rows: Sequence[dict[str, Value]],
    options: argparse.Namespace,
    module: str,
    arguments: Sequence[str] | None,
) -> None:
    """Prints the rows, and writes them where it is asked to."""
    named = [{"model": options.model, "task": options.task, **row} for row in rows]
    for row in named:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
    if options.json is not None:
        command = ["python", "-m", f"ttc.benchmarks.parity.{module}", *(arguments or sys.argv[1:])]
        write_result(options.json, command=command, rows=named, seed=0)
