"""The life of one engine call in a run, with its tail.

Launched, admitted, run, and settled once; `abort` ends it within one tick, whatever it is doing. A
call is handed to the engine in the very step in which it is admitted, so what is charged was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from ttc.budget import Account, Ticket
from ttc.demands import measuring
from ttc.engine_call import EngineCall, deliver
from ttc.errors import ContextOverflow, EngineError
from ttc.frozen import changed
from ttc.journal import derive_seed, fingerprint
from ttc.ports import Generation, Request, Steerable
from ttc.run import Run
from ttc.safe_text import safe_logger
from ttc.types import (
    Branch,
    Chunk,
    Sampling,
    Tail,
)

__all__ = ["Call", "Plan"]

_log = safe_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a node asked for."""

    path: str
    index: int
    branch: Branch
    max_tokens: int
    sampling: Sampling
    at_least: int | None
    until: tuple[str | int, ...]
    tail: Tail | None = None
    booked_as: str | None = None
    """Who is charged, where that is not the role of the branch."""
    priority: float = 0.0
    """What it is worth to the engine beside other calls."""

    def __post_init__(self) -> None:
        if self.tail is not None and self.sampling.constraint is not None:
            raise ValueError(
                f"{self.key}: a tail follows a text that was cut, and the constraint "
                f"{self.sampling.constraint} is not for what comes then; leave one of them out"
            )

    @property
    def charged(self) -> str:
        """The role that is charged."""
        return self.booked_as or self.branch.role

    @property
    def key(self) -> str:
        """The call's name in lineages."""
        return f"{self.path}#{self.index}"


