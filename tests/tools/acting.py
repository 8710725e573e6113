"""Runs whose agents act, and that are killed while they do.

    python -m tests.tools.acting FOLDER

Each is a process that dies by `kill -9`: before the act had its effect, after it, or once its
result is kept. It is forked before anything has begun, so that one start serves all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import ttc
from ttc import Outcome
from ttc.lines import Lines
from ttc.strategies import Agent, Vote
from ttc.testing import FakeEngine
from ttc.tools import tool

__all__ = ["MODES", "run"]

MODES = ("before", "after", "told")


def run(journal: str, world: str, mode: str = "") -> Outcome:
    """The run, or the rest of it."""

    @tool(effect="irreversible")
    async def launch(line: str) -> str:
        """Writes a line that stays."""
        if mode == "before":
            _die()
        with Path(world).open("a", encoding="utf-8") as file:  # noqa: ASYNC230
            file.write(line + "\n")
        if mode == "after":
            _die()
        return f"launched {line}"

    if mode == "told":
        _die_behind(b'"text":"launched')
    call = json.dumps({"name": "launch", "arguments": {"line": "x"}})
    engine = FakeEngine(lambda r: "It is 5." if r.branch.parent else f"<tool_call>{call}")
    agent = Agent(tools=(launch,), calls="hermes", n=3, select=Vote())
    return ttc.solve("Go.", agent >> Vote(), model=engine, journal=journal, seed=1)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_behind(mark: bytes) -> None:
    """Dies as soon as a line with a mark is written."""
    append = Lines.append

    def dying(self: Lines, line: bytes) -> None:
        append(self, line)
        if mark in line:
            _die()

    Lines.append = dying  # type: ignore[method-assign]


if __name__ == "__main__":
    for mode in MODES:
        if not (child := os.fork()):
            run(f"{sys.argv[1]}/{mode}.journal", f"{sys.argv[1]}/{mode}.world", mode)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))  # noqa: T201
