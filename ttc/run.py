"""The state of one problem's run: ledger, journal, engines, clock, tasks, and what ended it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ttc.budget import LOGICAL, MEASURED, Account
from ttc.errors import BudgetExceeded, EngineError, Revoked, TTCError
from ttc.frozen import changed
from ttc.journal import Journal, in_order
from ttc.ports import Clock, Engine, Timer
from ttc.prices import Price
from ttc.prompt_tree import PromptTree
from ttc.safe_text import safe_logger
from ttc.stopwatch import Part, Stopwatch
from ttc.types import Branch, Budget, Candidate, Event, EventKind, Problem, Record
from ttc.unscored import Unscored
from ttc.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from ttc.allocate import Bidder
    from ttc.sandbox.zygote import SandboxChoice
    from ttc.tools.port import ToolResult

__all__ = ["EPSILON_S", "GRACE_S", "Abortable", "Run"]

GRACE_S = 0.5
"""How long nodes may still work after a deadline, to give the best that they have."""

EPSILON_S = 1.0
"""How long after its deadline a run returns at the latest.

That is `GRACE_S`, a quarter of a second for work that ignores its cancellation, and as much for a
busy machine. It holds as long as nobody blocks the event loop: what computes or waits without
`await` belongs into `asyncio.to_thread`.
"""

_PATIENCE_S = 0.05
_MOST_CANCELLATIONS = 100
_MOST_LATE_CANCELLATIONS = 5

U = TypeVar("U")
_log = safe_logger(__name__)


def _nothing() -> None:
    """Nothing."""


class Abortable(Protocol):
    """Work that a deadline cuts."""

    @property
    def key(self) -> str:
        """Its name in lineages, as `path#index`."""

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick and books what it had spent; who waits for it is given a reason."""


class Funded(Abortable, Protocol):
    """An engine call, as far as an allocator sees it."""

    key: str
    usage: Usage
    cancelled: bool
    turn: asyncio.Future[int] | None
    """What it waits for."""


class Closable(Protocol):
    """A stream, as far as a run ends it."""

    @property
    def has_ended(self) -> bool:
        """Whether it has given its last item, or was ended."""

    def close(self) -> None:
        """Ends it."""