class Call(EngineCall):
    """One engine call with its tail: launched, admitted, run, and settled once."""

    def __init__(
        self,
        run: Run,
        account: Account,
        plan: Plan,
        on_chunk: Callable[[Chunk], None] | None = None,
    ) -> None:
        super().__init__(run, account, path=plan.path, key=plan.key, branch=plan.branch)
        self._plan, self._on_chunk = plan, on_chunk
        self._charged = plan.charged
        demands = run.demands.get(plan.branch.role, frozenset())
        self._sampling = measuring(plan.sampling, demands, self._engine)
        self._seed = derive_seed(run.seed, plan.path, plan.index)
        self._generation: Generation | None = None
        self._priority = plan.priority
        self._allowed = 0  # output tokens of the request that is running
        self._produced = 0
        self._sent = 0
        self._cue = 0
        self._is_counted = True  # where an engine tells no tokens, all that it was allowed count
        self._tail = self._tail_tokens()
        self._max_tokens = self._fitting()
        self._enter("call", plan.index, self._fingerprint())

    async def run(self) -> Branch:
        """Takes its place in launch order, waits for admission, runs and settles.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            EngineError: the engine failed.
        """
        self._check_cut()
        given = self._run.prompts.missing(self._plan.branch) + sum(self._tail)
        need, floor = self._max_tokens + given, self._least() + given
        self._max_tokens -= need - await self._run.funded(self, need=need, floor=floor)
        self._check_cut()
        ticket = self._launch()
        branch = await self._serve(ticket, self._generate)
        self._run.prompts.add(branch)
        self._settle(ticket, branch.finish_reason)
        return branch

    def prioritise(self, priority: float) -> None:
        """Gives it another priority, where its engine has them; its tail will have it, too."""
        self._priority = priority
        if self._generation is not None and self._engine.capabilities.priority:
            cast(Steerable, self._generation).prioritise(priority)

    async def _generate(self, ticket: Ticket) -> Branch:
        plan = self._plan
        if ticket.shrunk_by is not None:
            self._run.limit_acted(ticket.shrunk_by)
        granted = ticket.granted["tokens"] - ticket.prompt_tokens - sum(self._tail)
        branch = await self._extend(plan.branch, granted, self._seed, self.key)
        if plan.tail is None or branch.finish_reason != "length":
            return branch
        self._cue = self._tail[0]
        seed = derive_seed(self._run.seed, plan.path, f"{plan.index}/tail")
        cue = self._engine.append(branch, plan.tail.cue)
        return await self._extend(cue, plan.tail.max_tokens, seed, f"{self.key}/tail")

    def _least(self) -> int:
        """The fewest tokens that it can run with."""
        at_least = self._plan.at_least
        if at_least is None:
            at_least = (self._max_tokens + 1) // 2
            if self._account.is_untouched:
                at_least = min(at_least, 16)
        return min(at_least, self._max_tokens)

    def _launch(self) -> Ticket:
        tail = sum(self._tail)
        return self._account.launch(
            self._plan.path,
            need={"tokens": self._max_tokens + tail, "calls": 1},
            floor={"tokens": self._least() + tail, "calls": 1},
            prompt=(self._run.prompts, self._plan.branch),
            price=self._worst_case if self._meter.is_known else None,
        )

    def _worst_case(self, tokens: int) -> dict[str, int]:
        """What a call of so many tokens, its tail included, costs if nothing is cached."""
        cue, after = self._tail
        requests = [(self._plan.branch.num_tokens, tokens - cue - after)]
        if after:
            requests.append((sum(requests[0]) + cue, after))
        return self._meter.worst_case(requests)

    def _tail_tokens(self) -> tuple[int, int]:
        """The tokens of the tail's cue and of its output."""
        tail = self._plan.tail
        if tail is None:
            return 0, 0
        cue = self._engine.append(self._plan.branch, tail.cue)
        return cue.num_tokens - self._plan.branch.num_tokens, tail.max_tokens

    def _fitting(self) -> int:
        """`max_tokens`, as far as the context holds them."""
        plan, context = self._plan, self._engine.context
        if plan.max_tokens < 1:
            raise ValueError(f"{self.key}: max_tokens is at least 1, not {plan.max_tokens}")
        if context is None:
            return plan.max_tokens
        given = plan.branch.num_tokens + sum(self._tail)
        if given >= context:
            raise ContextOverflow(
                f"{self.key}: a prompt of {given} tokens leaves no room in the {context} tokens of "
                f"context of {self._engine.name}; shorten the prompt"
            )
        return min(plan.max_tokens, context - given)

    def _fingerprint(self) -> str:
        plan = self._plan
        return fingerprint(
            plan.branch,
            engine=self._engine.numerics,
            max_tokens=self._max_tokens,
            sampling=self._sampling,
            until=plan.until,
            tail=plan.tail,
            seed=self._seed,
        )

    async def _extend(self, branch: Branch, max_tokens: int, seed: int, name: str) -> Branch:
        loop = asyncio.get_running_loop()
        self._arrival, self._allowed = loop.create_future(), max_tokens
        request = Request(
            branch=branch,
            max_tokens=max_tokens,
            sampling=self._sampling,
            seed=seed,
            until=self._plan.until,
            call=name,
            owner=self._run.owner,
            priority=self._priority,
        )
        self._sent = branch.num_tokens
        self._generation = generation = self._engine.submit(request, self._on_chunk)
        self._is_sent = True
        generation.future.add_done_callback(deliver(loop, self._arrival))
        segment: Branch = await self._arrival
        self._check_cut()  # it may have been cut between its arrival and this step
        self._is_counted &= segment.length is not None
        produced = max_tokens if segment.length is None else segment.length
        self._count(produced)
        if produced > max_tokens:
            raise EngineError(
                f"{self._engine.name} produced {produced} tokens where {max_tokens} were allowed"
            )
        return changed(segment, call=self.key)

    def _stop(self) -> None:
        if self._generation is not None:
            self._count(self._stopped(self._generation))

    def _failed(self, error: EngineError) -> None:
        self._count(error.output_tokens)

    def _stopped(self, generation: Generation) -> int:
        """Ends a generation; returns what it had produced, or the worst case if it cannot tell."""
        try:
            return generation.cancel()
        except Exception:  # noqa: BLE001 - whatever an engine raises, the others must be ended too
            _log.exception("%s: %s could not cancel a call", self.key, self._engine.name)
            return self._allowed

    def _count(self, produced: int) -> None:
        """Adds what a request came to; of output tokens the engine pays for what is not allowed."""
        generation, self._generation = self._generation, None
        output = max(0, min(produced, self._allowed))
        self._produced, self._allowed = self._produced + output, 0
        if generation is not None:
            sent = self._sent
            self.usage += self._meter.read(generation, sent=sent, output_tokens=output)

    def _settle(self, ticket: Ticket, finish: str | None, **detail: Any) -> None:
        if self._done:
            return
        tokens = ticket.prompt_tokens + self._cue + self._produced
        granted = ticket.granted["tokens"] - ticket.prompt_tokens
        if not self._is_counted:
            detail["uncounted"] = True
        self._book(ticket, tokens, granted=granted, finish=finish, **detail)
