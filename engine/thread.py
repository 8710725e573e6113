"""A thread with an event loop, for engines whose calls wait on something outside the process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """One event loop in one thread, begun when it is first needed; a forked child has its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which runs."""
        loop = self._loop
        if loop is None or self._process != os.getpid():
            with self._lock:
                if self._loop is None or self._process != os.getpid():
                    self._loop = asyncio.new_event_loop()
                    run = self._loop.run_forever
                    threading.Thread(target=run, name=self._name, daemon=True).start()
                    self._process = os.getpid()
                loop = self._loop
        return loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What some work comes to; for callers on other threads."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
