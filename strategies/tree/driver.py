"""The driver of every tree search: it asks a policy, lets the engine work, and tells the results.

A search has a window W: ask number i sees exactly the results of the asks before i - W, told in the
order of the asks, strictly one tell and then one ask. So the tree is a function of the results
alone, for any number of workers and any latencies. `order="arrival"` tells results as they come,
which keeps workers busy under heavy tails, and makes the outcome depend on timing.

What a policy drops is cancelled in the same tick: its calls end, and their memory and reservations
are back before the next ask. A refusal ends the search with what it has found. Where more than the
expansion of an ask is paid for, a limit keeps the window smaller; see `thrift`. It knows no policy.

Source: the window is that of asynchronous tree search by counts in flight, Liu et al. 2018 (arXiv
1810.11755), told in launch order.
Differs: there the simulation that ends first is told first.
Cost: a few tasks and about a tenth of a millisecond for each ask.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ttc.errors import BudgetExceeded, EngineError, Revoked
from ttc.ports import Handle, Scope, Verifier
from ttc.resources import LOGICAL
from ttc.strategies.thrift import Thrift
from ttc.strategies.tree.policy import Comparison, Expansion, Policy, Result, SearchState
from ttc.types import Branch, Candidate, Order

__all__ = ["Driver", "Expand", "Search"]

_KINDS = ("finished", "truncated", "open", "failed")

Expand = Callable[[Candidate, Expansion], Awaitable[Candidate]]
"""Extends the candidate of a node, by one call of the engine: what comes of it is open, finished or
truncated."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What the driver is to do."""

    policy: Policy[Any]
    expand: Expand
    verifier: Verifier | None = None
    """What scores a trajectory, finished or not. `None`: values are unknown."""
    window: int
    """Asks without a result at most."""
    most: Mapping[str, int]
    """What an expansion takes at most, by resource, without its prompt and without its score."""
    order: Order = "launch"
    most_given: int | None = None
    """The most candidates that are given where none of them has been found to its end."""
    learn: Callable[[Candidate, int], Awaitable[None]] | None = None
    """What is drawn from a trajectory with its score, and from the number of its ask, before the
    policy is told of it."""
    complete: Callable[[Candidate, int, Any], Candidate] | None = None
    """Adds to a candidate that is given, by its node and the policy's state."""

    @property
    def is_paid_later(self) -> bool:
        """Whether more is paid for an ask than its expansion, once that has ended."""
        verifier = self.verifier
        asks_models = verifier is not None and verifier.needs == "each" and bool(verifier.roles)
        return asks_models or self.learn is not None


@dataclass(frozen=True, kw_only=True)
class _Landed:
    """What came of a piece of work."""

    candidate: Candidate | None = None
    value: float | None = None
    is_scored: bool = False
    """Whether its verifier was asked, whatever it said."""
    twin: int | None = None
    values: dict[int, float | None] = field(default_factory=dict)
    scored: dict[int, Candidate] = field(default_factory=dict)
    """The candidates of a comparison, with their new scores."""
    refusal: BudgetExceeded | None = None


