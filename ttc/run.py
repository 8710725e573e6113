"""The state of one problem's run: ledger, journal, engines, clock, tasks, and what ended it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeVar

from ttc.budget import Account, PromptTree
from ttc.errors import BudgetExceeded
from ttc.journal import Journal
from ttc.ports import Clock, Engine, Timer
from ttc.types import Branch, Candidate, Event, Problem, Usage

__all__ = ["Abortable", "Run"]

U = TypeVar("U")
_log = logging.getLogger(__name__)


class Abortable(Protocol):
    """Work that a deadline cuts."""

    def abort(self, refusal: BudgetExceeded | None = None) -> None:
        """Ends it in this tick and books what it had spent."""


class Run:
    """What the scopes of one problem share: ledger, journal, engines, clock, seed."""

    def __init__(
        self,
        problem: Problem,
        engines: Mapping[str, Engine],
        account: Account,
        *,
        seed: int,
        clock: Clock,
        watch: Callable[[Event], None] | None = None,
    ) -> None:
        self.problem, self.engines, self.account = problem, engines, account
        self.seed, self.clock, self.watch = seed, clock, watch
        self.prompts = PromptTree()
        self.journal = Journal()
        self.usage_by_role: dict[str, Usage] = {}
        self.considered: dict[Branch, Candidate] = {}
        """What selectors have read, by branch; a later reading replaces an earlier one."""
        self.decision: str | None = None
        """The last rule that ended something early."""
        self.limit: str | None = None
        """The resource whose limit ended something."""
        self.refusal: BudgetExceeded | None = None
        self.timing: dict[str, None] = {}
        """What made the result depend on timing, in order."""
        self.cut = False
        """Whether a running call was ever cancelled."""
        self.oracle = False
        self.roots: dict[str, Branch] = {}
        self.started = clock.now()
        self.deadline: float | None = None
        self._calls: dict[Abortable, None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: Timer | None = None

    @property
    def usage(self) -> Usage:
        """Everything that was spent until now."""
        total = sum(self.usage_by_role.values(), Usage())
        return replace(total, seconds=self.clock.now() - self.started)

    def engine(self, role: str) -> Engine:
        """The engine of a role."""
        return self.engines[role]

    def book(self, role: str, usage: Usage) -> None:
        """Adds to what a role has spent."""
        self.usage_by_role[role] = self.usage_by_role.get(role, Usage()) + usage

    def emit(
        self,
        kind: Literal["call", "candidate", "decision"],
        path: str,
        candidate: Candidate | None = None,
    ) -> None:
        """Tells whoever watches; a watcher that fails is logged and changes nothing."""
        if self.watch is None:
            return
        try:
            self.watch(Event(kind=kind, path=path, usage=self.usage, candidate=candidate))
        except Exception:  # noqa: BLE001 - a watcher is not a part of the run
            _log.exception("a watcher failed")

    def consider(self, path: str, candidate: Candidate) -> None:
        """Notes that a selector has read a candidate."""
        self.considered[candidate.branch] = candidate
        self.emit("candidate", path, candidate)

    def task(self, work: Coroutine[Any, Any, U]) -> asyncio.Task[U]:
        """Starts a task that `join` waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever awaits the task sees it; nobody else needs a warning

    async def join(self) -> None:
        """Ends every task of the run, those too that ignore a first cancellation."""
        if self._timer is not None:
            self._timer.cancel()
        for _ in range(100):
            if not self._tasks:
                return
            await asyncio.wait(self._tasks, timeout=0.05)
            for task in self._tasks:
                task.cancel()
        _log.error("%d tasks of a run ignore their cancellation", len(self._tasks))

    # Limits

    def expire_at(self, deadline: float) -> None:
        """Sets the moment at which calls are cancelled and no further one starts."""
        self.deadline = deadline
        self._timer = self.clock.call_later(max(0.0, deadline - self.clock.now()), self._expire)

    def check_deadline(self) -> None:
        """Refuses a call after the deadline.

        Raises:
            BudgetExceeded: the deadline has passed.
        """
        if self.deadline is not None and self.clock.now() >= self.deadline:
            raise self._late(self.deadline)

    def _late(self, deadline: float) -> BudgetExceeded:
        allowed = deadline - self.started
        return BudgetExceeded("seconds", needed=0, remaining=0, limit=allowed)

    def _expire(self) -> None:
        for call in list(self._calls):
            call.abort(self._late(self.deadline or 0.0))

    def refused(self, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended something."""
        self.limit = self.limit or refusal.resource
        self.refusal = self.refusal or refusal
        self.limit_acted(refusal.resource)

    def limit_acted(self, resource: str) -> None:
        """Notes what a limit that acted means for repeating the run."""
        if resource == "seconds":
            self.timing["a physical limit acted: seconds"] = None
        elif self.cut:
            self.timing[f"the limit of {resource} acted after a cancellation"] = None
        elif resource in self.account.root.contended:
            self.timing[f"the limit of {resource} acted while several nodes drew on it"] = None

    def opened(self, call: Abortable) -> None:
        """Notes a call that may have to be aborted."""
        self._calls[call] = None

    def closed(self, call: Abortable) -> None:
        """Forgets a call that has ended."""
        self._calls.pop(call, None)
