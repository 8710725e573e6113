"""What arithmetic decides: greedy answers in int8 and in the file's own formats against fp32.

    python -m ttc.benchmarks.parity.numerics "gsm8k[300:400]" --data DATA --model MODEL
        --work FOLDER [--limit N] [--json PATH]

The same greedy strategy runs on the same problems with each arithmetic; a kill loses nothing. Each
is compared with the first, fp32 by default: accuracy paired by problem with its interval, p values
adjusted by Holm's method for how many there are, and how many texts are the same to the letter.
fp32 is several times slower than the others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import get_args

from ttc.benchmarks.data import Asking
from ttc.benchmarks.harness.results import Result, read_results
from ttc.benchmarks.harness.run import Evaluation, Load, Options
from ttc.benchmarks.harness.setup import Asked, set_up
from ttc.benchmarks.harness.verdicts import said
from ttc.benchmarks.metrics import bootstrap, detectable_difference, holm, paired_bootstrap
from ttc.benchmarks.results import Value, write_result
from ttc.config import Arithmetic
from ttc.errors import RecordError, TTCError
from ttc.ports import Engine
from ttc.registry import load_engine
from ttc.types import Budget

__all__ = ["ARITHMETICS", "compared", "greedy_results", "loader", "main", "text_of"]

ARITHMETICS: tuple[Arithmetic, ...] = ("fp32", "int8", "file")
"""The first is what others are compared with."""


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


@contextmanager
def loader(arithmetic: Arithmetic, model: str) -> Iterator[Engine]:
    """The engine of a local model with an arithmetic."""
    engine = load_engine(model, arithmetic=arithmetic)
    try:
        yield engine
    finally:
        close = getattr(engine, "close", None)
        if callable(close):
            close()


def compared(found: Mapping[str, Mapping[str, Result]], seed: int) -> list[dict[str, Value]]:
    """A row for each arithmetic, and one for each but the first against the first.

    Args:
        found: results by problem, by arithmetic.
        seed: of the bootstrap.
    """
    (first, base), *others = found.items()
    problems = list(base)
    rows: list[dict[str, Value]] = []
    for name, results in found.items():
        tokens = [result.usage.get("tokens") or 0 for result in results.values()]
        values = [results[problem].value for problem in problems]
        low, high = bootstrap(values, seed=seed)
        rows.append(
            {
                "name": name,
                "problems": len(problems),
                "accuracy_percent": round(100 * fmean(values), 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
                "mean_tokens": round(fmean(tokens), 1),
            }
        )
    theirs = [base[problem].value for problem in problems]
    mine = {name: [results[p].value for p in problems] for name, results in others}
    gains = {name: paired_bootstrap(values, theirs, seed=seed) for name, values in mine.items()}
    adjusted = holm([gain.p for gain in gains.values()])
    for (name, gain), p in zip(gains.items(), adjusted, strict=True):
        results = found[name]
        num = len(problems)
        rows.append(
            {
                "name": f"{name} against {first}",
                "problems": num,
                "difference_points": round(100 * gain.mean, 2),
                "low": round(100 * gain.low, 2),
                "high": round(100 * gain.high, 2),
                "adjusted_p": round(p, 4),
                "detectable_points": round(100 * detectable_difference(mine[name], theirs), 1)
                if num > 1
                else None,
                "verdict": said(gain, p, num),
                "same_texts": sum(text_of(results[p]) == text_of(base[p]) for p in problems),
                "same_answers": sum(results[p].answer == base[p].answer for p in problems),
            }
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs, tells, and writes the figures where it is asked to."""
    parser = argparse.ArgumentParser(description="Greedy answers by arithmetic.")
    parser.add_argument("task", help="as ttc eval names it")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, action="append", default=[], help="data sets")
    parser.add_argument("--limit", type=int, help="problems")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument(
        "--arithmetics", default=",".join(ARITHMETICS), help="the first is the base"
    )
    parser.add_argument("--work", type=Path, required=True, help="where results are kept")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    names = options.arithmetics.split(",")
    if len(names) < 2 or not set(names) <= set(get_args(Arithmetic)):
        raise SystemExit(f"--arithmetics: name two or more of {', '.join(get_args(Arithmetic))}")
    asked = Asked(
        tasks=(options.task,),
        strategies=(f"greedy: greedy(max_tokens={options.max_tokens})",),
        budgets=(Budget(),),
        models=(options.model,),
        comparisons=(),
        asking=Asking(limit=options.limit, folders=tuple(options.data)),
    )
    try:
        found = {
            name: greedy_results(asked, options.work / name, partial(loader, name))
            for name in names
        }
    except TTCError as error:
        raise SystemExit(str(error)) from None
    rows = compared(found, 0)
    for row in rows:
        sys.stdout.write(json.dumps({"model": options.model, **row}) + "\n")
    if options.json is not None:
        command = ["python", "-m", "ttc.benchmarks.parity.numerics", *(arguments or sys.argv[1:])]
        told = [{"model": options.model, "task": options.task, **row} for row in rows]
        write_result(options.json, command=command, rows=told, seed=0)


if __name__ == "__main__":
    main()
