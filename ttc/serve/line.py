"""The line: how many requests run at once, and who comes next.

Keys take turns, so that one with many requests holds up nobody else. The line is bounded. Where it
is full and a key comes that waits less than another one, that one's newest request makes room.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque

from ttc.serve.refusal import Refusal

__all__ = ["Line"]

_RETRY_S = 1


class Line:
    """Lets `most` run at once and `queue` wait."""

    def __init__(self, most: int, queue: int) -> None:
        self._most, self._queue = most, queue
        self.running = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return sum(map(len, self._waiting.values()))

    async def enter(self, key: str) -> None:
        """Waits for a turn; whoever has had one calls `leave`.

        Raises:
            Refusal: the line is full.
        """
        if self.running < self._most:
            self.running += 1
            return
        self._make_room(key)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave()  # its turn had come
            raise
        finally:
            self._forget(key, turn)

    def leave(self) -> None:
        """Gives the place to who comes next."""
        while self._waiting:
            key, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[key]
            if turns:
                self._waiting[key] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1

    def _forget(self, key: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(key)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[key]

    def _make_room(self, key: str) -> None:
        if self.waiting < self._queue:
            return
        longest = max(self._waiting, key=lambda k: len(self._waiting[k]), default=key)
        own = len(self._waiting.get(key, ()))
        if not self._queue or own + 1 >= len(self._waiting[longest]):
            raise _full()
        turn = self._waiting[longest].pop()
        if not turn.done():
            turn.set_exception(_full())


def _full() -> Refusal:
    return Refusal(
        429,
        "too many requests wait already; try again",
        code="queue_full",
        headers={"Retry-After": str(_RETRY_S)},
    )
