"""Streams: one pump task for each node, a rendezvous with whoever pulls, and `stop()`.

A pulled item is worked on only once somebody asks for it. `stop()` is synchronous and recursive: it
cancels the node's calls and everything upstream, and gives reservations back, before it returns.

`break` out of a stream cancels nothing, and a task group held across `yield` breaks (PEP 789), so
neither is used here, and a lint rule and a test forbid both to nodes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, Protocol, TypeVar

from ttc.errors import BudgetExceeded, EngineError, NodeError
from ttc.types import Candidate

__all__ = ["Owner", "PumpStream", "calls_behind", "iterate", "ordered_map"]

T = TypeVar("T")
U = TypeVar("U")


class Owner(Protocol):
    """The scope whose work a stream carries."""

    @property
    def path(self) -> str:
        """The path of the node."""

    def task(self, work: Coroutine[Any, Any, U]) -> asyncio.Task[U]:
        """Starts a task that the run waits for before it ends."""

    def refused(self, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended the stream."""

    def cancel(self, keep: frozenset[str]) -> None:
        """Cancels every call; what calls outside `keep` had spent is labelled as cancelled."""

    def close(self) -> None:
        """Cancels what still runs. What has ended stands."""


class PumpStream(Generic[T]):
    """A stream that a generator feeds, one item for each pull."""

    def __init__(
        self,
        source: AsyncGenerator[T, None],
        owner: Owner,
        upstream: PumpStream[Any] | None = None,
        *,
        whole: bool = True,
        at_most: int | None = None,
    ) -> None:
        """A stream over `source`.

        Args:
            source: what gives the items.
            owner: the scope in which it works.
            upstream: what it reads, and stops when it ends.
            whole: whether the scope ends with the stream.
            at_most: the most items that it gives; `None` where that is unknown.
        """
        self.at_most = at_most
        self.delivered: list[T] = []
        """Every item that was taken, in order."""
        self.on_taken: Callable[[T], None] | None = None
        """Who is told of every item that is taken."""
        self.on_given: Callable[[T], T] | None = None
        """Who completes every item that the source gives."""
        self._source, self._owner, self._upstream, self._whole = source, owner, upstream, whole
        self._pulled = asyncio.Event()
        self._slot: asyncio.Future[None] | None = None
        self._ready: deque[T] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._error: NodeError | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if not self._ready and not self._ended:
            if self._task is None:
                self._task = self._owner.task(self._pump())
            self._slot = asyncio.get_running_loop().create_future()
            self._pulled.set()
            await self._slot
        if self._ready:
            item = self._ready.popleft()
            self.delivered.append(item)
            if self.on_taken is not None:
                self.on_taken(item)
            return item
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def stop(self) -> None:
        """Ends it; what its calls spent on items that nobody took is labelled as cancelled."""
        self.cancel(calls_behind(self.delivered))

    def cancel(self, keep: frozenset[str]) -> None:
        """Ends it and everything upstream. Only the calls in `keep` count as used."""
        self._ready.clear()
        self._owner.cancel(keep)
        if not self._ended:
            self._end()
            if self._task is not None:
                self._task.cancel()
        if self._upstream is not None:
            self._upstream.cancel(keep)

    @property
    def has_ended(self) -> bool:
        """Whether it has given its last item, or was stopped."""
        return self._ended

    def close(self) -> None:
        """Ends it without a judgement on what was spent; what still runs is cancelled."""
        if not self._ended:
            self._end()
            if self._task is not None:
                self._task.cancel()
        self._owner.close()

    def _end(self) -> None:
        self._ended = True
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    async def _pump(self) -> None:
        try:
            await self._pulled.wait()
            async for item in self._source:
                self._pulled.clear()
                self._ready.append(item if self.on_given is None else self.on_given(item))
                if self._slot is not None and not self._slot.done():
                    self._slot.set_result(None)
                await self._pulled.wait()
        except BudgetExceeded as refusal:
            self._owner.refused(refusal)
        except NodeError as error:
            self._error = error
        except Exception as bug:  # noqa: BLE001 - whatever a node raises is reported with its path
            self._error = NodeError(self._owner.path, bug)
        finally:
            self._end()
            if self._whole:
                self._owner.close()
            if self._upstream is not None and not self._upstream.has_ended:
                self._upstream.stop()
            await self._source.aclose()


def calls_behind(items: Iterable[Any]) -> frozenset[str]:
    """Every call on which some items rest, as far as they are candidates."""
    lineages = [item.lineage for item in items if isinstance(item, Candidate)]
    return frozenset().union(*lineages)


async def iterate(*items: T) -> AsyncGenerator[T, None]:
    """A source of given items."""
    for item in items:
        yield item


async def ordered_map(
    work: Callable[[Any, int], Awaitable[U]],
    items: AsyncIterator[Any],
    owner: Owner,
    *,
    ahead: int | None,
    failed: Callable[[Any, EngineError], U],
) -> AsyncGenerator[U, None]:
    """Runs `work(item, launch index)` on up to `ahead` items at once and keeps their order.

    The next pull races the oldest item's work, so that neither waits for the other. A refusal ends
    the launching; what was launched before it is still delivered. A failed call gives
    `failed(item, error)` in its place.
    """
    window = _Window(work, items, owner, ahead)
    try:
        while (head := await window.next_done()) is not None:
            item, task = head
            try:
                result = task.result()
            except BudgetExceeded as refusal:
                owner.refused(refusal)
                window.close()
            except EngineError as error:
                yield failed(item, error)
            else:
                yield result
    finally:
        window.cancel()


class _Window:
    """The items of an ordered map that are being worked on."""

    def __init__(
        self,
        work: Callable[[Any, int], Awaitable[Any]],
        items: AsyncIterator[Any],
        owner: Owner,
        ahead: int | None,
    ) -> None:
        self._work, self._items, self._owner, self._ahead = work, items, owner, ahead
        self._pending: deque[tuple[Any, asyncio.Task[Any]]] = deque()
        self._pulling: asyncio.Task[tuple[Any] | None] | None = None
        self._launched = 0
        self._more = True

    async def next_done(self) -> tuple[Any, asyncio.Task[Any]] | None:
        """The oldest item, once its work has ended; launches others meanwhile. `None`: the end."""
        while True:
            if self._more and self._pulling is None and self._has_room():
                self._pulling = self._owner.task(_pull(self._items))
            racing: list[asyncio.Task[Any]] = [task for _, task in list(self._pending)[:1]]
            if self._pulling is not None:
                racing.append(self._pulling)
            if not racing:
                return None
            await asyncio.wait(racing, return_when=asyncio.FIRST_COMPLETED)
            if self._pulling is not None and self._pulling.done():
                self._launch(self._pulling.result())
            else:
                return self._pending.popleft()

    def close(self) -> None:
        """Launches nothing more; what is being worked on goes on."""
        self._more = False
        if self._pulling is not None:
            self._pulling.cancel()
            self._pulling = None

    def cancel(self) -> None:
        """Ends everything."""
        self.close()
        for _, task in self._pending:
            task.cancel()

    def _has_room(self) -> bool:
        return self._ahead is None or len(self._pending) < self._ahead

    def _launch(self, taken: tuple[Any] | None) -> None:
        self._pulling = None
        if taken is None:
            self._more = False
            return
        work = _run(self._work, taken[0], self._launched)
        self._pending.append((taken[0], self._owner.task(work)))
        self._launched += 1


async def _pull(items: AsyncIterator[Any]) -> tuple[Any] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _run(work: Callable[[Any, int], Awaitable[U]], item: Any, index: int) -> U:
    return await work(item, index)
