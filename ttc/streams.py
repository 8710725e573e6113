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
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ttc.errors import BudgetExceeded, EngineError, NodeError, RecordError, Revoked
from ttc.pace import Pace
from ttc.resources import LOGICAL
from ttc.safe_text import safe_logger
from ttc.types import Candidate

__all__ = ["Owner", "PumpStream", "calls_behind", "generator", "iterate", "ordered_map"]

T = TypeVar("T")
U = TypeVar("U")
_log = safe_logger(__name__)


class Owner(Protocol):
    """The work that a stream carries, which ends with it."""

    @property
    def path(self) -> str:
        """The path of the node."""

    def part(self) -> Owner:
        """A part of the work, which can be ended by itself."""

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
        at_most: int | None = None,
        is_node: bool = False,
    ) -> None:
        """A stream over `source`.

        Args:
            source: what gives the items.
            owner: the work that ends with the stream.
            upstream: what it reads, and stops when it ends.
            at_most: the most items that it gives; `None` where that is unknown.
            is_node: whether an exception is a node's bug, to be reported with its path.
        """
        self.at_most = at_most
        self.pace = Pace()
        """What whoever gives the items is told of them."""
        self.delivered: list[T] = []
        """Every item that was taken, in order."""
        self.on_taken: Callable[[T], None] | None = None
        """Who is told of every item that is taken."""
        self.on_given: Callable[[T], T] | None = None
        """Who completes every item that the source gives."""
        self._source, self._owner, self._upstream = source, owner, upstream
        self._is_node = is_node
        self._pulled = asyncio.Event()
        self._runs_free = False
        self._taker: Callable[[T], object] | None = None
        self._slot: asyncio.Future[None] | None = None
        self._ready: deque[T] = deque()
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._error: BaseException | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        if not self._ready and not self._ended:
            if self._slot is not None and not self._slot.done():
                raise RuntimeError("a stream is pulled by one task at a time")
            self._slot = asyncio.get_running_loop().create_future()
            self._pull()
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

    def push(self, item: T) -> None:
        """Gives an item that came by itself, without a pull; one that comes too late is dropped."""
        if self._ended:
            return
        if self._taker is not None:
            self._taker(item)
            return
        self._ready.append(item)
        self._answer()

    def hand_to(self, taker: Callable[[T], object]) -> None:
        """Hands what comes by itself to `taker`, and not to whoever pulls."""
        self._taker = taker

    def run_free(self) -> None:
        """Lets it work to its end without being pulled; its items wait for whoever pulls."""
        if not self._ended:
            self._runs_free = True
            self._pull()

    def stop(self) -> None:
        """Ends it; what its calls spent on items that nobody took is labelled as cancelled."""
        if not self._ended or self._ready:
            self.cancel(calls_behind(self.delivered))

    def cancel(self, keep: frozenset[str]) -> None:
        """Ends it and everything upstream. Only the calls in `keep` count as used."""
        self._ready.clear()
        self._owner.cancel(keep)
        self._cut()
        if self._upstream is not None:
            self._upstream.cancel(keep)

    @property
    def has_ended(self) -> bool:
        """Whether it has given its last item, or was stopped."""
        return self._ended

    def close(self) -> None:
        """Ends it without a judgement on what was spent; what still runs is cancelled."""
        self._cut()
        self._owner.close()

    def _cut(self) -> None:
        if not self._ended:
            self._end()
            if self._task is not None:
                self._task.cancel()

    def _end(self) -> None:
        self._ended = True
        self._answer()

    def _answer(self) -> None:
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    def _pull(self) -> None:
        self._pulled.set()
        if self._task is None:
            self._task = self._owner.task(self._pump())
            self._task.add_done_callback(lambda _: self._end())

    async def _pump(self) -> None:
        try:
            async for item in self._source:
                if self._ended:
                    return  # it went on after it had been stopped
                if self._is_node and not isinstance(item, Candidate):
                    raise TypeError(f"it gave {item!r}, and a node gives candidates")
                if not self._runs_free:
                    self._pulled.clear()
                self._ready.append(item if self.on_given is None else self.on_given(item))
                self._answer()
                await self._pulled.wait()
        except BudgetExceeded as refusal:
            self._owner.refused(refusal)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a node raises is told
            is_bug = self._is_node and not isinstance(error, NodeError | RecordError)
            self._error = NodeError(self._owner.path, error) if is_bug else error
        finally:
            self._end()
            self._owner.close()
            if self._upstream is not None:
                self._upstream.stop()
            await self._close_source()

    async def _close_source(self) -> None:
        try:
            await self._source.aclose()
        except Exception:  # noqa: BLE001 - nobody listens to it any more
            _log.exception("%s: failed while it was being ended", self._owner.path)


def calls_behind(items: Iterable[Any]) -> frozenset[str]:
    """Every call on which some items rest, as far as they are candidates."""
    lineages = [item.lineage for item in items if isinstance(item, Candidate)]
    return frozenset().union(*lineages)


async def iterate(*items: T) -> AsyncGenerator[T, None]:
    """A source of given items."""
    for item in items:
        yield item


