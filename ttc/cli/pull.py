"""`ttc pull`: fetches the weights of a built-in model."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

from ttc.cli.terminal import Fault, is_live, note, say
from ttc.errors import ModelFileError
from ttc.registry import room

__all__ = ["pull"]


def pull(
    name: Annotated[str, typer.Argument(help="A built-in model.", show_default=False)],
) -> None:
    """Fetch the weights of a built-in model and print their path."""
    models: Any = room("engine.local.models")
    was_there = _is_there(models, name)
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
            path = models.pull(name, progress=progress)
        except OSError as error:
            where = error.filename or models.models_folder()
            raise Fault(f"{name} cannot be stored: {where}: {error.strerror}") from error
    if was_there:
        note(f"{name} was there already")
    say(str(path))


def _is_there(models: Any, name: str) -> bool:
    if name not in models.MODELS:
        return False
    try:
        models.find(name)
    except ModelFileError:
        return False
    return True
