"""The event loop of the process, in a thread of its own: what synchronous callers work on."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ttc.safe_text import safe_logger

__all__ = ["on_the_loop"]

T = TypeVar("T")
_log = safe_logger(__name__)

_SETTLING_S = 10.0
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner: tuple[int, int] | None = None


def on_the_loop(work: Coroutine[Any, Any, T]) -> T:
    """What some work gives; Ctrl-C cancels it, and lets it settle.

    Raises:
        RuntimeError: it was asked for by work on this loop, which would wait for itself.
    """
    loop, settled = _shared_loop(), threading.Event()
    if _owner == (os.getpid(), threading.get_ident()):
        work.close()
        raise RuntimeError("solve() inside a node would wait for itself; use `await asolve(...)`")

    async def watched() -> T:
        try:
            return await work
        finally:
            settled.set()

    future = asyncio.run_coroutine_threadsafe(watched(), loop)
    try:
        return future.result()
    except BaseException:
        if not future.done():  # Ctrl-C: cancel, and let the run settle before it is raised
            future.cancel()
            settled.wait(_SETTLING_S)
        raise


def _shared_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process; a forked child starts one of its own."""
    global _loop, _owner
    with _lock:
        if _loop is None or _owner is None or _owner[0] != os.getpid():
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(_loop,), name="ttc", daemon=True)
            thread.start()
            _owner = (os.getpid(), thread.ident or 0)
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Keeps a loop running, whatever a node does: `sys.exit` in one ends its task alone."""
    while True:
        try:
            loop.run_forever()
        except (KeyboardInterrupt, SystemExit):
            _log.exception("a task tried to end the process")
