"""Routes: which of several servers a call goes to, when, and which are left alone for a while.

All calls with one beginning go to one server, which then has it in its cache: the highest random
weight of (server, beginning) decides, so that a server that comes or goes moves only its own. Where
that one has as many calls as it may, the next one takes them. A server that cannot be reached, or
asks to be left alone, is left alone; its calls go to the next one.

Source: Thaler and Ravishankar 1998, IEEE/ACM Transactions on Networking 6(1), for the weights.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import Any

from ttc.engine.openai.failures import Refused

__all__ = ["Route", "Routes"]

_FIRST_REST_S = 0.25
_LONGEST_REST_S = 30.0
_ORDERS = 4096


class Route:
    """One server."""

    def __init__(self, url: str, connect: Callable[[], Any]) -> None:
        """A server.

        Args:
            url: its base URL.
            connect: makes a connection, which nobody has opened.
        """
        self.url, self._connect = url, connect
        self._idle: list[Any] = []
        self.running = 0
        """Calls that it works on."""
        self.served = 0
        """Calls that ended well."""
        self.resumes_at = 0.0
        """The moment, by the loop's clock, until which it is left alone."""
        self.failures = 0
        """How often, one after the other, it could not be reached."""

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """One that nobody else uses meanwhile; of those that are idle the latest."""
        connection = self._idle.pop() if self._idle else self._connect()
        try:
            yield connection
        finally:
            if connection.is_idle:
                self._idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Closes the connections that are idle."""
        while self._idle:
            self._idle.pop().close()


class Routes:
    """The servers of an engine, with the limits on each. For one event loop."""

    def __init__(
        self, routes: Sequence[Route], *, concurrency: int, rate: float | None = None
    ) -> None:
        """Routes.

        Args:
            routes: the servers.
            concurrency: the most calls that one works on at once.
            rate: the most requests to all of them in a second.
        """
        self.all = tuple(routes)
        self._concurrency, self._rate = concurrency, rate
        self._line: deque[_Waiter] = deque()
        self._next_start = 0.0
        self._orders = lru_cache(_ORDERS)(self._order)

    def order(self, beginning: str) -> tuple[Route, ...]:
        """All servers, the one that a beginning belongs to first."""
        return self.all if len(self.all) == 1 else self._orders(beginning)

    def _order(self, beginning: str) -> tuple[Route, ...]:
        def weight(route: Route) -> bytes:
            return blake2b(f"{route.url}\n{beginning}".encode(), digest_size=8).digest()

        return tuple(sorted(self.all, key=weight, reverse=True))

    async def take(self, beginning: str, most: float = inf) -> Route:
        """Waits for a place at a server; `leave` gives it back.

        Raises:
            Refused: all of them want to be left alone for longer than `most` seconds.
        """
        order = self.order(beginning)
        free = None if self._line else self._free(order, most)
        if free is None:
            free = await self._in_line(order, most)
        free.running += 1
        self._wake()  # there may be more places
        try:
            await self._paced()
        except BaseException:
            self.leave(free)
            raise
        return free

    def _free(self, order: Sequence[Route], most: float) -> Route | None:
        """The first server with a place, or `None`."""
        now = asyncio.get_running_loop().time()
        wait = min(route.resumes_at for route in order) - now
        if wait > most:
            raise Refused(f"every server asks to be left alone for {wait:.0f} seconds")
        return next(
            (r for r in order if r.running < self._concurrency and r.resumes_at <= now), None
        )

    async def _in_line(self, order: Sequence[Route], most: float) -> Route:
        """Waits for a place. Who came first goes first."""
        loop, me = asyncio.get_running_loop(), _Waiter()
        self._line.append(me)
        try:
            while self._line[0] is not me or (free := self._free(order, most)) is None:
                me.turn = loop.create_future()
                rests = [r.resumes_at for r in order if r.resumes_at > loop.time()]
                timer = loop.call_at(min(rests), self._wake) if rests else None
                try:
                    await me.turn
                finally:
                    if timer is not None:
                        timer.cancel()
            return free
        finally:
            self._line.remove(me)
            self._wake()

    def leave(self, route: Route) -> None:
        """Gives a place back."""
        route.running -= 1
        self._wake()

    def rest(self, route: Route, seconds: float | None) -> None:
        """Leaves a server alone, for as long as it asks, or longer each time that it fails.

        What calls that were in flight together find out is one failure.
        """
        now = asyncio.get_running_loop().time()
        if route.resumes_at <= now:
            route.failures += 1
        elif seconds is None:
            return
        if seconds is None:
            seconds = min(_LONGEST_REST_S, _FIRST_REST_S * 2 ** (route.failures - 1))
        route.resumes_at = max(route.resumes_at, now + seconds)

    def well(self, route: Route) -> None:
        """Notes that a server has answered."""
        route.failures = 0
        route.served += 1

    async def _paced(self) -> None:
        if self._rate is None:
            return
        now = asyncio.get_running_loop().time()
        start = max(now, self._next_start)
        self._next_start = start + 1 / self._rate
        if start > now:
            await asyncio.sleep(start - now)

    def _wake(self) -> None:
        """Lets who is first in line look again."""
        turn = self._line[0].turn if self._line else None
        if turn is not None and not turn.done():
            turn.set_result(None)


class _Waiter:
    """Who waits for a place."""

    turn: asyncio.Future[None] | None = None
