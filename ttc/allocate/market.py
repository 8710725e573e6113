"""Market: joins the machine that gives units away to runs that are alive.

Every engine call of a problem waits here for a unit. A unit is told once its problem has answered
it: once the selector has made its offer with the candidate that came of it. Where a graph is more
than a chain of single candidates, units are told when their calls end, and the outcomes say so.

A call that a stop cut is told at its worst case: how far it had come depends on timing. So is a
unit that came too late for such a call. Once somebody has changed the limits by hand, timing has
entered anyway, and whatever was cut is told at its cost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ttc.allocate.allocation import Allocation, Open
from ttc.allocate.bids import Unit
from ttc.errors import BudgetExceeded, Revoked, TTCError
from ttc.graph import Node
from ttc.types import Candidate, Usage

__all__ = ["Bidder", "Call", "Market", "Released", "Result", "is_direct", "run_market"]

T = TypeVar("T")

Offer = tuple[float, float, float | None]
"""Gain, cost and confidence, as of `Scope.offer`."""


class Released(BudgetExceeded):
    """A call that the allocator gave no unit, since other problems need it more."""

    def __init__(self, *, needed: int, remaining: int, limit: int) -> None:
        super().__init__("allocator", needed=needed, remaining=remaining, limit=limit)
        self.args = ("the allocator gives this problem no further call; raise the run's budget",)


class Call(Protocol):
    """A call of a run, as far as a market sees it."""

    key: str

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick."""


@dataclass(eq=False)
class _Request:
    """A call that waits for a unit."""

    call: Call
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
    is_revoked: bool = False
    """Whether that is since a limit was lowered, and not since its problem asks for no more."""
    size: tuple[int, int] | None = None
    """What the call would have needed, at worst and at least, where the unit was too small."""


@dataclass(eq=False)
class _Held:
    """A unit, and the call that was made of it."""

    unit: Unit
    call: Call
    tokens: int | None = None
    """What the call cost; `None` while it runs."""
    is_lost: bool = False
    is_made: bool = True
    """Whether there was a call at all, where it has ended."""


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

    def request(self, call: Call, *, need: int, floor: int) -> asyncio.Future[int]:
        """A place in the line of this problem's calls; its result is the tokens that it may cost.

        Args:
            call: the call.
            need: its worst case.
            floor: the least that it can run with.
        """
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(call, need, floor, turn))
        if not self._has_asked:
            self._has_asked = True
            self._market.opened(self._problem, need, floor)
        self._serve()
        return turn

    def closed(self, key: str, usage: Usage, *, is_cancelled: bool) -> None:
        """A call has ended."""
        held = self._held.get(key)
        if held is None or held.tokens is not None:
            self._waiting = deque(request for request in self._waiting if request.call.key != key)
            return
        held.tokens, held.is_made = usage.tokens, bool(usage.calls)
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

    def in_use(self) -> list[Unit]:
        """Units whose call runs, or is still to come."""
        running = (held.unit for held in self._held.values() if held.tokens is None)
        return [*running, *self._units]

    def spared(self) -> int:
        """Tokens that calls which have ended did not use, and that the market is not told of."""
        ended = (held for held in self._held.values() if held.tokens is not None)
        return sum(held.unit.tokens - (held.tokens or 0) for held in ended)

    def revoke(self, unit: Unit, reason: Revoked) -> None:
        """Takes a unit back; its call, if there is one, ends in this tick."""
        if unit in self._units:
            self._units.remove(unit)
            self._market.ended(unit)
            self._market.told(unit, Result(is_void=True, is_revoked=True))
            return
        for held in list(self._held.values()):
            if held.unit is unit and held.tokens is None:
                held.call.abort(reason)

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
        self._held[request.call.key] = _Held(unit, request.call)
        request.turn.set_result(unit.tokens)

    def _tell(self, key: str, offer: Offer | None = None) -> None:
        held = self._held.pop(key, None)
        if held is None:
            return
        if held.tokens is None:
            self._market.ended(held.unit)
        tokens = held.tokens
        if tokens is None or (held.is_lost and not self._market.is_steered):
            tokens = held.unit.tokens
        is_steered = self._market.is_steered
        is_void = not held.is_made and (is_steered or not held.is_lost)
        result = Result(
            tokens=tokens, offer=offer, is_void=is_void, is_revoked=is_void and is_steered
        )
        self._market.told(held.unit, result)

    def _void(self, unit: Unit, size: tuple[int, int] | None = None) -> None:
        self._market.ended(unit)
        self._market.told(unit, _unused(unit, size))


