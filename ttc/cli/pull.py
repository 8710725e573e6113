"""`ttc pull` and `ttc remove`: models come onto this machine, and go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import DownloadColumn

from ttc.cli.terminal import Fault, bars, note, say
from ttc.errors import ModelFileError
from ttc.registry import room

__all__ = ["pull", "remove"]

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
    try:
        with bars(DownloadColumn()) as progress:
            path = models.pull(what, progress=progress)
    except OSError as error:
        where = error.filename or models.models_folder()
        raise Fault(f"{what} cannot be stored: {where}: {error.strerror}") from error
    if path == before:
        note(f"{what} was there already")
    say(str(path))


def remove(
    name: Annotated[
        str, typer.Argument(help="As `ttc models` lists it.", metavar="NAME", show_default=False)
    ],
) -> None:
    """Delete a model that was pulled."""
    models: Any = room("engine.local.hub.models")
    try:
        num_bytes = models.remove(name)
    except OSError as error:
        raise Fault(f"{name} cannot be removed: {error.filename}: {error.strerror}") from error
    say(f"removed {name}, {num_bytes / 1e6:,.1f} MB")


def _place_of(models: Any, what: str) -> Path | None:
    try:
        return Path(models.find(what))
    except ModelFileError:
        return None
