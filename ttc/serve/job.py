"""A job: one request that may run, with what it was bound to, and its whole life after that."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ttc.arguments import Arguments
from ttc.control import Control
from ttc.journal import derive_seed
from ttc.limits import Limits
from ttc.ports import Engine
from ttc.prices import Prices
from ttc.resources import shares
from ttc.sandbox.zygote import SandboxChoice
from ttc.serve.ask import Ask
from ttc.serve.keys import Key
from ttc.serve.ledger import Reservation
from ttc.serve.plain import Plain, Tell
from ttc.serve.prompts import Prompt
from ttc.serve.traces import Traces
from ttc.solve import run_one
from ttc.types import Budget, Event, Outcome, Usage

__all__ = ["Job", "Watch"]

Watch = Callable[[int, Event], None]
"""Who is told what happens in the run of a choice."""


@dataclass(eq=False, kw_only=True)
class Job:
    """One request that was accepted."""

    key: Key
    ask: Ask
    engines: Mapping[str, Engine]
    prompts: tuple[Prompt, ...]
    """What it asks; the choices of the first one come first."""
    limit: Budget
    """What it may spend, over all its choices."""
    prices: Prices
    sandbox: SandboxChoice
    deadline: float
    """When it has to be over, by the monotonic clock."""
    reservation: Reservation = field(init=False)
    """What it has reserved of its key's budget, and the server's."""
    overridden: tuple[str, ...] = ()
    """Parameters of the request that the strategy has overridden."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    began: float = field(default_factory=time.monotonic)
    usage: Usage = field(default_factory=Usage)
    is_cancelled: bool = False
    traces: Traces | None = None
    """Where its runs are kept for the viewer."""
    seed: int = 0
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it waits no longer."""
    _controls: list[Control] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds until its deadline."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def plain(self) -> Plain | None:
        """The node of a plain sample."""
        return self.prompts[0].plain

    @property
    def num_choices(self) -> int:
        """Choices of all its prompts."""
        return len(self.prompts) * self.ask.n

    def prompt_of(self, choice: int) -> Prompt:
        """The prompt that a choice answers."""
        return self.prompts[choice // self.ask.n]

    @property
    def firsts(self) -> range:
        """Its runs, by the first of each one's choices: a plain sample is one for each prompt."""
        return range(0, self.num_choices, 1 if self.plain is None else self.ask.n)

    def budgets(self) -> list[Budget]:
        """What each run may spend: of tokens by what it may need, and else alike."""
        runs = [self.prompt_of(first) for first in self.firsts]
        budgets = Limits(self.limit, None, None, 1).of_each(len(runs))
        needs = [prompt.most["tokens"] for prompt in runs]
        known = [need for need in needs if need]
        if self.limit.tokens is None or len(known) < len(runs):
            return budgets
        parts = shares(self.limit.tokens, known)
        return [replace(b, tokens=part) for b, part in zip(budgets, parts, strict=True)]

    def cancel(self) -> None:
        """Ends it: no branch of it lives one engine step later."""
        self.is_cancelled = True
        for control in self._controls:
            control.cancel()

    async def run(self, tell: Tell | None = None, watch: Watch | None = None) -> list[Outcome]:
        """Its outcomes, one for each choice, or one with all choices of a plain sample's prompt.

        Args:
            tell: is told the pieces of a plain sample.
            watch: is told what happens.
        """
        self.has_begun.set()
        runs = [
            self._run(first, tell, replace(budget, seconds=self.left), watch)
            for first, budget in zip(self.firsts, self.budgets(), strict=True)
        ]
        tasks = [asyncio.ensure_future(run) for run in runs]
        try:
            outcomes = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self.reservation.settle(self.usage)
        return list(outcomes)

    async def _run(
        self, index: int, tell: Tell | None, budget: Budget, watch: Watch | None
    ) -> Outcome:
        """Runs what a choice, or of a plain sample each of a prompt's choices, comes from.

        Its seed is that of a request for this prompt alone.
        """
        own, prompt = index % self.ask.n, self.prompt_of(index)
        seed = self.seed if own == 0 else derive_seed(self.seed, "choice", own)
        graph = prompt.telling(tell and (lambda n, chunk: tell(index + n, chunk)))
        control = Control()
        if self.is_cancelled:
            control.cancel()
        self._controls.append(control)
        trace = None
        if self.traces is not None:
            trace = self.traces.begin(
                self.key,
                f"{self.id}-{index}",
                prompt.problem,
                graph,
                budget=budget,
                engines=self.engines,
            )

        def told(event: Event) -> None:
            if trace is not None:
                trace(event)
            if watch is not None:
                watch(index, event)

        arguments = Arguments(
            None,
            self.engines,
            seed,
            None,
            self.prices,
            None if trace is None and watch is None else told,
            control,
            self.sandbox,
        )
        outcome = await run_one(prompt.problem, graph, self.engines, arguments, budget, None)
        self.usage += outcome.usage
        if trace is not None:
            trace.finish(outcome)
        return outcome
