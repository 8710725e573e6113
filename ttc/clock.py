"""Time as a run sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ttc.ports import Timer

__all__ = ["StandingClock", "SystemClock"]


class SystemClock:
    """The machine's monotonic clock, and the running event loop's timers."""

    def now(self) -> float:
        """Seconds since an unspecified start; never runs backwards."""
        return time.monotonic()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls back once, in the running event loop."""
        return asyncio.get_running_loop().call_later(seconds, callback)


class StandingClock(SystemClock):
    """A clock that stands still, for what has happened before; its timers run."""

    def now(self) -> float:
        """Always the same."""
        return 0.0