async def generator(items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """A source of whatever else gives items."""
    async for item in items:
        yield item


async def ordered_map(
    work: Callable[[Any, int], Awaitable[U]],
    items: AsyncIterator[Any],
    owner: Owner,
    *,
    ahead: int | None,
    failed: Callable[[Any, EngineError], U],
    each: int = 1,
    on_arrival: Callable[[int], None] | None = None,
) -> AsyncGenerator[U, None]:
    """Runs `work(item, launch index)` on up to `ahead` items at once and keeps their order.

    Every item is taken `each` times. With `on_arrival` it gives them as they end instead, and tells
    it the launch index of each.

    The next pull races the oldest item's work, so that neither waits for the other. A refused item
    drops out and ends the launching. Where the limit is a logical one, whatever was launched after
    it is dropped as well, as if it had never been, since that depended on timing; a physical limit,
    and one that was lowered, lets through what has ended. A failed call gives `failed(item, error)`
    in its place.
    """
    window = _Window(work, items, owner, ahead, each, keeps_order=on_arrival is None)
    try:
        while (head := await window.next_done()) is not None:
            if on_arrival is not None:
                on_arrival(head.place)
            try:
                result = head.task.result()
            except BudgetExceeded as refusal:
                owner.refused(refusal)
                window.close()
                if refusal.resource in LOGICAL and not isinstance(refusal, Revoked):
                    window.drop()
            except EngineError as error:
                yield failed(head.item, error)
            else:
                yield result
    finally:
        await window.end()


class _Launched(NamedTuple):
    place: int
    item: Any
    task: asyncio.Task[Any]
    owner: Owner


class _Window:
    """The items of an ordered map that are being worked on."""

    def __init__(
        self,
        work: Callable[[Any, int], Awaitable[Any]],
        items: AsyncIterator[Any],
        owner: Owner,
        ahead: int | None,
        each: int,
        *,
        keeps_order: bool,
    ) -> None:
        self._work, self._items, self._owner, self._ahead = work, items, owner, ahead
        self._each = each
        self._item: Any = None
        self._left = 0  # how often the item is still to be taken
        self._news: asyncio.Future[None] | None = None
        self._keeps_order = keeps_order
        self._pending: deque[_Launched] = deque()
        self._used: list[Any] = list(items.delivered) if isinstance(items, PumpStream) else []
        self._pulling: asyncio.Task[tuple[Any] | None] | None = None
        self._launched = 0
        self._more = True

    async def next_done(self) -> _Launched | None:
        """The oldest item, once its work has ended; launches others meanwhile. `None`: the end.

        Where no order is kept, it is the first whose work has ended.
        """
        while True:
            self._launch()
            if self._pulling is not None and self._pulling.done():
                pulled, self._pulling = self._pulling, None
                self._take(pulled)
            elif (done := self._done()) is not None:
                self._pending.remove(done)
                self._used.append(done.item)
                return done
            elif self._pulling is None and not self._pending:
                return None
            else:
                self._news = asyncio.get_running_loop().create_future()
                await self._news

    def _launch(self) -> None:
        """Begins what there is room for; once the last item has been taken, asks for another."""
        while self._more and self._left and self._has_room():
            self._left -= 1
            part = self._owner.part()
            task = part.task(_run(self._work, self._item, self._launched))
            self._add(_Launched(self._launched, self._item, task, part))
            self._launched += 1
        if self._more and self._pulling is None and not self._left and self._has_room():
            self._pulling = self._owner.task(_next(self._items))
            self._pulling.add_done_callback(self._wake)

    def _done(self) -> _Launched | None:
        """What is to be given next, if its work has ended."""
        if self._keeps_order:
            head = self._pending[0] if self._pending else None
            return head if head is not None and head.task.done() else None
        return next((launched for launched in self._pending if launched.task.done()), None)

    def _add(self, launched: _Launched) -> None:
        self._pending.append(launched)
        launched.task.add_done_callback(self._wake)

    def _wake(self, _: asyncio.Task[Any]) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def close(self) -> None:
        """Launches nothing more; what is being worked on goes on."""
        self._more = False
        if self._pulling is not None:
            self._pulling.cancel()

    def drop(self) -> None:
        """Ends what is being worked on, and everything upstream that only it would have used."""
        for launched in self._pending:
            launched.owner.cancel(frozenset())
        self._pending.clear()
        if isinstance(self._items, PumpStream):
            self._items.cancel(calls_behind(self._used))

    async def end(self) -> None:
        """Ends everything."""
        self.close()
        for launched in self._pending:
            launched.owner.close()
        if self._pulling is not None:
            await asyncio.wait([self._pulling])
        if isinstance(self._items, AsyncGenerator):
            await self._items.aclose()

    def _has_room(self) -> bool:
        return self._ahead is None or len(self._pending) < self._ahead

    def _take(self, pulled: asyncio.Task[tuple[Any] | None]) -> None:
        if not self._more:
            return
        if pulled.cancelled() or pulled.exception() is not None:
            self._more = False  # it raises at its turn
            self._pending.append(_Launched(-1, None, pulled, self._owner.part()))
        elif (taken := pulled.result()) is None:
            self._more = False
        else:
            self._item, self._left = taken[0], self._each


async def _next(items: AsyncIterator[Any]) -> tuple[Any] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _run(work: Callable[[Any, int], Awaitable[U]], item: Any, index: int) -> U:
    return await work(item, index)
