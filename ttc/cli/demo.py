"""`ttc demo`: greedy, a vote, and the bound of a perfect choice, on the same small problems."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import MofNCompleteColumn

from ttc.cli.budgets import parse_budget
from ttc.cli.engines import (
    DEFAULT_MODEL,
    MODEL_HELP,
    AcceptanceOption,
    ArithmeticOption,
    SpeculateOption,
    engine_of,
)
from ttc.cli.result_files import JsonFile, check_target, write_result
from ttc.cli.terminal import Fault, bars, counted, say, show, table
from ttc.registry import room

__all__ = ["demo"]

_HEADINGS = ("strategy", "accuracy", "95 % interval", "tokens", "tokens/problem", "")


def demo(  # noqa: PLR0913 - every option of the command
    problems: Annotated[int, typer.Option(min=1, help="How many questions.")] = 24,
    samples: Annotated[int, typer.Option(min=1, help="Samples of each question.")] = 16,
    budget: Annotated[
        str, typer.Option(help="What each question may spend.", metavar="LIMITS")
    ] = "tokens=1000",
    seed: Annotated[int, typer.Option(help="Seeds questions and samples.")] = 0,
    model: Annotated[str, typer.Option(help=MODEL_HELP)] = DEFAULT_MODEL,
    arithmetic: ArithmeticOption = None,
    speculate: SpeculateOption = None,
    acceptance: AcceptanceOption = None,
    json: JsonFile = None,
) -> None:
    """Measure what a vote gains over one greedy answer."""
    limits = parse_budget(budget)
    check_target(json)
    _check_task(problems, seed)
    with (
        engine_of(model, arithmetic, speculate, acceptance) as engine,
        bars(MofNCompleteColumn()) as update,
    ):
        started = time.monotonic()
        rows: Sequence[Any] = room("benchmarks.demo").run_demo(
            engine,
            num_problems=problems,
            n=samples,
            budget=limits,
            seed=seed,
            progress=lambda event: update(event.row, event.done, event.total),
        )
        seconds = time.monotonic() - started
    _show(rows)
    machine = room("benchmarks.results").machine()
    device = f"{machine['cpu']}, {machine['cores']} cores"
    most = max(row.most_tokens for row in rows)
    say(f"\nEach problem may spend {budget}; the most that one took: {counted(most, 'token')}.")
    say(f"{model} on {device}, {counted(problems, 'problem')}, seed {seed}, {seconds:.0f} s")
    if json is not None:
        _write(
            json,
            rows,
            {"problems": problems, "samples": samples, "budget": budget, "model": model},
            seed,
        )


def _check_task(problems: int, seed: int) -> None:
    """Finds out before the model is loaded whether the questions can be had."""
    try:
        room("benchmarks.tasks").chain_sum(problems, seed)
    except ModuleNotFoundError as error:
        if (error.name or "ttc").split(".")[0] == "ttc":
            raise
        raise Fault(str(error)) from error
    except ValueError as error:
        raise Fault(f"--problems: {error}") from error


def _show(rows: Sequence[Any]) -> None:
    cells = [_cells(row) for row in rows if not row.oracle]
    bounds = [_cells(row) for row in rows if row.oracle]
    if bounds:
        cells += [("",) * len(_HEADINGS), *bounds]
    show(table(_HEADINGS, cells, right=",".join(_HEADINGS[1:5])))
    if bounds:
        say("\nThe upper bound is no result: it chooses by the right answers.")


def _cells(row: Any) -> tuple[str, ...]:
    low, high = row.interval
    return (
        row.name,
        f"{row.accuracy:.1%}",
        f"{low:.1%} to {high:.1%}",
        f"{row.tokens:,}",
        f"{row.tokens / row.num_problems:,.0f}",
        "upper bound" if row.oracle else "",
    )


def _write(path: Path, rows: Sequence[Any], options: dict[str, Any], seed: int) -> None:
    content = [
        {
            "name": row.name,
            "oracle": row.oracle,
            "num_correct": row.num_correct,
            "num_problems": row.num_problems,
            "accuracy": row.accuracy,
            "ci95_low": row.interval.low,
            "ci95_high": row.interval.high,
            "tokens": row.tokens,
            "most_tokens": row.most_tokens,
        }
        for row in rows
    ]
    command = ["ttc", "demo", f"--seed={seed}"]
    command += [f"--{name}={value}" for name, value in options.items()]
    write_result(path, content, command, seed)
