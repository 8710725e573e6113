"""What all calls of an engine share: launched, admitted, run and settled once.

`abort` ends one within one tick, whatever it is doing. A call is handed to the engine in the very
step in which it is admitted, so what is charged was sent. What an engine refuses in that step
counts as a call, and nothing else of it is charged.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal, TypeVar

from ttc.budget import Account, Ticket
from ttc.errors import BudgetExceeded, EngineError, PoolExhausted, TTCError
from ttc.frozen import changed
from ttc.meter import Meter
from ttc.postbox import post
from ttc.run import Run
from ttc.types import Branch, Record
from ttc.usage import NO_USAGE, Usage

__all__ = ["EngineCall", "deliver", "interrupt"]

T = TypeVar("T")


class EngineCall(ABC):
    """One call of an engine, from its launch to its end."""

    def __init__(self, run: Run, account: Account, *, path: str, key: str, branch: Branch) -> None:
        """A call; `_enter` launches it.

        Args:
            run: the run.
            account: what it draws on.
            path: the path of the node that asks.
            key: its name in lineages.
            branch: what the engine of its role is given.
        """
        self.key = key
        self.usage = NO_USAGE
        self.cancelled = False
        self.turn: asyncio.Future[int] | None = None
        self._run, self._account, self._path = run, account, path
        self._given, self._charged = branch, branch.role
        self._engine = run.engine(branch.role)
        self._meter = Meter(self._engine, run.prices.get(branch.role))
        self._ticket: Ticket | None = None
        self._arrival: asyncio.Future[Any] | None = None
        self._refusal: TTCError | None = None
        self._done = False
        self._is_sent = False
        self._started = run.clock.now()
        self._place = -1

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick: the engine stops, what was spent is booked, the rest comes back."""
        if self._done:
            return
        self._refusal = reason
        self._stop()
        ticket = self._ticket
        if ticket is not None and ticket.state == "open":
            self.cancelled = self._run.cut = True
            self._settle(ticket, "cancelled")
        else:
            if ticket is not None:
                ticket.cancel(reason)
            refusal = reason if isinstance(reason, BudgetExceeded) else None
            self._end({"refused": refusal.resource if refusal else "cancelled"})
        interrupt(self.turn, reason)
        interrupt(self._arrival, reason)

    def discard(self) -> None:
        """Labels what it had spent as cancelled, since a stop came before anyone used it."""
        self._run.discard(self.key)
        if not self._done:
            self.abort()
        if not self.usage.calls:
            self._run.journal.drop(self._place)  # as if it had never been
        elif not self.cancelled:
            self.cancelled = self._run.cut = True
            label = Usage(tokens_cancelled=self.usage.tokens)
            self.usage += label
            self._run.book(self._charged, label)
            self._run.journal.amend(self._place, usage=self.usage)

    @abstractmethod
    def _stop(self) -> None:
        """Ends what the engine does for it."""

    @abstractmethod
    def _settle(self, ticket: Ticket, finish: str | None, **detail: Any) -> None:
        """Books what it came to, unless that has been done."""

    @abstractmethod
    def _failed(self, error: EngineError) -> None:
        """Counts what a call had produced that failed."""

    def _enter(self, kind: Literal["call", "score"], index: int, fingerprint: str) -> None:
        """Takes its place in the trace."""
        self._place = self._run.journal.add(
            Record(path=self._path, index=index, kind=kind, fingerprint=fingerprint)
        )
        self._run.opened(self)

    async def _serve(self, ticket: Ticket, work: Callable[[Ticket], Awaitable[T]]) -> T:
        """Waits for admission and does the work; whatever goes wrong is booked.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            EngineError: the engine failed.
        """
        self._ticket, ticket.on_revoked = ticket, self.abort
        try:
            await ticket.admitted()
            self._run.admitted(self, "engine")
            self._run.emit("admitted", self._path, call=self.key, branch=self._given)
            return await work(ticket)
        except asyncio.CancelledError:
            self.abort()
            raise
        except BudgetExceeded as refusal:
            self.abort(refusal)
            raise
        except EngineError as error:
            self._failed(error)
            self._settle_fault(ticket, error)
            own = copy.copy(error)  # an engine may give one error to many calls
            own.call = self.key
            raise own from error
        except PoolExhausted as dry:
            self._withdraw(ticket)
            if self._run.bidder is None:
                raise
            raise dry.as_limit() from None  # an allocator gives as many as there are
        except Exception as error:
            self._settle_fault(ticket, error)
            raise

    def _settle_fault(self, ticket: Ticket, error: Exception) -> None:
        """Books what failed; where the engine took nothing, its prompt is still to be paid."""
        if not (self._is_sent or self._done):
            self._unmark(ticket)
        self._settle(ticket, "error", error=str(error))

    def _check_cut(self) -> None:
        if self._done:
            raise self._refusal or asyncio.CancelledError

    def _withdraw(self, ticket: Ticket) -> None:
        """Gives everything back: it was admitted, and a pool had nothing for it."""
        self._unmark(ticket)
        ticket.settle({})
        self._end({"refused": "pool"})

    def _unmark(self, ticket: Ticket) -> None:
        """Leaves the prompt to whoever asks next: nothing was sent in the step of its admission."""
        if ticket.prompt_tokens:
            ticket.prompt_tokens = 0
            self._run.prompts.take_back()

    def _book(self, ticket: Ticket, tokens: int, **detail: Any) -> None:
        """Books what it used, and how it ended."""
        cancelled = tokens if detail["finish"] == "cancelled" else 0
        self.usage = changed(self.usage, tokens=tokens, calls=1, tokens_cancelled=cancelled)
        ticket.settle({"tokens": tokens, "calls": 1, **self._meter.booked(ticket.granted)})
        self._run.book(self._charged, self.usage)
        if self._charged != "policy":
            detail["role"] = self._charged
        self._end(detail)

    def _end(self, detail: Mapping[str, Any]) -> None:
        self._done = True
        self._run.closed(self)
        self._run.journal.amend(
            self._place,
            detail=detail,
            usage=self.usage,
            seconds=self._run.clock.now() - self._started,
        )
        self._run.ended(self)
        self._run.emit("call", self._path, call=self.key, finish=detail.get("finish"))


def deliver(
    loop: asyncio.AbstractEventLoop, arrival: asyncio.Future[T]
) -> Callable[[Future[T]], None]:
    """Carries an engine's result from its thread into the event loop of the call."""

    def receive(future: Future[T]) -> None:
        if arrival.done():
            return
        if future.cancelled():
            arrival.set_exception(EngineError("the engine gave the call up"))
            return
        error = future.exception()
        if isinstance(error, EngineError):
            arrival.set_exception(error)
        elif error is not None:
            arrival.set_exception(EngineError(f"{type(error).__name__}: {error}"))
        else:
            arrival.set_result(future.result())

    return lambda future: post(loop, receive, future)


def interrupt(arrival: asyncio.Future[Any] | None, reason: TTCError | None) -> None:
    """Ends the wait for an arrival that will not come."""
    if arrival is None or arrival.done():
        return
    if reason is None:
        arrival.cancel()
    else:
        arrival.set_exception(reason)
        arrival.exception()  # whoever waits sees it; if nobody does, nobody needs a warning
