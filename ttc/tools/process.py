"""Calls in a process of their own, which is killed with all that it started.

The process is a new interpreter that imports the function's module by name, so nothing is forked
and nothing pickled: arguments go in as JSON, and a text comes out. It is the user's own code, with
the user's environment and rights; for code of a model there is the sandbox.
No more than some work at once, so that no number of branches and calls fills the memory; who waits
for a turn uses the call's own time.
Cost: the start of an interpreter and of the module, about a tenth of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ttc.tools.port import Arguments

__all__ = ["call_in_process", "place_of"]

_MOST_AROUND = 65_536
"""Bytes of a reply beside its text."""
_MOST_AT_ONCE = 16
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def place_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Where another process finds a function: its module, or the file of a script, and its name."""
    main = sys.modules.get("__main__")
    is_script = function.__module__ == "__main__"
    return {
        "module": None if is_script else function.__module__,
        "file": getattr(main, "__file__", None) if is_script else None,
        "name": function.__qualname__,
        "path": sys.path,
    }


async def call_in_process(
    function: Callable[..., Any], calls: Sequence[Arguments], max_bytes: int
) -> str:
    """What the last of some calls of a function comes to, in a process that ends with this task.

    Raises:
        RuntimeError: it failed, as it says itself, or its process died.
    """
    turns = _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_MOST_AT_ONCE))
    async with turns:
        return await _called(function, calls, max_bytes)


async def _called(function: Callable[..., Any], calls: Sequence[Arguments], max_bytes: int) -> str:
    asked = json.dumps({**place_of(function), "calls": list(map(dict, calls))}).encode()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ttc.tools.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        limit=_MOST_AROUND + 8 * max_bytes,
    )
    try:
        reply = await _exchange(process, asked, _MOST_AROUND + 8 * max_bytes)
    finally:
        _kill(process)
        await asyncio.shield(_reaped(process))
    if "error" in reply:
        raise RuntimeError(reply["error"])
    return str(reply["text"])


async def _exchange(process: asyncio.subprocess.Process, asked: bytes, most: int) -> dict[str, Any]:
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    with contextlib.suppress(ConnectionError):
        stdin.write(asked)
        await stdin.drain()
        stdin.close()
    data = b""
    while piece := await stdout.read(65_536):
        data += piece
        if len(data) > most:
            return {"error": f"it gave more than {most} bytes"}
    try:
        reply = json.loads(data)
    except ValueError:
        await process.wait()
        return {"error": f"its process died with status {process.returncode}"}
    return reply if isinstance(reply, dict) else {"error": "its process gave no reply"}


def _kill(process: asyncio.subprocess.Process) -> None:
    """Ends the process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def _reaped(process: asyncio.subprocess.Process) -> None:
    await process.wait()
