"""What a verifier call and a call of a tool have in common: once admitted, it is spent.

Nothing of it comes back, so it is settled and booked at once; then it works in a scope of its own,
and is ended in one tick where it must be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from ttc.budget import Account, Ticket
from ttc.engine_call import interrupt
from ttc.errors import BudgetExceeded, EngineError, NodeError, RecordError, SandboxError, TTCError
from ttc.ports import Scope
from ttc.run import Run
from ttc.stopwatch import Part
from ttc.types import Record
from ttc.usage import NO_USAGE, Usage
from ttc.work import Work

__all__ = ["PASSED_ON", "SpentCall"]

PASSED_ON = (BudgetExceeded, NodeError, RecordError, SandboxError)
"""Errors inside such a call that are the run's, and not the verifier's or the tool's."""

T = TypeVar("T")


class SpentCall(Generic[T]):
    """A call that is charged whole once it is admitted, and works in a scope of its own."""

    def __init__(
        self, run: Run, account: Account, inside: tuple[Work, Scope], *, label: str, record: Record
    ) -> None:
        """A call.

        Args:
            run: the run.
            account: what it draws on.
            inside: the scope in which it works, as work and as a port.
            label: what it is called within its node.
            record: what the journal holds of it from now on.
        """
        self._work, self._scope = inside
        self._path = record.path
        self.key = f"{self._path}#{label}"
        self._run, self._account = run, account
        self._usage = NO_USAGE
        self._admitted = self._done = False
        self._refusal: TTCError | None = None
        self._started = run.clock.now()
        self._ticket: Ticket | None = None
        self._arrival: asyncio.Future[T] | None = None
        self._place = run.journal.add(record)
        run.opened(self)

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick, with all that it had started."""
        if self._done:
            return
        self._refusal = reason
        refusal = reason if isinstance(reason, BudgetExceeded) else None
        if self._admitted:
            self._run.cut = True
            self._end({"cut": True})
        else:
            if self._ticket is not None:
                self._ticket.cancel(reason)
            self._end({"refused": refusal.resource if refusal else "cancelled"})
        interrupt(self._arrival, reason)

    def discard(self) -> None:
        """Ends it, and labels what it asked of engines as cancelled."""
        self.abort()
        self._work.cancel(frozenset())
        if not self._admitted:
            self._drop()

    def _drop(self) -> None:
        """Takes a call that never began out of the journal."""
        self._run.journal.drop(self._place)

    async def _spend(
        self,
        need: Mapping[str, int],
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        kind: Part,
        role: str,
    ) -> T:
        """Waits for admission, then for the work.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            EngineError: it was ended by hand.
        """
        self._ticket = self._account.launch(self._path, need=need)
        try:
            await self._ticket.admitted()
            self._ticket.settle(need)  # nothing of it ever comes back
            self._usage = Usage(**need)
            self._admitted = True
            self._run.admitted(self, kind)
            self._run.book(role, self._usage)
            self._arrival = asyncio.get_running_loop().create_future()
            self._work.task(work()).add_done_callback(self._receive)
            result = await self._arrival
            if self._done:
                raise self._refusal or asyncio.CancelledError
        except BudgetExceeded as refusal:
            if not self._done:
                self._end({"refused": refusal.resource})
            raise
        except EngineError:
            raise
        except BaseException:
            self.abort()
            raise
        return result

    def _receive(self, work: asyncio.Task[T]) -> None:
        if self._arrival is None or self._arrival.done():
            return
        if work.cancelled():
            self._arrival.cancel()
        elif (error := work.exception()) is not None:
            self._arrival.set_exception(error)
        else:
            self._arrival.set_result(work.result())

    def _end(self, detail: Mapping[str, Any]) -> None:
        self._done = True
        self._run.closed(self)
        self._work.close()
        seconds = self._run.clock.now() - self._started
        self._run.journal.amend(self._place, detail=detail, usage=self._usage, seconds=seconds)
        self._run.emit("call", self._path)