@dataclass(eq=False)
class _Flight:
    """A piece of work without a result."""

    work: Expansion | Comparison
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once every flight before it has passed."""
    has_passed: bool = False
    """Whether its verifier has been asked, or never will be."""
    handle: Handle | None = None
    is_dropped: bool = False


class Driver:
    """One search from one open candidate."""

    def __init__(self, search: Search, scope: Scope, root: Candidate, *, first: int = 0) -> None:
        """A search that has not begun.

        Args:
            search: what to do.
            scope: the scope of its node.
            root: what it starts from.
            first: added to the numbers of asks, where other searches have run in the scope.
        """
        self.state: SearchState = search.policy.init()
        """The state of the policy."""
        self._search, self._scope, self._first = search, scope, first
        self._candidates: dict[int, Candidate] = {0: root}
        self._flights: deque[_Flight] = deque()
        self._line: deque[_Flight] = deque()
        self._landed: asyncio.Queue[tuple[_Flight, _Landed]] = asyncio.Queue()
        self._twins: dict[object, int] = {}
        self._ready: deque[Candidate] = deque()
        self._thrift = Thrift(scope, search.most) if search.is_paid_later else None
        self._given = self._dropped = 0
        self._paths: set[object] = set()

    async def run(self) -> AsyncGenerator[Candidate, None]:
        """Searches, and gives what the policy has found, as it finds it.

        Where it found nothing, the best trajectories that there are come in its place. A limit ends
        it quietly.
        """
        refusal: BudgetExceeded | None = None
        self._ask()
        while self._flights and refusal is None:
            while self._ready:
                yield self._ready.popleft()
            flight, landed = await self._next()
            self._tell(flight, landed)
            refusal = landed.refusal
            if refusal is None:
                self._ask()
        if refusal is not None:
            await self._wind_down(refusal)
        if not self._given:
            self._ready.extend(self._best())
        while self._ready:
            yield self._ready.popleft()

    def _ask(self) -> None:
        """Fills the window."""
        policy = self._search.policy
        while len(self._flights) < self._search.window and self._can_pay():
            number = self._first + self.state.tree.num_asks + 1
            seed = self._scope.random("ask", number).getrandbits(64)
            self.state, work = policy.ask(self.state, seed)
            self._take()
            if work is None:
                return
            self._launch(work)

    def _can_pay(self) -> bool:
        """Whether one more ask can be paid with all that it brings. Alone it always may try."""
        if self._thrift is None:
            return True
        if not self._flights:
            self._thrift.count()
            return True
        works = (flight.work for flight in self._flights)
        has_unknown = any(isinstance(work, Expansion) and work.is_scored for work in works)
        return self._thrift.allows(has_unknown=has_unknown)

    def _launch(self, work: Expansion | Comparison) -> None:
        flight = _Flight(work)
        self._flights.append(flight)
        if self._thrift is not None:
            self._thrift.launched()
            if len(self._flights) > 1:  # what comes after one may be asked before the next ask
                self._scope.contend("tokens", "calls")
        self._line.append(flight)
        if self._line[0] is flight or self._search.order == "arrival":
            flight.turn.set()
        flight.handle = self._scope.spawn(self._landing(flight, work))

    async def _landing(self, flight: _Flight, work: Expansion | Comparison) -> _Landed:
        if isinstance(work, Expansion):
            landed = await self._expanded(flight, work)
        else:
            landed = await self._compared(flight, work)
        self._pass(flight)
        self._landed.put_nowait((flight, landed))
        return landed

    async def _next(self) -> tuple[_Flight, _Landed]:
        """The flight whose result is told next, with what came of it."""
        if self._search.order == "launch":
            flight = self._flights.popleft()
            if flight.is_dropped or flight.handle is None:
                return flight, _Landed()
            return flight, await flight.handle
        flight, landed = await self._landed.get()
        self._flights.remove(flight)
        self._scope.arrived(flight.work.id)
        return flight, landed

    def _tell(self, flight: _Flight, landed: _Landed) -> None:
        """Tells the policy, and takes what it has found and what it has dropped."""
        result = self._result(flight, landed)
        if self._thrift is not None:
            self._thrift.told(self._written(flight, landed), is_scored=landed.is_scored)
        if landed.candidate is not None and landed.twin is None and not flight.is_dropped:
            self._candidates[flight.work.id] = landed.candidate
        kept = self._candidates.keys() & landed.scored.keys()
        self._candidates |= {id: landed.scored[id] for id in kept}
        self.state = self._search.policy.tell(self.state, result)
        self._note(flight.work, landed.candidate, result)
        self._take()

    def _take(self) -> None:
        """Takes from the policy what it has found and what it has dropped."""
        given = self.state.tree.given
        for id in given[self._given :]:
            path = _tokens(self._candidates[id].branch)
            if path not in self._paths:
                self._paths.add(path)
                self._ready.append(self._completed(id))
        self._given = len(given)
        self._prune()

    def _note(
        self, work: Expansion | Comparison, candidate: Candidate | None, result: Result
    ) -> None:
        """Tells who looks at the run what became of an ask; numbers go on over all searches."""
        if isinstance(work, Comparison):
            values = {str(self._first + id): value for id, value in result.values.items()}
            self._scope.note(compared=values)
            return
        self._scope.note(
            node=self._first + work.id,
            parent=self._first + work.parent if work.parent else None,
            action=work.action,
            call=None if candidate is None else candidate.branch.call,
            status=result.status,
            value=result.value,
            twin=None if result.duplicate_of is None else self._first + result.duplicate_of,
        )

    def _completed(self, id: int) -> Candidate:
        candidate, complete = self._candidates[id], self._search.complete
        if candidate.status == "open":
            candidate = self._scope.finish(candidate, candidate.branch)
        return candidate if complete is None else complete(candidate, id, self.state)

    def _result(self, flight: _Flight, landed: _Landed) -> Result:
        id, candidate = flight.work.id, landed.candidate
        if isinstance(flight.work, Comparison):
            status = "cancelled" if flight.is_dropped else "finished"
            return Result(id=id, status=status, values=landed.values)  # type: ignore[arg-type]
        if flight.is_dropped or candidate is None:
            return Result(id=id, status="cancelled" if flight.is_dropped else "failed")
        parent = self._candidates.get(flight.work.parent)
        before = 0 if parent is None else parent.branch.num_tokens
        return Result(
            id=id,
            status=candidate.status,
            value=landed.value,
            tokens=max(0, candidate.branch.num_tokens - before),
            key=candidate.key,
            duplicate_of=landed.twin,
        )

    def _written(self, flight: _Flight, landed: _Landed) -> int:
        """The tokens that a model wrote for an ask, as far as they were kept."""
        parent = self._candidates.get(getattr(flight.work, "parent", -1))
        if landed.candidate is None or parent is None:
            return 0
        segments = landed.candidate.branch.lineage((parent.branch,))
        return sum(segment.length or 0 for segment in segments if segment.call is not None)

    def _prune(self) -> None:
        """Ends, in this tick, whatever is in flight for nodes that the policy has dropped."""
        tree = self.state.tree
        if tree.num_dropped == self._dropped:
            return
        dropped = [tree.dropped[place] for place in range(self._dropped, tree.num_dropped)]
        gone = [id for id in dropped if self._candidates.pop(id, None) is not None]
        self._dropped = tree.num_dropped
        if gone:
            self._scope.note(dropped=sorted(self._first + id for id in gone))
        for flight in self._flights:
            work = flight.work
            is_gone = isinstance(work, Expansion) and tree[work.id].status == "dropped"
            if is_gone and not flight.is_dropped and flight.handle is not None:
                flight.is_dropped = True
                flight.handle.stop()
                self._pass(flight)
                self._landed.put_nowait((flight, _Landed()))

    def _pass(self, flight: _Flight) -> None:
        """Lets those behind it ask their verifier."""
        flight.has_passed = True
        while self._line and self._line[0].has_passed:
            self._line.popleft()
        if self._line:
            self._line[0].turn.set()

    async def _expanded(self, flight: _Flight, work: Expansion) -> _Landed:
        """A child, and its score. The engine's failures are data, and so is a refusal."""
        parent = self._candidates[work.parent]
        numbered = replace(work, id=self._first + work.id)
        try:
            candidate = await self._search.expand(parent, numbered)
        except BudgetExceeded as refusal:
            return _Landed(refusal=refusal)
        except EngineError as error:
            return _Landed(candidate=replace(parent, status="failed", error=str(error)))
        await flight.turn.wait()
        path = work.parent, _tokens(candidate.branch, after=(parent.branch,))
        twin = self._twins.setdefault(path, work.id)
        if twin != work.id:
            return _Landed(candidate=candidate, twin=twin)
        verifier = self._search.verifier
        if verifier is None or verifier.needs == "all":
            return _Landed(candidate=candidate)
        if not work.is_scored and candidate.status == "open":
            return _Landed(candidate=candidate)
        self._pass(flight)  # the next one goes on once this task waits: its call comes after ours
        try:
            (score,) = await self._scope.verify(verifier, [candidate])
        except BudgetExceeded as refusal:
            return _Landed(candidate=candidate, refusal=refusal)
        scored = replace(candidate, scores={**candidate.scores, verifier.name: score})
        landed = _Landed(candidate=scored, value=score.value, is_scored=True)
        return await self._learned(landed, numbered.id)

    async def _learned(self, landed: _Landed, number: int) -> _Landed:
        """What landed, once what it teaches has been drawn from it. What failed teaches nothing."""
        if self._search.learn is None or landed.candidate is None:
            return landed
        try:
            await self._search.learn(landed.candidate, number)
        except BudgetExceeded as refusal:
            return replace(landed, refusal=refusal)
        except EngineError:
            pass
        return landed

    async def _compared(self, flight: _Flight, work: Comparison) -> _Landed:
        """The scores of nodes beside each other."""
        verifier = self._search.verifier
        candidates = {id: self._candidates[id] for id in work.nodes}
        await flight.turn.wait()
        if verifier is None:
            return _Landed()
        self._pass(flight)
        try:
            scores = await self._scope.verify(verifier, list(candidates.values()))
        except BudgetExceeded as refusal:
            return _Landed(refusal=refusal)
        pairs = dict(zip(candidates, scores, strict=True))
        return _Landed(
            values={id: score.value for id, score in pairs.items()},
            scored={
                id: replace(candidates[id], scores={**candidates[id].scores, verifier.name: score})
                for id, score in pairs.items()
            },
        )

    async def _wind_down(self, refusal: BudgetExceeded) -> None:
        """Ends what is in flight.

        Whether anything behind a call that a logical limit refused had ended depended on timing, so
        it counts for nothing. A physical limit, or one that was lowered, lets it count.
        """
        self._scope.refused(refusal)
        counts = refusal.resource not in LOGICAL or isinstance(refusal, Revoked)
        for flight in self._flights:
            if not counts and flight.handle is not None and not flight.is_dropped:
                flight.handle.stop()
        while counts and self._flights:
            flight, landed = await self._next()
            if landed.candidate is not None or flight.is_dropped:
                self._tell(flight, landed)

    def _best(self) -> list[Candidate]:
        """What there is where nothing was found to its end: the furthest kind, the best first."""
        tree = self.state.tree
        inner = {tree[id].parent for id in self._candidates}
        kinds: dict[str, list[int]] = {}
        for id, candidate in self._candidates.items():
            if id and not (candidate.status == "open" and id in inner):
                kinds.setdefault(candidate.status, []).append(id)
        furthest = next((kinds[kind] for kind in _KINDS if kind in kinds), [])
        ranked = sorted(furthest, key=lambda id: _rank(tree[id].value, id))
        return [self._completed(id) for id in ranked[: self._search.most_given]]


def _rank(value: float | None, id: int) -> tuple[bool, float, int]:
    """The order of nodes: greater values first, unknown ones last, ties by launch."""
    return value is None, -(value or 0.0), id


def _tokens(branch: Branch, after: tuple[Branch, ...] = ()) -> object:
    """The tokens of a branch, behind another one; the text where its engine has none."""
    return tuple(
        segment.text if segment.token_ids is None else segment.token_ids
        for segment in branch.lineage(after)
    )
