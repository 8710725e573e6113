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
        self._loop = asyncio.get_running_loop()
        self._patience = patience
        self._has_come = False
        self._reader: asyncio.Future[None] | None = None
        """Who waits for news now."""
        self._is_silent = False
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def tell(self) -> None:
        """There is something."""
        self._has_come = True
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def wait(self) -> bool:
        """Waits for news, as long as silence is allowed; whether there was silence."""
        self._since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._since + self._patience, self._look)
        if not self._has_come:
            self._reader = self._loop.create_future()
            await self._reader
        self._has_come = False
        was_silent, self._is_silent = self._is_silent, False
        return was_silent

    def close(self) -> None:
        """Wakes nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Breaks the silence, or looks again when it may have become too long."""
        due = self._since + self._patience
        self._is_silent = self._loop.time() >= due
        self._timer = None if self._is_silent else self._loop.call_at(due, self._look)
        if self._is_silent:
            self.tell()
