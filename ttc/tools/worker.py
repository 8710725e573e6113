"""The process in which a synchronous tool works; `ttc.tools.process` starts it.

It reads one JSON object from standard input and writes one to standard output, which nobody else
has: what the tool prints goes nowhere.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from importlib import import_module
from typing import Any

from ttc.tools.function import FunctionTool, tool

__all__ = ["main"]


def main() -> None:
    """Makes the calls that were asked for, and tells what the last one came to."""
    reply = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    asked = json.loads(sys.stdin.buffer.read())
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    sys.path[:] = asked["path"]
    try:
        told = {"text": _tool(asked).result_of(asked["calls"])}
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        told = {"error": f"{type(error).__name__}: {error}"}
    reply.write(json.dumps(told).encode())
    reply.flush()
    os._exit(0)  # threads that a tool has left keep nobody waiting


def _tool(asked: dict[str, Any]) -> Any:
    if asked["module"] is not None:
        found: Any = import_module(asked["module"])
        for name in asked["name"].split("."):
            found = getattr(found, name)
        return _as_tool(found)
    if asked["file"] is None:
        raise ImportError("a tool of an interactive session cannot be found; put it in a module")
    return _as_tool(runpy.run_path(asked["file"], run_name="__ttc_tool__")[asked["name"]])


def _as_tool(found: Any) -> FunctionTool:
    """What stands under a name: a tool, or what one was made of without the name."""
    if isinstance(found, FunctionTool):
        return found
    return tool(effect="reversible" if isinstance(found, type) else "pure")(found)


if __name__ == "__main__":
    main()
