"""A clock that tests hold; `ttc.testing` is where its users find it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ttc.ports import Timer

__all__ = ["ManualClock"]

T = TypeVar("T")


class ManualClock:
    """A clock that moves only when it is told to, or when everything waits for it.

    `run` drives a coroutine in an event loop of its own and jumps to the next timer whenever
    nothing else is left to do: a deadline of 30 seconds is tested in a millisecond.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _ManualTimer]] = []

    def now(self) -> float:
        """Seconds since the clock was made."""
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls back once, when the clock has moved that far."""
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Moves on and calls back everyone whose time has come, in order of time."""
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            self._fire()
        self._now = until

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine to its end, jumping over every wait."""
        loop = asyncio.SelectorEventLoop(_JumpingSelector(self))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(work)

    def jump(self) -> bool:
        """Moves to the next timer that still counts; says whether there was one."""
        while self._timers:
            if self._fire():
                return True
        return False

    def _fire(self) -> bool:
        when, _, timer = heapq.heappop(self._timers)
        if timer.cancelled:
            return False
        self._now = max(self._now, when)
        timer.callback()
        return True


@dataclass
class _ManualTimer:
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[misc, valid-type, unused-ignore]
    """Lets a clock jump when an event loop has nothing to run: it waits in `select` only then."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self._clock.jump():
            return []
        return super().select(timeout)
