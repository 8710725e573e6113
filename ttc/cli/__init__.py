"""The command line of ttc: `ttc solve`, `runs`, `sample`, `pool`, `graph`, `models` and others."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; Ctrl-C ends the process.

    Args:
        arguments: the command and its options; those of the process by default.
    """
    try:
        from ttc.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        sys.stderr.write("ttc: interrupted\n")
        sys.stderr.flush()
        os._exit(130)  # a thread that loads a model would abort the interpreter's orderly end
