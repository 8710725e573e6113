"""`ttc pull`: fetches a model, or takes one in that lies on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

from ttc.cli.terminal import Fault, is_live, note, say
from ttc.errors import ModelFileError
from ttc.registry import room

__all__ = ["pull"]

_WHAT = (
    "A built-in model; a model of the hub, as org/name, org/name@REVISION or org/name:FILE.gguf; "
    "or the path of a GGUF file or of a model's folder."
)


def pull(
    what: Annotated[str, typer.Argument(help=_WHAT, metavar="WHAT", show_default=False)],
) -> None:
    """Fetch a model and print its path."""
    models: Any = room("engine.local.hub.models")
    before = _place_of(models, what)
    columns = (SpinnerColumn("line"), TextColumn("{task.description}"), BarColumn())
    with Progress(
        *columns,
        DownloadColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not is_live(),
    ) as bars:
        stages: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total)
            bars.update(stages[stage], completed=done, total=total)

        try:
            path = models.pull(what, progress=progress)
        except OSError as error:
            where = error.filename or models.models_folder()
            raise Fault(f"{what} cannot be stored: {where}: {error.strerror}") from error
    if path == before:
        note(f"{what} was there already")
    say(str(path))


def _place_of(models: Any, what: str) -> Path | None:
    try:
        return Path(models.find(what))
    except ModelFileError:
        return None
