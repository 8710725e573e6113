"""Market: joins the machine that gives units away to runs that are alive.

Every engine call of a problem waits here for a unit. A unit is told once its problem has answered
it: once the selector has made its offer with the candidate that came of it. Where a graph is more
than a chain of single candidates, units are told when their calls end, and the outcomes say so.

A call that a stop cut is told at its worst case: how far it had come depends on timing. So is a
unit that came too late for such a call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ttc.allocate.allocation import Allocation, Open
from ttc.allocate.bids import Unit
from ttc.errors import BudgetExceeded
from ttc.graph import Node
from ttc.types import Candidate, Usage

__all__ = ["Bidder", "Market", "Released", "Result", "run_market"]

T = TypeVar("T")

Offer = tuple[float, float, float | None]
"""Gain, cost and confidence, as of `Scope.offer`."""


class Released(BudgetExceeded):
    """A call that the allocator gave no unit, since other problems need it more."""

    def __init__(self, *, needed: int, remaining: int, limit: int) -> None:
        super().__init__("allocator", needed=needed, remaining=remaining, limit=limit)
        self.args = ("the allocator gives this problem no further call; raise the run's budget",)


@dataclass(eq=False)
class _Request:
    """A call that waits for a unit."""

    key: str
    need: int
    floor: int
    turn: asyncio.Future[int]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a unit."""

    tokens: int = 0
    offer: Offer | None = None
    is_void: bool = False
    """Whether no call was made of it."""
    size: tuple[int, int] | None = None
    """What the call would have needed, at worst and at least, where the unit was too small."""


@dataclass(eq=False)
class _Held:
    """A unit, and the call that was made of it."""

    unit: Unit
    tokens: int | None = None
    """What the call cost; `None` while it runs."""
    is_lost: bool = False


class Bidder:
    """One problem, as its run and the market see each other."""

    def __init__(self, market: Market, problem: int) -> None:
        self._market, self._problem = market, problem
        self._waiting: deque[_Request] = deque()
        self._units: deque[Unit] = deque()
        self._held: dict[str, _Held] = {}
        self._taken: list[str] = []
        self._is_released = self._has_asked = self.has_ended = False

    @property
    def is_direct(self) -> bool:
        """Whether what the market sees of this problem does not depend on timing."""
        return self._market.is_direct

    # What the run says

    def request(self, key: str, *, need: int, floor: int) -> asyncio.Future[int]:
        """A place in the line of this problem's calls; its result is the tokens that it may cost.

        Args:
            key: the call, as `path#index`.
            need: its worst case.
            floor: the least that it can run with.
        """
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(key, need, floor, turn))
        if not self._has_asked:
            self._has_asked = True
            self._market.opened(self._problem, need, floor)
        self._serve()
        return turn

    def closed(self, key: str, usage: Usage, *, is_cancelled: bool) -> None:
        """A call has ended."""
        held = self._held.get(key)
        if held is None or held.tokens is not None:
            self._waiting = deque(request for request in self._waiting if request.key != key)
            return
        held.tokens = usage.tokens
        held.is_lost = held.is_lost or is_cancelled
        self._market.ended(held.unit)
        if held.is_lost or not self._market.is_direct or not usage.calls:
            self._tell(key)

    def discarded(self, key: str) -> None:
        """Nobody will use what a call gave or will give."""
        held = self._held.get(key)
        if held is not None:
            held.is_lost = True
            if held.tokens is not None:
                self._tell(key)

    def took(self, candidate: Candidate) -> None:
        """A selector has taken a candidate."""
        self._taken += [key for key in candidate.lineage if key in self._held]

    def offer(self, *, gain: float, cost: float, confidence: float | None) -> None:
        """The selector's bid, with all that it has taken."""
        offer = (gain, cost, confidence)
        taken, self._taken = self._taken, []
        for key in taken:
            self._tell(key, offer)
        self._market.offered(self._problem, offer)

    def end(self) -> None:
        """The problem's run is over."""
        self.has_ended = True
        for key, held in list(self._held.items()):
            held.is_lost = True
            self._tell(key)
        while self._units:
            self._void(self._units.popleft())
        self._market.over(self._problem)

    # What the market says

    def give(self, unit: Unit) -> None:
        """A unit for the next call."""
        if self.has_ended:
            self._void(unit)
        else:
            self._units.append(unit)
            self._serve()

    def release(self) -> None:
        """No further call gets a unit."""
        self._is_released = True
        self._serve()

    def _serve(self) -> None:
        while self._waiting and (self._units or self._is_released):
            request = self._waiting[0]
            if request.turn.done():
                self._waiting.popleft()
            elif self._units:
                self._match(request, self._units.popleft())
            else:
                self._waiting.popleft()
                request.turn.set_exception(self._market.refusal(request.need))
                request.turn.exception()  # whoever waits sees it

    def _match(self, request: _Request, unit: Unit) -> None:
        fits = request.need <= unit.tokens or (unit.is_shrunk and request.floor <= unit.tokens)
        if not fits:
            self._void(unit, size=(request.need, request.floor))
            return
        self._waiting.popleft()
        self._held[request.key] = _Held(unit)
        request.turn.set_result(unit.tokens)

    def _tell(self, key: str, offer: Offer | None = None) -> None:
        held = self._held.pop(key, None)
        if held is None:
            return
        if held.tokens is None:
            self._market.ended(held.unit)
        tokens = held.unit.tokens if held.is_lost else held.tokens or 0
        self._market.told(held.unit, Result(tokens=tokens, offer=offer))

    def _void(self, unit: Unit, size: tuple[int, int] | None = None) -> None:
        self._market.ended(unit)
        self._market.told(unit, _unused(unit, size))


