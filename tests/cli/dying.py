"""`ttc` in a process that dies by SIGKILL once it has written so many results.

    python -m tests.cli.dying LOG NUM_RESULTS eval …

`asked` notes whatever a local engine is asked for, here as in other processes.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ttc.cli import main
from ttc.engine.local.engine import LocalEngine
from ttc.lines import Lines
from ttc.ports import Request


def asked(log: Path) -> Any:
    """While it is entered, every request is a line of `log`: its seed and where it begins."""
    submit = LocalEngine.submit

    def noted(self: LocalEngine, request: Request, *rest: Any, **options: Any) -> Any:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{request.seed} {request.branch.output!r}\n")
        return submit(self, request, *rest, **options)

    return patch.object(LocalEngine, "submit", noted)


def dying(num_results: int) -> Any:
    """While it is entered, the process dies with the last of so many results."""
    append, left = Lines.append, num_results

    def last(self: Lines, line: bytes) -> None:
        nonlocal left
        append(self, line)
        left -= self.path.name == "results.jsonl"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    return patch.object(Lines, "append", last)


if __name__ == "__main__":
    with asked(Path(sys.argv[1])), dying(int(sys.argv[2])):
        sys.exit(main(sys.argv[3:]))
