"""Time as a run sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "StandingClock", "SystemClock", "Timer"]


class Timer(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> None:
        """Keeps it from happening."""


class Clock(Protocol):
    """Time as a run sees it."""

    def now(self) -> float:
        """Seconds since a moment of its own."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls back once, in the running event loop."""


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
