"""`ttc shards`: one run over many questions, divided among processes and hosts."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from ttc.cli.budgets import parse_budget
from ttc.cli.engines import MODEL_HELP, default_model
from ttc.cli.many import read_problems
from ttc.cli.outcomes import SCHEMA_VERSION
from ttc.cli.strategies import STRATEGY_HELP, strategy_text
from ttc.cli.terminal import Fault, counted, note, say, show, table
from ttc.safe_text import one_line
from ttc.shards import LOCAL, Merged, Plan, merge, run_shard, start
from ttc.text_form import parse
from ttc.types import Budget

__all__ = ["shards"]

_WIDTH = 40
_Folder = Annotated[Path, typer.Argument(help="The folder of the plan.", show_default=False)]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

shards = typer.Typer(help="Divide a run over many questions among processes and hosts.")


@shards.command("plan")
def plan_(  # noqa: PLR0913 - every option of the command
    folder: _Folder,
    problems: Annotated[
        Path, typer.Option(help="A file of questions, one on each line, or JSON lines.")
    ],
    count: Annotated[int, typer.Option(help="How many shards.", min=1)],
    strategy: Annotated[str, typer.Option(help=STRATEGY_HELP, metavar="SPEC")],
    model: Annotated[str | None, typer.Option(help=MODEL_HELP, show_default=False)] = None,
    budget: Annotated[
        str, typer.Option(help="Limits of all shards together.", metavar="LIMITS")
    ] = "",
    per_problem: Annotated[
        str, typer.Option(help="Limits of one question.", metavar="LIMITS")
    ] = "",
    allocator: Annotated[
        str | None,
        typer.Option(help="What gives a shard's part away.", metavar="NAME", show_default=False),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats a run.", show_default="random")] = None,
    concurrency: Annotated[int, typer.Option(help="Questions in flight in a shard.")] = 64,
) -> None:
    """Write what is to be run, and how it is divided."""
    text = strategy_text(strategy)
    parse(text).validate()
    try:
        made = Plan(
            problems=tuple(read_problems(problems, "auto")),
            strategy=text,
            models={"policy": model or default_model()},
            count=count,
            budget=parse_budget(budget) if budget else Budget(),
            per_problem=parse_budget(per_problem) if per_problem else Budget(),
            allocator=allocator,
            concurrency=concurrency,
            seed=secrets.randbits(63) if seed is None else seed,
        )
    except ValueError as error:
        raise Fault(str(error)) from None
    made.write(folder)
    say(f"{counted(len(made.problems), 'problem')} in {counted(count, 'shard')}: {folder}")


@shards.command("run")
def run(
    folder: _Folder,
    shard: Annotated[int, typer.Option(help="Which, from 0 on.")],
    journals: Annotated[
        Path | None, typer.Option(help="Where its journals lie, if not in the folder.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Begin anew though its journals are lost.")
    ] = False,
) -> None:
    """Run one shard, or go on with it; on any host that sees the folder."""
    try:
        say(str(run_shard(folder, shard, journals=journals, again=again)))
    except ValueError as error:
        raise Fault(str(error)) from None


@shards.command("start")
def start_(
    folder: _Folder,
    workers: Annotated[int, typer.Option(help="Processes on this machine.", min=0)] = 0,
    via: Annotated[
        list[str] | None,
        typer.Option(help="How a worker elsewhere is begun, as 'ssh host ttc'.", metavar="COMMAND"),
    ] = None,
    attempts: Annotated[int, typer.Option(help="How often a shard is begun.", min=1)] = 3,
    json: _Json = False,
) -> None:
    """Run all shards that have not ended, and a lost one again."""
    commands = [LOCAL] * workers + [tuple(shlex.split(command)) for command in via or ()]
    if not commands:
        raise Fault("name workers: --workers 2, or --via 'ssh host ttc' for each host")
    _show(asyncio.run(start(folder, commands, attempts=attempts, tell=note)), is_json=json)


@shards.command("merge")
def merge_(folder: _Folder, json: _Json = False) -> None:
    """Tell what the shards came to."""
    _show(merge(folder), is_json=json)


def _show(merged: Merged, *, is_json: bool) -> None:
    if is_json:
        told = {"schema_version": SCHEMA_VERSION, **asdict(merged)}
        say(dumps(told, indent=2))
    else:
        rows = [
            (
                row["id"],
                "(none)" if row["answer"] is None else one_line(row["answer"], _WIDTH),
                f"{row['usage']['tokens']:,}",
                row["stopped_by"],
            )
            for row in merged.rows
        ]
        show(table(("problem", "answer", "tokens", "stopped by"), rows, right="tokens"))
        answered = sum(row["answer"] is not None for row in merged.rows)
        tokens = counted(merged.usage.tokens, "token")
        say(f"\n{answered} of {counted(len(rows), 'problem')} answered, {tokens}")
        if merged.tokens_lost:
            say(f"at most {counted(merged.tokens_lost, 'token')} more were lost")
    if merged.missing:
        raise Fault(
            f"shards that have not ended: {', '.join(map(str, merged.missing))}; run them by "
            "`ttc shards start`"
        )
