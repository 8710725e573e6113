"""The command line of ttc: `ttc solve`, `runs`, `sample`, `pool`, `graph`, `models` and others."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; Ctrl-C ends the process.

    Args:
        arguments: the command and its options; those of the process by default.
    """
    if arguments is None:  # the process is this command's
        sys.excepthook = _tell_bug
    try:
        from ttc.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        sys.stderr.write("ttc: interrupted\n")
        sys.stderr.flush()
        os._exit(130)  # a thread that loads a model would abort the interpreter's orderly end


def _tell_bug(kind: type[BaseException], bug: BaseException, place: TracebackType | None) -> None:
    """Writes the traceback of a bug, which may quote a model."""
    from ttc.safe_text import traceback_of

    sys.stderr.write(f"{traceback_of(bug)}\n")
