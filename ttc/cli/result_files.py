"""Result files of commands: what was measured, with the command that measures it again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ttc.cli.terminal import Fault
from ttc.registry import room

__all__ = ["JsonFile", "check_target", "write_result"]

JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write a result file.", show_default=False)
]


def check_target(path: Path | None) -> None:
    """Finds out before a long run whether its result can be kept.

    Raises:
        Fault: no file can be written there.
    """
    if path is not None and (
        path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK)
    ):
        raise Fault(f"--json: no file can be written at {path}")


def write_result(
    path: Path, rows: Sequence[Mapping[str, Any]], command: Sequence[str], seed: int
) -> None:
    """Writes rows down, with the command that gives them again.

    Raises:
        Fault: the file cannot be written.
    """
    try:
        room("benchmarks.results").write_result(path, command=command, rows=rows, seed=seed)
    except OSError as error:
        raise Fault(f"--json: {path} cannot be written: {error.strerror}") from error
