"""The life of one call that reads given text: its log probabilities, rewards or hidden states.

Launched, admitted, run and settled once, as a call that generates. What it is given counts as
prompt tokens, each distinct one once. It needs no seed.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ttc.budget import Account, Ticket
from ttc.call import deliver, interrupt
from ttc.errors import BudgetExceeded, ContextOverflow, EngineError, TTCError
from ttc.journal import fingerprint
from ttc.meter import Meter
from ttc.ports import Engine, Reading
from ttc.run import Run
from ttc.types import Branch, Record, Usage

__all__ = ["ReadPlan", "ScoreCall", "given_suffix"]

Values = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """What a node asked to be read."""

    path: str
    index: int
    branch: Branch
    suffixes: tuple[Branch, ...] = ()
    """Given text after the branch."""
    rows: tuple[int, ...] = ()
    """Tokens of the branch, where rewards or hidden states are asked for."""
    hidden: bool = False
    """Hidden states are asked for, and not rewards."""

    @property
    def key(self) -> str:
        """The call's name in lineages."""
        return f"{self.path}#score{self.index}"

    @property
    def ends(self) -> tuple[Branch, ...]:
        """All branches whose tokens the call is given."""
        return self.suffixes or (self.branch,)

    @property
    def num_draws(self) -> int:
        """The most tokens for which the engine's head has to be computed."""
        if self.hidden:
            return 0
        return self.num_given - self.branch.num_tokens if self.suffixes else self.num_given

    @property
    def num_given(self) -> int:
        """The tokens that the engine is sent."""
        own = (len(s.text.encode() if s.token_ids is None else s.token_ids) for s in self.suffixes)
        return self.branch.num_tokens + sum(own)

    def submit(self, engine: Engine) -> Reading:
        """Hands it to the engine."""
        if self.suffixes:
            return engine.score(self.branch, self.suffixes)
        return (engine.hidden if self.hidden else engine.reward)(self.branch, self.rows)


def given_suffix(
    branch: Branch,
    suffix: str | tuple[int, ...] | Branch,
    append: Callable[[Branch, str], Branch],
) -> Branch:
    """A suffix to score as a segment of its own.

    Raises:
        ValueError: it has no tokens.
    """
    if isinstance(suffix, Branch):
        given = suffix
    elif isinstance(suffix, str):
        given = append(branch, suffix)
    else:
        given = Branch(parent=branch, role=branch.role, text="", token_ids=suffix)
    if not given.token_ids:
        raise ValueError(f"a suffix to score has at least one token, not {suffix!r}")
    return given


class ScoreCall:
    """One call that reads."""

    def __init__(self, run: Run, account: Account, plan: ReadPlan) -> None:
        self.key = plan.key
        self.usage = Usage()
        self.cancelled = False
        self._run, self._account, self._plan = run, account, plan
        self._engine = run.engine(plan.branch.role)
        self._meter = Meter(self._engine, run.prices.get(plan.branch.role))
        if plan.hidden and not self._engine.capabilities.hidden_states:
            raise ValueError(
                f"{self.key}: the engine {self._engine.name} gives no hidden states; run on one "
                "with the capability hidden_states"
            )
        self._check_fit()
        self._ticket: Ticket | None = None
        self._reading: Reading | None = None
        self._arrival: asyncio.Future[Values] | None = None
        self.turn: asyncio.Future[int] | None = None
        self._refusal: TTCError | None = None
        self._done = False
        self._started = run.clock.now()
        self._place = run.journal.add(
            Record(path=plan.path, index=plan.index, kind="score", fingerprint=self._fingerprint())
        )
        run.opened(self)

    async def run(self) -> Values:
        """Takes its place in launch order, waits for admission, runs and settles.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            EngineError: the engine failed.
        """
        need = self._run.prompts.missing(*self._plan.ends)
        await self._run.funded(self, need=need, floor=need)
        if self._done:
            raise self._refusal or asyncio.CancelledError
        self._ticket = ticket = self._account.launch(
            self._plan.path,
            need={"tokens": 0, "calls": 1},
            prompt=(self._run.prompts, *self._plan.ends),
            price=self._worst_case,
        )
        ticket.on_revoked = self.abort
        try:
            await ticket.admitted()
            values = await self._read()
        except asyncio.CancelledError:
            self.abort()
            raise
        except BudgetExceeded as refusal:
            self.abort(refusal)
            raise
        except EngineError as error:
            self._settle(ticket, "error", error=str(error))
            own = copy.copy(error)  # an engine may give one error to many calls
            own.call = self.key
            raise own from error
        except Exception as error:
            self._settle(ticket, "error", error=str(error))
            raise
        self._settle(ticket, "stop")
        return values

    def abort(self, reason: TTCError | None = None) -> None:
        """Ends it in this tick: the engine stops, what was spent is booked, the rest comes back."""
        if self._done:
            return
        self._refusal = reason
        if self._reading is not None:
            self._reading.cancel()
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
            self._run.book(self._plan.branch.role, label)
            self._run.journal.amend(self._place, usage=self.usage)

    def _worst_case(self, tokens: int) -> dict[str, int]:
        """What it costs if nothing is cached."""
        given, costs = self._plan.num_given, self._engine.costs
        worst = self._meter.worst_case([(given, 0)])
        if costs is not None:
            worst["flops"] = costs.flops(start=0, count=given, draws=self._plan.num_draws)
        return worst

    async def _read(self) -> Values:
        loop = asyncio.get_running_loop()
        self._arrival = loop.create_future()
        self._reading = reading = self._plan.submit(self._engine)
        reading.future.add_done_callback(deliver(loop, self._arrival))
        values = await self._arrival
        if self._done:  # it was cut between its arrival and this step
            raise self._refusal or asyncio.CancelledError
        expected = self._plan.suffixes or self._plan.rows
        if len(values) != len(expected):
            raise EngineError(
                f"{self._engine.name} gave {len(values)} results where {len(expected)} were asked"
            )
        return values

    def _check_fit(self) -> None:
        context = self._engine.context
        longest = max(branch.num_tokens for branch in self._plan.ends)
        if context is not None and longest > context:
            raise ContextOverflow(
                f"{self.key}: a text of {longest} tokens does not fit the {context} tokens of "
                f"context of {self._engine.name}; shorten it"
            )

    def _fingerprint(self) -> str:
        plan = self._plan
        suffixes = tuple((segment.text, segment.token_ids) for segment in plan.suffixes)
        kind = {"hidden": True} if plan.hidden else {}
        return fingerprint(
            plan.branch, engine=self._engine.numerics, suffixes=suffixes, rows=plan.rows, **kind
        )

    def _settle(self, ticket: Ticket, finish: str, **detail: Any) -> None:
        if self._done:
            return
        tokens = ticket.prompt_tokens
        if self._reading is not None:
            given = self._plan.num_given
            self.usage += self._meter.read(self._reading, sent=given, output_tokens=0)
        self.usage += Usage(
            tokens=tokens, calls=1, tokens_cancelled=tokens if finish == "cancelled" else 0
        )
        ticket.settle({"tokens": tokens, "calls": 1, **self._meter.booked(ticket.granted)})
        self._run.book(self._plan.branch.role, self.usage)
        self._end({"finish": finish, **detail})

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
        self._run.emit("call", self._plan.path)