async def run_market(
    allocation: Allocation,
    graph: Node,
    solve: Callable[[int, Bidder], Coroutine[Any, Any, T]],
    *,
    begin: Callable[[Market], None],
    most: int,
) -> list[T]:
    """Solves all problems of an allocation; returns what `solve` returns of each, in order.

    Args:
        allocation: what gives the units away.
        graph: the strategy of every problem.
        solve: the run of one problem.
        begin: is given the market before anything happens in it.
        most: calls that run at once; it changes no outcome.
    """
    done: dict[int, T] = {}
    group = asyncio.TaskGroup()

    async def one(problem: int, bidder: Bidder) -> None:
        try:
            done[problem] = await solve(problem, bidder)
        finally:
            bidder.end()

    def open_problem(problem: int, bidder: Bidder) -> None:
        group.create_task(one(problem, bidder))

    market = Market(allocation, graph, open_problem, concurrency=most)
    begin(market)
    async with group:
        market.start()
    return [done[problem] for problem in sorted(done)]


class Market:
    """Drives an allocation with problems that are alive."""

    def __init__(
        self,
        allocation: Allocation,
        graph: Node,
        open_problem: Callable[[int, Bidder], None],
        *,
        concurrency: int,
    ) -> None:
        """A market; nothing happens before `start`.

        Args:
            allocation: what gives the units away.
            graph: the strategy of every problem.
            open_problem: starts the run of a problem.
            concurrency: units that are used at once; it changes no outcome.
        """
        self.is_direct = is_direct(graph)
        """Whether each call makes one candidate, and the selector offers with every one."""
        self._allocation, self._open_problem = allocation, open_problem
        self.is_steered = False
        """Whether somebody has changed its limits by hand."""
        self._concurrency = concurrency
        self._bidders: dict[int, Bidder] = {}
        self._opening: int | None = None
        self._results: dict[int, Result] = {}
        self._offers: dict[int, Offer] = {}
        self._line: deque[Unit] = deque()
        self._running = 0
        self._has_begun = self._is_over = self._is_advancing = False

    def start(self) -> None:
        """Opens the first problems."""
        self._has_begun = True
        self.advance()

    def advance(self) -> None:
        """Gives units away, and tells results, as far as that goes now."""
        if self._is_advancing or not self._has_begun:
            return
        self._is_advancing = True
        try:
            while self._step():
                pass
        finally:
            self._is_advancing = False

    def set_limits(self, limits: Mapping[str, float | None]) -> None:
        """Changes what may be spent in all; what no longer fits is ended, the newest first."""
        tokens, calls = limits["tokens"], limits["calls"]
        self.is_steered, self._is_over = True, False
        self._allocation.change(
            tokens=int(tokens or 0), calls=None if calls is None else int(calls)
        )
        self._wind_down()
        self.advance()

    def _wind_down(self) -> None:
        """Takes units back until what is spent and promised is within the limits."""
        terms, self._is_advancing = self._allocation.terms, True
        limits = {"tokens": terms.tokens, "calls": terms.calls}
        in_use = [unit for bidder in self._bidders.values() for unit in bidder.in_use()]
        for unit in sorted([*self._line, *in_use], key=lambda unit: -unit.number):
            committed = self._committed()
            over = [r for r, most in limits.items() if most is not None and committed[r] > most]
            if not over:
                break
            self._revoke(unit, Revoked(over[0], limit=limits[over[0]] or 0))
        self._is_advancing = False

    def _committed(self) -> dict[str, int]:
        """What is spent, and what units in flight may still spend."""
        allocation = self._allocation
        tokens, calls = allocation.spent + allocation.reserved, allocation.calls
        for unit in allocation.untold:
            result = self._results.get(unit.number)
            if result is not None:
                tokens -= unit.tokens - result.tokens
                calls -= result.is_void
        tokens -= sum(bidder.spared() for bidder in self._bidders.values())
        return {"tokens": tokens, "calls": calls}

    def _revoke(self, unit: Unit, reason: Revoked) -> None:
        if unit in self._line:
            self._line.remove(unit)
            self._results[unit.number] = Result(is_void=True, is_revoked=True)
        else:
            self._bidders[unit.problem].revoke(unit, reason)

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
        elif result.is_void and not result.is_revoked:
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
        if not self._allocation.unopened or len(self._bidders) >= self._allocation.num_open:
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


def is_direct(graph: Node) -> bool:
    """Whether each call makes one candidate that reaches, by itself, a selector that offers."""
    *parts, last = graph.children()
    return last.offers and bool(parts) and all(part.passes_each for part in parts)
