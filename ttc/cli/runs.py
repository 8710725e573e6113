"""`ttc runs`: the runs that are kept on disk."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ttc.cli.outcomes import SCHEMA_VERSION
from ttc.cli.terminal import Fault, counted, say, show, table
from ttc.journal.runs import RunInfo, info, list_runs, path_of, remove
from ttc.safe_text import one_line
from ttc.strict_json import pretty

__all__ = ["question_of", "runs"]

_WIDTH = 40
_HEADINGS = ("run", "state", "question", "answer", "tokens", "size")
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_Run = Annotated[str, typer.Argument(help="A run's name, or a path.", show_default=False)]

runs = typer.Typer(help="List, show and remove the runs that are kept on disk.")


@runs.callback(invoke_without_command=True)
def _runs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_()


@runs.command("list")
def list_(json: _Json = False) -> None:
    """List all runs, the newest first."""
    found = list_runs()
    if json:
        made = {"schema_version": SCHEMA_VERSION, "runs": [_values(run) for run in found]}
        say(pretty(made))
    elif found:
        show(table(_HEADINGS, [_cells(run) for run in found], right="tokens,size"))
    else:
        say("no runs are kept; `ttc solve` keeps one")


@runs.command("show")
def show_(run: _Run, json: _Json = False) -> None:
    """Show one run: what was asked, every call, and what it came to."""
    found = info(path_of(run))
    if found.kept is None:
        raise Fault(found.fault or "")
    records = list(found.kept.records.values())
    if json:
        said = {**_values(found), "begun_with": found.kept.run, "records": records}
        say(pretty({"schema_version": SCHEMA_VERSION, **said}))
        return
    show(table(("", ""), _facts(found)))
    if records:
        say("")
        rows = [_record(record) for record in records]
        show(table(("call", "tokens", "what became of it"), rows, right="tokens"))
    say(f"\nlook at it: ttc view {found.name}")
    if found.state == "unfinished":
        say(f"go on with it: ttc solve --resume {found.name}")


@runs.command("rm")
def rm(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Which.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all of them.")] = False,
) -> None:
    """Remove runs for good."""
    if bool(names) == everything:
        raise Fault("name the runs to remove, or pass --all; `ttc runs list` tells all of them")
    paths = [run.path for run in list_runs()] if everything else [path_of(n) for n in names or ()]
    for path in paths:
        remove(path)
    say(f"removed {counted(len(paths), 'run')}")


def question_of(run: RunInfo) -> str:
    """What a run was asked: the last thing that was said to the model."""
    if run.kept is None or not run.kept.run:
        return ""
    problem = run.kept.run["problem"]
    return str(problem["prompt"] or problem["messages"][-1]["content"])


def _values(run: RunInfo) -> dict[str, Any]:
    return {
        "run": run.name,
        "path": str(run.path),
        "num_bytes": run.num_bytes,
        "state": run.state,
        "fault": run.fault,
        "question": question_of(run),
        "end": None if run.kept is None else run.kept.end,
    }


def _cells(run: RunInfo) -> tuple[str, ...]:
    end = (run.kept.end if run.kept is not None else None) or {}
    told = run.fault or end.get("answer") or ("" if not end else "(no answer)")
    tokens = f"{end['usage'].get('tokens', 0):,}" if end else ""
    question = one_line(question_of(run), _WIDTH)
    size = f"{run.num_bytes / 1e3:,.0f} kB"
    return run.name, run.state, question, one_line(told, _WIDTH), tokens, size


def _facts(run: RunInfo) -> list[tuple[str, str]]:
    begun, end = (run.kept.run, run.kept.end) if run.kept is not None else ({}, None)
    facts = [("run", run.name), ("state", run.state), ("question", one_line(question_of(run)))]
    if begun:
        limits = {name: limit for name, limit in begun["budget"].items() if limit is not None}
        facts += [
            ("strategy", one_line(begun["text"] or begun["strategy"])),
            ("models", ", ".join(f"{r}: {e['name']}" for r, e in begun["engines"].items())),
            ("budget", ", ".join(f"{name}={limit}" for name, limit in limits.items()) or "none"),
            ("seed", str(begun["seed"])),
            ("begun", begun["created"]),
        ]
    if end is not None:
        facts += [
            ("answer", one_line(end["answer"] or "(no answer)")),
            ("tokens", f"{end['usage'].get('tokens', 0):,}"),
            ("stopped by", end["stopped_by"]),
        ]
    return facts


def _record(record: dict[str, Any]) -> tuple[str, str, str]:
    detail = ", ".join(f"{name}: {value}" for name, value in record["detail"].items())
    tokens = record["usage"].get("tokens", 0)
    return f"{record['path']}#{record['index']}", f"{tokens:,}", one_line(detail, 80)
