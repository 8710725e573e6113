"""`ttc pool`: what is in a pool, and what makes one pool of others."""

from __future__ import annotations

import json as jsons
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from ttc.cli.outcomes import SCHEMA_VERSION
from ttc.cli.terminal import Fault, counted, say, show, table
from ttc.pools import Pool, append, merge, read, score, write
from ttc.pools.imports import FORMATS, import_pool
from ttc.pools.parquet import write_parquet
from ttc.registry import room
from ttc.strict_json import pretty
from ttc.types import Sampling

__all__ = ["pool"]

_Pool = Annotated[Path, typer.Argument(help="A pool.", show_default=False)]
_Output = Annotated[Path, typer.Option("--output", "-o", help="Where to.", show_default=False)]

pool = typer.Typer(help="Look at pools of completions, and make pools of others.")


@pool.callback()
def _pool() -> None:
    pass  # so that `ttc pool` alone asks for a command


@pool.command("show")
def show_(
    path: _Pool,
    task: Annotated[
        str | None, typer.Option(help="Grade by its references.", show_default="none")
    ] = None,
    data: Annotated[list[Path] | None, typer.Option(help="A folder of data sets.")] = None,
    seed: Annotated[int, typer.Option(help="That of a task which is generated.")] = 0,
    k: Annotated[str, typer.Option(help="How many completions at once.")] = "1,4,8,16",
    by: Annotated[
        str | None, typer.Option(help="The score of best-of-k.", show_default="none")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what a pool holds; with a task, what its completions come to."""
    found = read(path)
    facts = _facts(found)
    asking: Any = room("benchmarks.data").Asking(seed=seed, folders=tuple(data or ()))
    rows = [] if task is None else _estimates(found, task, asking, _numbers(k), by)
    if json:
        said = {**facts, "estimates": [asdict(row) for row in rows]}
        say(pretty({"schema_version": SCHEMA_VERSION, **said}))
        return
    shown = [(name.replace("_", " "), _shown(value)) for name, value in facts.items()]
    show(table(("", ""), shown))
    if rows:
        say("")
        cells = [(row.name, f"{row.value:.4f}", f"{row.num_problems:,}") for row in rows]
        show(table(("estimate", "mean", "problems"), cells, right="mean,problems"))
        wanted = [f"{name}@{number}" for number in _numbers(k) for name in ("pass", "maj")]
        left_out = [name for name in wanted if name not in {row.name for row in rows}]
        if left_out:
            told = ", ".join(left_out)
            say(f"too few completions for {told}; a vote, maj@k, takes twice k of every problem")


@pool.command("append")
def append_(first: _Pool, second: _Pool, output: _Output) -> None:
    """Count the completions of a second pool on behind those of a first one."""
    _put(output, append(read(first), read(second)))


@pool.command("merge")
def merge_(first: _Pool, second: _Pool, output: _Output) -> None:
    """Make one pool of two; completions that contradict each other are refused."""
    _put(output, merge(read(first), read(second)))


@pool.command("score")
def score_(
    path: _Pool,
    name: Annotated[str, typer.Argument(help="The new column.", show_default=False)],
    scores: Annotated[
        Path,
        typer.Argument(
            help='Lines of {"problem": ..., "index": ..., "score": ...}.', show_default=False
        ),
    ],
) -> None:
    """Add a column of scores to a pool, once."""
    _put(path, score(read(path), name, _scores(scores)))


@pool.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A file of another tool.", show_default=False)],
    output: _Output,
    format: Annotated[
        str | None, typer.Option(metavar="|".join(FORMATS), show_default="found out")
    ] = None,
    requests: Annotated[
        Path | None, typer.Option(help="What the file answers.", show_default="in the file")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="How it was drawn.", show_default="unknown")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="How it was cut.", show_default="unknown")
    ] = None,
    counting: Annotated[
        str | None,
        typer.Option(
            help="Count what the file does not: `bytes` are at least as many as tokens.",
            metavar="bytes",
            show_default="leave it unknown",
        ),
    ] = None,
) -> None:
    """Make a pool of what lm-eval, vLLM and others have written."""
    if counting not in (None, "bytes"):
        raise Fault(f"--counting: {counting!r} is unknown; write bytes, or leave it out")
    made = import_pool(
        source,
        format,
        requests=requests,
        sampling=None if temperature is None else Sampling(temperature=temperature),
        max_tokens=max_tokens,
        counting=None if counting is None else lambda text: len(text.encode()),
    )
    _put(output, made)


@pool.command("export")
def export(path: _Pool, output: _Output) -> None:
    """Write a pool as a table of Parquet."""
    found = read(path)
    write_parquet(output, found)
    say(f"{output} holds {counted(len(found), 'completion')}")


def _put(path: Path, made: Pool) -> None:
    write(path, made)
    say(f"{path} holds {counted(len(made), 'completion')}")


def _facts(found: Pool) -> dict[str, Any]:
    completions = list(found)
    lengths = [length for c in completions if (length := c.length) is not None]
    return {
        "problems": len(found.problems),
        "completions": len(completions),
        "failed": found.num_failed,
        "cut_by_length": sum(c.finish_reason == "length" for c in completions),
        "mean_tokens": fmean(lengths) if lengths else None,
        "scores": list(found.columns),
        "models": sorted({c.model for c in completions if c.model is not None}),
    }


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if value is None:
        return "unknown"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _estimates(found: Pool, task: str, asking: Any, ks: list[int], by: str | None) -> list[Any]:
    asked = room("benchmarks.data").task_named(task, asking)
    if by is not None and by not in found.columns:
        raise Fault(f"--by: no score is called {by!r}; there is {_shown(list(found.columns))}")
    rows: list[Any] = room("benchmarks.pools").estimates(found, asked, ks, score=by)
    return rows


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise Fault(f"--k: write whole numbers above 0, as 1,4,8, not {text!r}")
    return list(dict.fromkeys(int(part) for part in parts))


def _scores(path: Path) -> dict[tuple[str, int], float | None]:
    found: dict[tuple[str, int], float | None] = {}
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise Fault(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = jsons.loads(line)
                found[str(row["problem"]), int(row["index"])] = row["score"]
            except (ValueError, KeyError, TypeError) as error:
                raise Fault(f"{path}: line {number} is no score: {error!r}") from None
    return found
