"""Tools that work in a process of their own. It loads this module, which therefore loads little."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ttc.tools import tool

__all__ = ["die", "flood", "hang", "lie", "note", "note_slowly"]


@tool(effect="irreversible", seconds=20)
def note(path: str, line: str) -> str:
    """Writes a line to a file: what cannot be undone."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    return f"wrote {line}"


@tool(effect="irreversible", seconds=60)
def note_slowly(path: str, line: str) -> str:
    """Says that it has begun, and writes a line to a file a minute later."""
    Path(f"{path}.begun").touch()
    time.sleep(60)
    return note.function(path, line)  # type: ignore[no-any-return]


@tool(effect="pure", in_process=True, seconds=20)
def lie() -> int:
    """Promises a number."""
    return "seven"  # type: ignore[return-value]


@tool(effect="pure", in_process=True, seconds=20, max_bytes=100)
def flood(size: int) -> str:
    """Gives a lot, and prints as much."""
    print("x" * 100_000)  # noqa: T201
    return "y" * size


@tool(effect="pure", in_process=True, seconds=20)
def die() -> str:
    """Ends its process."""
    os._exit(3)


@tool(effect="pure", in_process=True, seconds=0.2)
def hang() -> str:
    """Never ends."""
    while True:
        pass
