"""Work: what has been started in a scope, so that it can be ended as a whole, in one tick.

A scope is work, and so is every part of it that may end by itself: a stream of chunks, a map, each
item of a map. A call belongs to the innermost work whose task made it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from ttc.errors import BudgetExceeded
from ttc.run import Abortable, Run
from ttc.types import Budget

__all__ = ["Running", "Spawned", "Work"]

U = TypeVar("U")


class Running(Abortable, Protocol):
    """A call, from its launch on."""

    @property
    def key(self) -> str:
        """Its name in lineages, as `path#index`."""

    def discard(self) -> None:
        """Ends it, and labels what it had spent as cancelled, since nobody will use it."""


class Work:
    """Calls, tasks, and work inside it."""

    def __init__(self, run: Run, path: str, scope: Work | None = None) -> None:
        """Work of a run.

        Args:
            run: the run.
            path: the path of the node.
            scope: the scope that it is a part of; `None` for a scope itself.
        """
        self.path = path
        """The path of the node whose work it is."""
        self.calls: list[Running] = []
        """Its own calls, in launch order."""
        self._run = run
        self._scope = scope
        self._parts: list[Work] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._ended = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing may be started in it any more."""
        return self._ended

    @property
    def budget(self) -> Budget:
        """The problem's limits."""
        return self._run.account.limit

    @property
    def elapsed(self) -> float:
        """Seconds since the problem's start."""
        return self._run.clock.now() - self._run.started

    def part(self) -> Work:
        """A part of it that can be ended by itself."""
        return self.add(Work(self._run, self.path, self._scope or self))

    def add(self, part: Work) -> Work:
        """Takes on other work, which ends with it."""
        self._parts.append(part)
        if self._ended:
            part.close()
        return part

    def innermost(self) -> Work:
        """The part of this scope whose task is running, or the scope itself."""
        work = _current.get()
        return work if work is not None and (work._scope or work) is self else self

    def task(self, work: Coroutine[Any, Any, U]) -> asyncio.Task[U]:
        """Starts a task that ends with the work, and that the run waits for before it ends."""
        context = contextvars.copy_context()
        context.run(_current.set, self)
        task = self._run.task(work, context, self._tasks.pop)
        self._tasks[task] = None
        return task

    def refused(self, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended a stream."""
        if self._scope is not None:
            self._scope.refused(refusal)

    def cancel(self, keep: frozenset[str]) -> None:
        """Cancels every call; what calls outside `keep` had spent is labelled as cancelled."""
        for part in self._parts:
            part.cancel(keep)
        for call in self.calls:
            if call.key not in keep:
                call.discard()
        self.close()

    def close(self) -> None:
        """Cancels what still runs. What has ended stands."""
        if self._ended:
            return
        self._ended = True
        for part in self._parts:
            part.close()
        for call in self.calls:
            call.abort()
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        self.on_close()

    def release(self) -> None:
        """Forgets everything, once the run is over: so that it goes with its last user."""
        for part in self._parts:
            part.release()
        self._parts.clear()
        self.calls.clear()

    def on_close(self) -> None:
        """What else has to happen once it has ended."""


class Spawned(Generic[U]):
    """A task that a node spawned, with all that it has started; implements `ttc.ports.Handle`."""

    def __init__(self, task: asyncio.Task[U], part: Work) -> None:
        self._task, self._part = task, part

    def cancel(self) -> bool:
        """Cancels it; what it had spent is booked."""
        return self._task.cancel()

    def stop(self) -> None:
        """Ends it in this tick; what its calls had spent is labelled as cancelled."""
        self._part.cancel(frozenset())

    def __await__(self) -> Generator[Any, None, U]:
        return self._task.__await__()


_current: contextvars.ContextVar[Work | None] = contextvars.ContextVar("ttc_work", default=None)
