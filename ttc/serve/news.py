"""News: what wakes whoever writes a stream, and what breaks a silence that has become too long."""

from __future__ import annotations

import asyncio

__all__ = ["News"]


class News:
    """Tells that there is something to send. One timer serves a whole stream.

    Args:
        patience: seconds of silence that are allowed.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._come = asyncio.Event()
        self._is_silent = False
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def tell(self) -> None:
        """There is something."""
        self._come.set()

    async def wait(self) -> bool:
        """Waits for news, as long as silence is allowed; whether there was silence."""
        loop = asyncio.get_running_loop()
        self._since = loop.time()
        if self._timer is None:
            self._timer = loop.call_at(self._since + self._patience, self._look, loop)
        await self._come.wait()
        self._come.clear()
        was_silent, self._is_silent = self._is_silent, False
        return was_silent

    def close(self) -> None:
        """Wakes nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Breaks the silence, or looks again when it may have become too long."""
        due = self._since + self._patience
        self._is_silent = loop.time() >= due
        self._timer = None if self._is_silent else loop.call_at(due, self._look, loop)
        if self._is_silent:
            self._come.set()