class Run:
    """What the scopes of one problem share: ledger, journal, engines, clock, seed."""

    oracle = False
    """Whether a verifier knew the right answer."""
    actor: str | None = None
    """The path of the one node whose tools act on the world."""

    def __init__(
        self,
        problem: Problem,
        engines: Mapping[str, Engine],
        account: Account,
        *,
        seed: int,
        clock: Clock,
        watch: Callable[[Event], None] | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.demands: Mapping[str, frozenset[str]] = {}
        """What the graph needs of the engine of each role."""
        self.journal = journal or Journal()
        self.problem, self.account = problem, account
        self.engines = {role: self.journal.engine(engine) for role, engine in engines.items()}
        self.prices: dict[str, Price] = {}
        """By role; calls that are launched from now on are paid by them."""
        self.seed, self.clock, self.watch = seed, clock, watch
        self.prompts, self.unscored = PromptTree(), Unscored.current()
        self.usage_by_role: dict[str, Usage] = {}
        self.timing: dict[str, None] = {}
        """What made the result depend on timing, in order."""
        self.cut = False
        """Whether a running call was ever cancelled."""
        self.discarded: set[str] = set()
        """Calls that a stop came before, whose candidates nobody will miss."""
        self.bidder: Bidder | None = None
        """What gives its calls their units, where the run has an allocator."""
        self.sandbox: SandboxChoice = "auto"
        """How safely programs have to be run."""
        self.roots: dict[str, Branch] = {}
        self.on_overdue: Callable[[], None] = _nothing
        """What ends the run if nodes do not, `GRACE_S` after the deadline."""
        self.started = clock.now() - self.journal.elapsed
        self.deadline: float | None = None
        self._calls: dict[Abortable, None] = {}
        self._parts: dict[Abortable, Part] = {}
        self._stopwatch = Stopwatch(clock.now())
        # The deadline can be seen at `_due` first, as one may be moved into the past.
        self._joined, self._due = False, 0.0
        self._tasks: dict[asyncio.Task[Any], Callable[[asyncio.Task[Any]], object]] = {}
        self._timer: Timer | None = None
        self._ended_by: BudgetExceeded | None = None
        self._num_decisions = {p: n - 1 for p, n in self.journal.num_decisions.items()}
        self._considered: dict[str, dict[Branch, Candidate]] = {}
        self._readings: list[tuple[str, Closable]] = []
        self._chosen: dict[str, Candidate] = {}
        self._refusals: dict[str, BudgetExceeded] = {}
        self._decisions: dict[str, str] = {}
        if self.journal.tokens_lost:
            self.book("lost", Usage(tokens_lost=self.journal.tokens_lost))

    @cached_property
    def tool_results(self) -> dict[str, asyncio.Future[ToolResult]]:
        """What pure calls of tools came to, or will."""
        return {}

    @property
    def owner(self) -> str:
        """What stands for the whole run, over all its problems, where an engine shares itself."""
        return f"{id(self.account.root):x}"

    @property
    def considered(self) -> tuple[Candidate, ...]:
        """What selectors have read, each branch as it was read last, in launch order.

        What a selector had read before it was itself stopped does not count: that it came so far
        depended on timing.
        """
        merged: dict[Branch, Candidate] = {}
        for path in sorted(self._considered, key=in_order):
            merged.update(self._considered[path])
        return tuple(c for c in merged.values() if c.branch.call not in self.discarded)

    @property
    def usage(self) -> Usage:
        """Everything that was spent until now."""
        total = sum(self.usage_by_role.values(), NO_USAGE)
        return changed(total, seconds=self.clock.now() - self.started)

    def engine(self, role: str) -> Engine:
        """The engine of a role."""
        return self.engines[role]

    def book(self, role: str, usage: Usage) -> None:
        """Adds to what a role has spent: the one place where any line is booked.

        A limit on what is only measured acts here, once it is reached.
        """
        self.usage_by_role[role] = self.usage_by_role.get(role, NO_USAGE) + usage
        for resource in MEASURED:
            self._check_measured(resource)

    def _check_measured(self, resource: str) -> None:
        limit = getattr(self.account.limit, resource)
        if limit is not None and self._ended_by is None and self._spent(resource) >= limit:
            self._ended_by = BudgetExceeded(resource, needed=0, remaining=0, limit=limit)
            asyncio.get_running_loop().call_soon(self._expire)

    @property
    def measurable(self) -> dict[str, Any]:
        """What is left of each limit on what is only measured."""
        limits = {resource: getattr(self.account.limit, resource) for resource in MEASURED}
        return {
            r: None if limit is None else max(0.0, limit - self._spent(r))
            for r, limit in limits.items()
        }

    def _spent(self, resource: str) -> float:
        return sum(getattr(usage, resource) or 0.0 for usage in self.usage_by_role.values())

    def emit(self, kind: EventKind, path: str, **what: Any) -> None:
        """Tells whoever watches; a watcher that fails is logged and changes nothing."""
        if self.watch is None:
            return
        by_role = dict(self.usage_by_role)
        try:
            self.watch(Event(kind=kind, path=path, usage=self.usage, by_role=by_role, **what))
        except Exception:  # noqa: BLE001 - a watcher is not a part of the run
            _log.exception("a watcher failed")

    def consider(self, path: str, candidate: Candidate) -> None:
        """Notes that a selector has read a candidate."""
        self._considered.setdefault(path, {})[candidate.branch] = candidate
        self.journal.met(path, "read", candidate)
        if self.bidder is not None:
            self.bidder.took(candidate)
        self.emit("candidate", path, candidate=candidate)

    def reads(self, path: str, stream: Closable) -> None:
        """Notes what a selector reads."""
        self._readings.append((path, stream))

    def chose(self, path: str, candidate: Candidate) -> None:
        """Notes what a selector has chosen."""
        self._chosen[path] = candidate
        self.journal.met(path, "chose", candidate)

    @property
    def best(self) -> Candidate | None:
        """What the most downstream selector chose, for a run that a limit ended after it."""
        return self._chosen[max(self._chosen, key=in_order)] if self._chosen else None

    def task(
        self,
        work: Coroutine[Any, Any, U],
        context: contextvars.Context,
        on_done: Callable[[asyncio.Task[Any]], object],
    ) -> asyncio.Task[U]:
        """Starts a task that `join` waits for; `on_done` is told of its end."""
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._tasks[task] = on_done
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task)(task)
        if not task.cancelled():
            task.exception()  # whoever awaits the task sees it; nobody else needs a warning

    async def join(self) -> None:
        """Ends every task of the run, those too that ignore a first cancellation.

        After a deadline there is little patience with these, and they are left behind. Whoever
        cancels it meanwhile is heard once all have ended.
        """
        self._joined = True
        if self._timer is not None:
            self._timer.cancel()
        cancelled: asyncio.CancelledError | None = None
        most = _MOST_LATE_CANCELLATIONS if self._ended_by else _MOST_CANCELLATIONS
        for _ in range(most):
            if not self._tasks:
                break
            try:
                await asyncio.wait(self._tasks, timeout=_PATIENCE_S)
            except asyncio.CancelledError as again:
                cancelled = again
            for task in list(self._tasks):
                task.cancel()
        else:
            _log.error("%d tasks of a run ignore their cancellation", len(self._tasks))
        if cancelled is not None:
            raise cancelled

    def release(self) -> None:
        """Forgets what refers back to it, once it is over: so that it goes with its last user."""
        self.on_overdue = _nothing
        self._readings.clear()
        self.account.release()

    # Limits

    def expire_at(self, deadline: float) -> None:
        """Sets the moment at which calls are cancelled and no further one starts."""
        self.deadline = deadline
        self._due = max(deadline, self.clock.now())
        self._timer = self.clock.call_later(self._due - self.clock.now(), self._expire)

    def check_deadline(self) -> None:
        """Refuses a call after the deadline, or once another measured limit is reached.

        Raises:
            BudgetExceeded: with the limit that ended the run.
        """
        if self.deadline is not None and self.clock.now() >= self.deadline:
            self._ended_by = self._ended_by or self._late(self.deadline)
        if self._ended_by is not None:
            raise self._ended_by

    def set_limits(self, limit: Budget) -> None:
        """Changes what may be spent; what no longer fits is ended, the newest first."""
        self.account.limit = limit
        self.account.wind_down()
        if self._ended_by is not None:
            return
        for resource in MEASURED:
            self._check_measured(resource)
        deadline = None if limit.seconds is None else self.started + limit.seconds
        if deadline == self.deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.deadline = None
        if deadline is not None:
            self.expire_at(deadline)

    def changed(self, what: str, limit: float | None) -> None:
        """Notes that somebody changed a limit by hand."""
        self.timing[f"the limit of {what} was changed"] = None
        self.record("", rule="limit_changed", resource=what, limit=limit)

    def repriced(self, price: Price) -> None:
        """Notes that somebody changed what a model costs by hand."""
        told = {n: None if v is None else str(v) for n, v in vars(price).items()}
        self.record("", rule="price_changed", model=price.model, price=told)

    def arrived(self, path: str, launched: int) -> None:
        """Records which item a node took next, where it asked for the order in which they end."""
        self.timing["arrival order was asked for"] = None
        self.record(path, rule="arrival_order", launched=launched)

    def record(self, path: str, usage: Usage | None = None, **detail: Any) -> None:
        """Records a decision of a node, or of the whole run, and what it took."""
        index = self._num_decisions[path] = self._num_decisions.get(path, -1) + 1
        record = Record(
            path=path, index=index, kind="decision", detail=detail, usage=usage or NO_USAGE
        )
        self.journal.add(record)

    def cancel(self) -> None:
        """Ends it by hand; the best so far is the result."""
        if self._ended_by is None:
            self.record("", rule="run_cancelled")
            self._ended_by = Revoked()
            self._expire()

    def cancel_call(self, key: str) -> None:
        """Ends one call by hand; its candidate is cancelled, and its siblings go on."""
        for call in [call for call in self._calls if call.key == key]:
            self.timing["a call was cancelled by hand"] = None
            self.record("", rule="call_cancelled", call=key)
            call.abort(EngineError("it was cancelled by hand"))

    @property
    def running(self) -> list[str]:
        """The calls that have not ended, as `path#index`."""
        return [call.key for call in self._calls]

    def _late(self, deadline: float) -> BudgetExceeded:
        allowed = deadline - self.started
        return BudgetExceeded("seconds", needed=0, remaining=0, limit=allowed)

    def _expire(self) -> None:
        """Ends every call, since a measured limit is reached."""
        if self._joined:
            return
        self._tell_if_late()
        self._ended_by = reached = self._ended_by or self._late(self.deadline or 0.0)
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self._calls):
            call.abort(reached)
        self._timer = self.clock.call_later(GRACE_S / 2, self._end_reading)

    def _end_reading(self) -> None:
        """Lets selectors choose among what they have read, though more should have come."""
        reached = self._ended_by or self._late(self.deadline or 0.0)
        for path, stream in self._readings:
            if not stream.has_ended:
                self.limit_acted(reached.resource)
                self.refused(path, reached)
                stream.close()
        self._timer = self.clock.call_later(GRACE_S / 2, self._give_up)

    def _tell_if_late(self) -> None:
        """A timer that comes late means that somebody kept the event loop from running."""
        late = 0.0 if self.deadline is None else self.clock.now() - self._due
        if self._ended_by is None and late > GRACE_S:
            _log.warning(
                "a deadline was seen %.1f s late, since something blocked the event loop; what "
                "computes or waits without await belongs into asyncio.to_thread",
                late,
            )

    def _give_up(self) -> None:
        reached = self._ended_by or self._late(self.deadline or 0.0)
        self.limit_acted(reached.resource)
        self.refused("", reached)
        self.on_overdue()

    @property
    def refusal(self) -> BudgetExceeded | None:
        """What a limit ended something with; of several, the most downstream one."""
        return self._refusals[max(self._refusals, key=in_order)] if self._refusals else None

    def refused(self, path: str, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended something."""
        self._refusals.setdefault(path, refusal)

    def forget(self, path: str) -> None:
        """Takes back why a node ended, since a stop downstream overtook it."""
        self._refusals.pop(path, None)
        self._decisions.pop(path, None)

    @property
    def decisions(self) -> list[str]:
        """What nodes decided, the most downstream one last."""
        return [self._decisions[path] for path in sorted(self._decisions, key=in_order)]

    def decided(self, path: str, kind: str) -> None:
        """Notes what a node decided."""
        self._decisions[path] = kind
        self.emit("decision", path, rule=kind)

    def limit_acted(self, resource: str) -> None:
        """Notes what a limit that acted means for repeating the run."""
        if resource in ("allocator", "pool"):
            return  # they know nothing of timing
        if resource == "cancelled":
            self.timing["the run was cancelled by hand"] = None
        elif resource not in LOGICAL:
            self.timing[f"a physical limit acted: {resource}"] = None
        elif self.cut:
            self.timing[f"the limit of {resource} acted after a cancellation"] = None
        elif resource in self.account.root.contention.resources:
            self.timing[f"the limit of {resource} acted while several nodes drew on it"] = None

    async def funded(self, call: Funded, *, need: int, floor: int) -> int:
        """The tokens that a call may cost: its worst case, or less where an allocator has less.

        Raises:
            BudgetExceeded: the allocator gives it none; it is aborted.
        """
        if self.bidder is None:
            return need
        call.turn = self.bidder.request(call, need=need, floor=floor)
        try:
            return min(need, await call.turn)
        except BaseException as end:
            call.abort(end if isinstance(end, TTCError) else None)
            raise

    def ended(self, call: Funded) -> None:
        """Tells the allocator that a call has ended, and what it cost."""
        if self.bidder is not None:
            self.bidder.closed(call.key, call.usage, is_cancelled=call.cancelled)

    def discard(self, key: str) -> None:
        """Notes that a stop came before anyone used a call."""
        self.discarded.add(key)
        if self.bidder is not None:
            self.bidder.discarded(key)

    @property
    def seconds_by(self) -> dict[str, float]:
        """Where the time went; what a run had taken before a kill stands apart."""
        before = {"before": self.journal.elapsed} if self.journal.elapsed else {}
        return before | self._stopwatch.read(self.clock.now())

    def opened(self, call: Abortable, part: Part = "waiting") -> None:
        """Notes a call that may have to be aborted, and what it does."""
        self._calls[call] = None
        self._parts[call] = part
        self._stopwatch.enter(part, self.clock.now())
        if call.key in self.journal.cancelled_calls:
            asyncio.get_running_loop().call_soon(self.cancel_call, call.key)

    def admitted(self, call: Abortable, part: Part) -> None:
        """Notes that a call waits no longer, and what it does."""
        now, before = self.clock.now(), self._parts.get(call)
        if before is not None:
            self._parts[call] = part
            self._stopwatch.leave(before, now)
            self._stopwatch.enter(part, now)

    def closed(self, call: Abortable) -> None:
        """Forgets a call that has ended."""
        self._calls.pop(call, None)
        part = self._parts.pop(call, None)
        if part is not None:
            self._stopwatch.leave(part, self.clock.now())
