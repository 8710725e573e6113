"""Allocation: the machine that gives units away, by an allocator's word and within the budget.

`ask` gives the next unit; `tell` takes a result, always that of the oldest unit. Whoever drives it
tells only when `ask` gives nothing, one result at a time. So unit i is given by the results of
units 0 … i - window, and the whole run is a function of (results, budget, window): how many calls
run at once, and when they end, never enters.

At every moment what is spent and what is reserved is within the budget. A unit that does not fit
waits for results; if none is outstanding it is shrunk down to its floor, or its problem is closed.

Cost: a logarithm of the number of open problems for a unit.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ttc.allocate.bids import Bid, Progress, Terms, Unit
from ttc.allocate.policies import Allocator

__all__ = ["Allocation", "Open"]

_COST_WEIGHT = 4
"""Units for which the run's mean cost counts against a problem's own."""

_MOST_STALE, _FEW = 4, 64
"""How many entries a heap may hold for each open problem, and beside, before it is thinned."""

_TRUST_STEP = 0.05
"""How far the trust in beliefs may move before every open problem is ranked anew."""


class Open(NamedTuple):
    """A problem that is to be opened, so that it says what a unit of it costs."""

    problem: int


class _Place:
    """An open problem."""

    __slots__ = ("bid", "cost", "floor", "unit", "version", "worth")

    def __init__(self, bid: Bid, unit: int | None) -> None:
        self.bid, self.unit, self.floor = bid, unit, unit
        self.cost: float | None = None  # in tokens
        self.version = 0
        self.worth = math.inf


class Allocation:
    """Gives the units of one budget away."""

    def __init__(self, allocator: Allocator, terms: Terms, ids: Sequence[str]) -> None:
        """A machine at its start.

        Args:
            allocator: what a unit is worth.
            terms: what may be spent.
            ids: the problems, in their order.
        """
        self.terms = terms
        self.spent = 0
        """Tokens of told units."""
        self.reserved = 0
        """Tokens of units in flight, at their worst case."""
        self.closed: deque[int] = deque()
        """Problems that were closed and that nobody has been told of yet; for the driver."""
        self._allocator, self._ids = allocator, ids
        self.price = 0.0
        """What a unit must be worth now."""
        self.trust = 0.5
        """The chance that beliefs about single problems are worth something, as results have it."""
        self._arrived = self._closed = 0
        self._allowance = allocator.allowance(terms)
        self._trusted = self.trust  # as the problems are ranked now
        self._order = deque(self._by_worth(range(len(ids))))
        self._places: dict[int, _Place] = {}
        self._best: list[tuple[float, int, int]] = []
        self._least: list[tuple[float, int, int]] = []
        self._untold: deque[Unit] = deque()
        self._given = self._told = self._calls = 0
        self._set_price()
        self._short = False  # whether the last unit did not fit into the run's budget

    @property
    def oldest(self) -> Unit | None:
        """The unit whose result is to be told next."""
        return self._untold[0] if self._untold else None

    @property
    def untold(self) -> Iterable[Unit]:
        """Units whose results are to be told, the oldest first."""
        return self._untold

    @property
    def num_open(self) -> int:
        """Problems that may be open at once."""
        return self._allocator.num_open

    @property
    def calls(self) -> int:
        """Units that were given, but for those of which no call was made."""
        return self._calls

    @property
    def unopened(self) -> deque[int]:
        """Problems that have not been opened, in the order in which they would be."""
        return self._order

    def bid(self, problem: int) -> Bid | None:
        """What is known of an open problem; `None` of one that is not open."""
        place = self._places.get(problem)
        return None if place is None else place.bid

    def ask(self) -> Unit | Open | None:
        """The next unit, or a problem to open first; `None`: tell a result, or it is the end."""
        if len(self._untold) >= self._allocator.window or self._calls_are_spent():
            return None
        while True:
            problem = self._top()
            worth = self._places[problem].worth if problem is not None else -math.inf
            if self._order and self._prefers_next(worth):
                if not self._makes_room():
                    return None  # every open problem waits for a result
                opened = self._open()
                if opened is not None:
                    return opened
                continue
            if problem is None or worth <= self.price:
                return None
            unit = self._fund(problem)
            if unit is not None:
                return unit
            if self._short:
                return None

    def change(self, *, tokens: int, calls: int | None) -> None:
        """Changes what may be spent, from now on."""
        self.terms = replace(self.terms, tokens=tokens, calls=calls)
        self._allowance = self._allocator.allowance(self.terms)
        self._set_price()
        self._rank_all()

    def size(self, problem: int, *, need: int, floor: int) -> None:
        """Notes what the next unit of an open problem costs at worst, and at least."""
        place = self._places.get(problem)
        if place is not None:
            place.unit, place.floor = need, floor
            self._rank(problem, place)

    def close(self, problem: int) -> None:
        """Gives a problem no more."""
        if self._places.pop(problem, None) is not None:
            self._closed += 1

    def tell(
        self,
        unit: Unit,
        *,
        tokens: int,
        offer: tuple[float, float, float | None] | None = None,
        is_void: bool = False,
    ) -> None:
        """Books the result of the oldest unit.

        Args:
            unit: which one.
            tokens: what it cost, at most what it was given.
            offer: the problem's latest gain, cost and confidence; `None` leaves them as they are.
            is_void: whether no call was made of it.

        Raises:
            ValueError: another unit is older, or it cost more than it was given.
        """
        if unit is not self.oldest or not 0 <= tokens <= unit.tokens:
            raise ValueError(f"{unit} cannot be told at {tokens} tokens; oldest: {self.oldest}")
        self._untold.popleft()
        self.reserved -= unit.tokens
        self.spent += tokens
        self._told += not is_void
        self._calls -= is_void
        place = self._places.get(unit.problem)
        if place is None:
            return
        bid, counts = place.bid, 0 if is_void else 1
        if counts and not bid.is_decided:
            self.trust = bid.trusting(self.trust, solved=offer is not None and offer[0] <= 0)
        told, in_flight = bid.told + counts, bid.in_flight - 1
        spent, reserved = bid.spent + tokens, bid.reserved - unit.tokens
        gain, place.cost, confidence = offer or (bid.gain, place.cost, bid.confidence)
        cost = self._relative(place.cost, told)
        place.bid = Bid(
            bid.belief,
            bid.doubt,
            self._trusted,
            told,
            in_flight,
            spent,
            reserved,
            gain,
            cost,
            confidence,
        )
        if abs(self.trust - self._trusted) > _TRUST_STEP:
            self._rank_all()
        else:
            self._push(unit.problem, place)

    def _by_worth(self, problems: Iterable[int]) -> list[int]:
        """Problems in the order in which they are to be opened."""
        if self._allocator.is_online or not self._allocator.beliefs:
            return list(problems)
        bids = {problem: self._first_bid(problem) for problem in problems}
        return sorted(bids, key=lambda problem: (-self._allocator.worth(bids[problem]), problem))

    def _first_bid(self, problem: int) -> Bid:
        belief = self._allocator.beliefs.get(self._ids[problem])
        common = self._allocator.belief
        return Bid(belief or common, belief and common, self._trusted, cost=1.0)

    def _rank_all(self) -> None:
        """Ranks every problem anew, since beliefs are now trusted more, or less."""
        self._trusted = self.trust
        for problem, place in list(self._places.items()):
            self._rank(problem, place)
        self._order = deque(self._by_worth(sorted(self._order)))

    def _calls_are_spent(self) -> bool:
        return self.terms.calls is not None and self._calls >= self.terms.calls

    def _top(self) -> int | None:
        """The open problem with the highest worth."""
        while self._best:
            _, problem, version = self._best[0]
            place = self._places.get(problem)
            if place is not None and place.version == version:
                return problem
            heapq.heappop(self._best)
        return None

    def _prefers_next(self, worth: float) -> bool:
        """Whether the next problem is to be opened before the best open one gets a unit."""
        if len(self._places) < self._allocator.num_open and (
            self._allocator.is_online or self._told == 0
        ):
            return True
        if self._allocator.is_online:
            return worth <= self.price
        bid = self._first_bid(self._order[0])
        return self._allocator.worth(bid) > max(worth, self.price)

    def _makes_room(self) -> bool:
        """Closes the least worthy problem without units in flight, if there are too many."""
        if len(self._places) < self._allocator.num_open:
            return True
        kept = []
        while self._least:
            entry = heapq.heappop(self._least)
            place = self._places.get(entry[1])
            if place is None or place.version != entry[2]:
                continue
            if place.bid.in_flight:
                kept.append(entry)
                continue
            self._give_up(entry[1])
            break
        for entry in kept:
            heapq.heappush(self._least, entry)
        return len(self._places) < self._allocator.num_open

    def _give_up(self, problem: int) -> None:
        self.close(problem)
        self.closed.append(problem)

    def _open(self) -> Open | None:
        problem = self._order.popleft()
        place = _Place(self._first_bid(problem), self.terms.unit)
        self._places[problem] = place
        self._arrived += 1
        self._set_price()
        if place.unit is None:
            return Open(problem)
        self._push(problem, place)
        return None

    def _rank(self, problem: int, place: _Place) -> None:
        """Ranks a problem anew, as the run is now."""
        cost = self._relative(place.cost, place.bid.told)
        place.bid = place.bid._replace(trust=self._trusted, cost=cost)
        self._push(problem, place)

    def _push(self, problem: int, place: _Place) -> None:
        """Ranks a problem anew; one that is decided, and waits for nothing, is closed."""
        bid = place.bid
        place.worth = self._allocator.worth(bid)
        place.version += 1
        if place.worth <= 0.0 and not bid.in_flight:
            self._give_up(problem)
        elif place.unit is not None:
            heapq.heappush(self._best, (-place.worth, problem, place.version))
            self._thin(self._best)
            if self._order:
                heapq.heappush(self._least, (place.worth, problem, place.version))
                self._thin(self._least)

    def _thin(self, heap: list[tuple[float, int, int]]) -> None:
        """Takes out what is no longer so, once that is most of a heap."""
        if len(heap) > _MOST_STALE * len(self._places) + _FEW:
            places = self._places
            heap[:] = [
                entry
                for entry in heap
                if entry[1] in places and places[entry[1]].version == entry[2]
            ]
            heapq.heapify(heap)

    def _relative(self, cost: float | None, told: int) -> float:
        """A problem's own cost in means of the run; after few units it says little."""
        if cost is None or not self.spent:
            return 1.0
        own = cost * self._told / self.spent
        return (told * own + _COST_WEIGHT) / (told + _COST_WEIGHT)

    def _set_price(self) -> None:
        """Lets the allocator look at how far the run has come."""
        progress = Progress(
            tokens=self.terms.tokens,
            num_problems=len(self._ids),
            spent=self.spent,
            mean_cost=self.spent / self._told if self._told else None,
            arrived=self._arrived,
            closed=self._closed,
            price=self.price,
        )
        self.price = self._allocator.price(progress)

    def _fund(self, problem: int) -> Unit | None:
        """A unit for a problem; `None` where it has to wait, or is closed since it cannot have one.

        A problem that waits is ranked anew with its next result.
        """
        place = self._places[problem]
        bid, need, floor = place.bid, place.unit or 0, place.floor or 0
        room = self.terms.tokens - self.spent - self.reserved
        own = math.inf if self._allowance is None else self._allowance - bid.spent - bid.reserved
        self._short = need > room and bool(self._untold)
        if self._short:
            return None
        if need > own and bid.in_flight:
            place.version += 1
            return None
        grant = min(need, room, own)
        if grant < floor:
            self._give_up(problem)
            return None
        unit = Unit(self._given, problem, int(grant), grant < need, bid.in_flight)
        self._given += 1
        self._calls += 1
        self.reserved += unit.tokens
        self._untold.append(unit)
        belief, doubt, trust, told, in_flight, spent, reserved, gain, _, confidence = bid
        place.bid = Bid(
            belief,
            doubt,
            trust,
            told,
            in_flight + 1,
            spent,
            reserved + unit.tokens,
            gain,
            self._relative(place.cost, told),
            confidence,
        )
        self._push(problem, place)
        return unit
