"""`ttc models`: the built-in models, and all that lie on disk."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import Annotated, Any

import typer

from ttc.cli.outcomes import SCHEMA_VERSION
from ttc.cli.terminal import say, show, table
from ttc.registry import room
from ttc.safe_text import one_line

__all__ = ["models", "where"]

_HEADINGS = (
    *("name", "family", "parameters", "size", "quantisation", "context", "licence"),
    "where",
)
_WIDTH = 40


def models(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the models that there are: built in, taken in, and pulled from the hub."""
    entries = list(room("engine.local.hub.catalog").catalog())
    if json:
        made = {"schema_version": SCHEMA_VERSION, "models": [_values(entry) for entry in entries]}
        say(dumps(made, indent=2))
        return
    rows = [_cells(entry) for entry in entries]
    show(table(_HEADINGS, rows, right="parameters,size,context"))


def where(entry: Any) -> str:
    """Where a model lies and what is wrong with it, or how to get it."""
    if entry.path is None:
        return f"not on disk; `ttc pull {entry.name}`"
    return f"{entry.path}" if entry.fault is None else f"unusable: {one_line(entry.fault)}"


def _values(entry: Any) -> dict[str, Any]:
    values = asdict(entry)
    values |= values.pop("details")
    values["path"] = None if entry.path is None else str(entry.path)
    return values


def _cells(entry: Any) -> tuple[str, ...]:
    details = entry.details
    return (
        entry.name,
        one_line(details.family or "", _WIDTH),
        one_line(details.parameters or "", _WIDTH),
        "" if entry.num_bytes is None else f"{entry.num_bytes / 1e6:,.0f} MB",
        one_line(details.quantisation or "", _WIDTH),
        "" if details.context is None else f"{details.context:,}",
        one_line(details.licence or "", _WIDTH),
        where(entry),
    )
