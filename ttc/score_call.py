"""The life of a call that reads given text: for scores, next tokens, rewards or hidden states.

Launched, admitted, run and settled once, as a call that generates. What it is given counts as
prompt tokens, each distinct one once. It needs no seed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from ttc.budget import Account, Ticket
from ttc.engine_call import EngineCall, deliver
from ttc.errors import ContextOverflow, EngineError
from ttc.journal import fingerprint
from ttc.ports import Engine, Reading
from ttc.run import Run
from ttc.types import Branch

__all__ = ["ReadPlan", "ScoreCall"]

Values = tuple[Any, ...]


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
    at: tuple[int, ...] = ()
    """After how many tokens of the branch it is asked what comes next."""
    top: int = 0
    """How many of the most probable next tokens."""

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
        if self.suffixes:
            return self.num_given - self.branch.num_tokens
        return len(self.at) or self.num_given

    @property
    def num_given(self) -> int:
        """The tokens that the engine is sent."""
        own = (len(s.text.encode() if s.token_ids is None else s.token_ids) for s in self.suffixes)
        return self.branch.num_tokens + sum(own)

    def submit(self, engine: Engine, owner: str) -> Reading:
        """Hands it to the engine."""
        if self.suffixes:
            return engine.score(self.branch, self.suffixes, owner=owner)
        if self.at:
            return engine.next_tokens(self.branch, self.top, at=self.at, owner=owner)
        ask = engine.hidden if self.hidden else engine.reward
        return ask(self.branch, self.rows, owner=owner)


class ScoreCall(EngineCall):
    """One call that reads."""

    def __init__(self, run: Run, account: Account, plan: ReadPlan) -> None:
        super().__init__(run, account, path=plan.path, key=plan.key, branch=plan.branch)
        self._plan = plan
        if plan.hidden and not self._engine.capabilities.hidden_states:
            raise ValueError(
                f"{self.key}: the engine {self._engine.name} gives no hidden states; run on one "
                "with the capability hidden_states"
            )
        self._check_fit()
        self._reading: Reading | None = None
        self._enter("score", plan.index, self._fingerprint())

    async def run(self) -> Values:
        """Takes its place in launch order, waits for admission, runs and settles.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            EngineError: the engine failed.
        """
        need = self._run.prompts.missing(*self._plan.ends)
        await self._run.funded(self, need=need, floor=need)
        self._check_cut()
        ticket = self._account.launch(
            self._plan.path,
            need={"tokens": 0, "calls": 1},
            prompt=(self._run.prompts, *self._plan.ends),
            price=self._worst_case,
        )
        values = await self._serve(ticket, self._read)
        self._settle(ticket, "stop")
        return values

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def _failed(self, error: EngineError) -> None:
        """It produces nothing that would count."""

    def _worst_case(self, tokens: int) -> dict[str, int]:
        """What it costs if nothing is cached."""
        given, costs = self._plan.num_given, self._engine.costs
        worst = self._meter.worst_case([(given, 0)])
        if costs is not None:
            worst["flops"] = costs.flops(start=0, count=given, draws=self._plan.num_draws)
        return worst

    async def _read(self, _: Ticket) -> Values:
        loop = asyncio.get_running_loop()
        self._arrival = arrival = loop.create_future()
        self._reading = reading = self._plan.submit(self._engine, self._run.owner)
        self._is_sent = True
        reading.future.add_done_callback(deliver(loop, arrival))
        values: Values = await arrival
        self._check_cut()  # it may have been cut between its arrival and this step
        expected = self._plan.suffixes or self._plan.rows or self._plan.at
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
        return fingerprint(
            plan.branch,
            engine=self._engine.numerics,
            suffixes=suffixes,
            rows=plan.rows,
            **({"hidden": True} if plan.hidden else {}),
            **({"at": plan.at, "top": plan.top} if plan.at else {}),
        )

    def _settle(self, ticket: Ticket, finish: str | None, **detail: Any) -> None:
        if self._done:
            return
        tokens = ticket.prompt_tokens
        if self._reading is not None:
            given = self._plan.num_given
            self.usage += self._meter.read(self._reading, sent=given, output_tokens=0)
        self._book(ticket, tokens, finish=finish, **detail)
