"""A run whose agent acts, and that is killed while it does.

    python -m tests.tools.acting before|after|told JOURNAL WORLD

The process dies by `kill -9`: before the act had its effect, after it, or once its result is kept.
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

__all__ = ["run"]


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
    run(sys.argv[2], sys.argv[3], sys.argv[1])