async def run_market(
    allocation: Allocation,
    graph: Node,
    solve: Callable[[int, Bidder], Coroutine[Any, Any, T]],
    *,
    num_open: int,
    most: int,
) -> list[T]:
    """Solves all problems of an allocation; returns what `solve` returns of each, in order.

    Args:
        allocation: what gives the units away.
        graph: the strategy of every problem.
        solve: the run of one problem.
        num_open: problems that are open at once.
        most: calls that run at once; it changes no outcome.
    """
    done: dict[int, T] = {}
    async with asyncio.TaskGroup() as group:

        async def one(problem: int, bidder: Bidder) -> None:
            try:
                done[problem] = await solve(problem, bidder)
            finally:
                bidder.end()

        def open_problem(problem: int, bidder: Bidder) -> None:
            group.create_task(one(problem, bidder))

        market = Market(allocation, graph, open_problem, num_open=num_open, concurrency=most)
        market.advance()
    return [done[problem] for problem in sorted(done)]


class Market:
    """Drives an allocation with problems that are alive."""

    def __init__(
        self,
        allocation: Allocation,
        graph: Node,
        open_problem: Callable[[int, Bidder], None],
        *,
        num_open: int,
        concurrency: int,
    ) -> None:
        """A market; nothing happens before `advance`.

        Args:
            allocation: what gives the units away.
            graph: the strategy of every problem.
            open_problem: starts the run of a problem.
            num_open: problems that are open at once.
            concurrency: units that are used at once; it changes no outcome.
        """
        self.is_direct = _is_direct(graph)
        """Whether each call makes one candidate, and the selector offers with every one."""
        self._allocation, self._open_problem = allocation, open_problem
        self._num_open, self._concurrency = num_open, concurrency
        self._bidders: dict[int, Bidder] = {}
        self._opening: int | None = None
        self._results: dict[int, Result] = {}
        self._offers: dict[int, Offer] = {}
        self._line: deque[Unit] = deque()
        self._running = 0
        self._is_over = self._is_advancing = False

    def advance(self) -> None:
        """Gives units away, and tells results, as far as that goes now."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self._step():
                pass
        finally:
            self._is_advancing = False

    def _step(self) -> bool:
        self._deliver()
        if self._is_over:
            return self._open_the_rest()
        if self._opening is not None:
            return False
        asked = self._allocation.ask()
        while self._allocation.closed:
            self._release(self._allocation.closed.popleft())
        if isinstance(asked, Open):
            self._opening = asked.problem
            self._open(asked.problem)
            return True
        if asked is not None:
            self._line.append(asked)
            return True
        oldest = self._allocation.oldest
        if oldest is None:
            self._is_over = True
            for problem in list(self._bidders):
                self._release(problem)
            return True
        result = self._results.pop(oldest.number, None)
        if result is None:
            return False
        self._tell(oldest, result)
        return True

    def _tell(self, unit: Unit, result: Result) -> None:
        offer = result.offer if self.is_direct else self._offers.get(unit.problem)
        self._allocation.tell(unit, tokens=result.tokens, offer=offer, is_void=result.is_void)
        if result.size is not None:
            need, floor = result.size
            self._allocation.size(unit.problem, need=need, floor=floor)
        elif result.is_void:
            self._allocation.close(unit.problem)

    def _deliver(self) -> None:
        while self._line and self._running < self._concurrency:
            unit = self._line.popleft()
            self._running += 1
            bidder = self._bidders.get(unit.problem)
            if bidder is None:
                self._running -= 1
                self._results[unit.number] = _unused(unit)
            else:
                bidder.give(unit)

    def _open(self, problem: int) -> None:
        self._bidders[problem] = bidder = Bidder(self, problem)
        self._open_problem(problem, bidder)

    def _open_the_rest(self) -> bool:
        """After the end of the budget those who got nothing are opened, to say so."""
        if not self._allocation.unopened or len(self._bidders) >= self._num_open:
            return False
        problem = self._allocation.unopened.popleft()
        self._open(problem)
        self._release(problem)
        return True

    def _release(self, problem: int) -> None:
        bidder = self._bidders.get(problem)
        if bidder is not None:
            bidder.release()

    # What bidders say

    def opened(self, problem: int, need: int, floor: int) -> None:
        """A new problem has asked for its first unit."""
        if self._opening == problem:
            self._opening = None
            self._allocation.size(problem, need=need, floor=floor)
            self.advance()

    def offered(self, problem: int, offer: Offer) -> None:
        """A problem's selector has made an offer."""
        if not self.is_direct:
            self._offers[problem] = offer

    def ended(self, unit: Unit) -> None:
        """A unit is no longer used."""
        self._running -= 1
        self.advance()

    def told(self, unit: Unit, result: Result) -> None:
        """What became of a unit."""
        self._results[unit.number] = result
        self.advance()

    def over(self, problem: int) -> None:
        """A problem's run is over."""
        self._bidders.pop(problem, None)
        self._offers.pop(problem, None)
        if self._opening == problem:
            self._opening = None
            self._allocation.close(problem)
        self.advance()

    def refusal(self, need: int) -> Released:
        """What a call without a unit is told."""
        allocation = self._allocation
        left = allocation.terms.tokens - allocation.spent - allocation.reserved
        return Released(needed=need, remaining=left, limit=allocation.terms.tokens)


def _unused(unit: Unit, size: tuple[int, int] | None = None) -> Result:
    """What is told of a unit that no call was made of.

    Where others of its problem were in flight, it was a matter of timing whether a call was made of
    it before they ended the problem, so it counts as one that was cut.
    """
    if unit.beside:
        return Result(tokens=unit.tokens, size=size)
    return Result(is_void=True, size=size)


def _is_direct(graph: Node) -> bool:
    """Whether each call makes one candidate that reaches, by itself, a selector that offers."""
    *parts, last = graph.children()
    return last.offers and bool(parts) and all(part.passes_each for part in parts)
