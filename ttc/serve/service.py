"""The service: from what a client asks to a job that may run."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from ttc.errors import GraphError, PriceError
from ttc.graph import Node, compile_graph, roles_of
from ttc.ports import Engine
from ttc.prices import Prices, check_limits
from ttc.react import NEXT_LINE
from ttc.resources import LOGICAL, RESERVED
from ttc.serve.ask import Ask
from ttc.serve.job import Job, Watch
from ttc.serve.keys import Key
from ttc.serve.ledger import Ledger, ledger_sizes
from ttc.serve.line import Line
from ttc.serve.plain import Plain, Tell
from ttc.serve.prompts import Prompt, check_least, prompts_of
from ttc.serve.refusal import Refusal, conflicting, invalid, unsupported
from ttc.serve.settings import Settings
from ttc.serve.share import share_of, speller
from ttc.serve.strategy import chosen, fitted
from ttc.serve.tools import held_to, in_lines
from ttc.serve.traces import Traces
from ttc.spoken import form_for
from ttc.types import Budget, Outcome, Sampling

__all__ = ["Service"]

_NAMES = tuple(f.name for f in fields(Budget))
_RETRY_S = 5
_SHORT = 4_000
"""Bytes of a request that is read before a thread would be awake."""


class Service:
    """What all requests share: models, ledger, line.

    Args:
        models: the engines that are served, by the name that clients use.
        roles: the engines of further roles.
        settings: how they are served.
        prices: what tokens cost; those of the user's `prices.toml` by default.
    """

    def __init__(
        self,
        models: Mapping[str, Engine],
        *,
        roles: Mapping[str, Engine] | None = None,
        settings: Settings | None = None,
        prices: Prices | None = None,
    ) -> None:
        self.models, self.roles = dict(models), dict(roles or {})
        self.settings = settings or Settings()
        self.prices = Prices.of_the_user() if prices is None else prices
        self.ledger = Ledger(self.settings)
        self.line = Line(self.settings.concurrency, self.settings.queue)
        self.jobs: set[Job] = set()
        """Those that were accepted and have not ended."""
        self.is_draining = False
        self.traces: Traces | None = None
        """Where runs are kept for the viewer."""
        self.idle = asyncio.Event()
        for engine in self.models.values():
            self._check_prices(self.settings.request_budget, {"policy": engine, **self.roles})

    async def accept(self, key: Key, ask: Ask, size: int | None = None) -> Job:
        """Binds a request to a strategy, engines and a budget, and reserves that.

        Args:
            key: who asks.
            ask: what for.
            size: its bytes.

        Raises:
            Refusal: why it is not served.
        """
        if self.is_draining:
            raise Refusal(
                503,
                "the server is about to end; try again, or ask another one",
                code="draining",
                headers={"Retry-After": str(_RETRY_S)},
            )
        began = time.monotonic()
        # A strategy, a grammar or a long prompt may take long, as far as their sizes let them.
        is_plain = not (ask.spec or self.settings.strategy or ask.constraint or ask.tools)
        if is_plain and size is not None and size <= _SHORT:
            job, most = self._bind(key, ask, began)
        else:
            job, most = await asyncio.to_thread(self._bind, key, ask, began)
        job.reservation = self.ledger.reserve(key, most)
        self.jobs.add(job)
        return job

    def _bind(self, key: Key, ask: Ask, began: float) -> tuple[Job, Mapping[str, int]]:
        """A job that has reserved nothing yet, and the most that it can use."""
        engines: dict[str, Engine] = {
            role: share_of(engine, key)
            for role, engine in {**self.roles, "policy": self._model(key, ask)}.items()
        }
        if ask.tools:
            ask = _with_tools(ask, engines["policy"])
        graph, overridden = self._graph(key, ask, engines)
        prompts = prompts_of(ask, graph, engines)
        limit = self._limit(ask, engines)
        most = self._most(ask, prompts, limit)
        job = Job(
            key=key,
            ask=ask,
            engines=engines,
            prompts=prompts,
            limit=limit,
            prices=self.prices,
            sandbox=self.settings.sandbox,
            deadline=began + min(self.settings.deadline_s, limit.seconds or float("inf")),
            overridden=overridden,
            traces=self.traces,
            seed=secrets.randbits(53) if ask.seed is None else ask.seed,
        )
        runs = [job.prompt_of(first) for first in job.firsts]
        check_least(list(zip(runs, job.budgets(), strict=True)))
        return job, most

    async def perform(
        self, job: Job, tell: Tell | None = None, watch: Watch | None = None
    ) -> list[Outcome]:
        """Runs a job in its turn. Cancelling it ends the job; what it spent is settled.

        Raises:
            Refusal: its turn did not come.
        """
        try:
            try:
                async with asyncio.timeout(job.left):
                    await self.line.enter(job.key.name)
            except TimeoutError:
                raise Refusal(
                    429,
                    "the request's turn did not come before its deadline; try again",
                    code="queue_timeout",
                    headers={"Retry-After": str(_RETRY_S)},
                ) from None
            try:
                return await job.run(tell, watch)
            finally:
                self.line.leave()
        finally:
            self._done(job)

    def _done(self, job: Job) -> None:
        """Forgets a job, and settles it where it never ran."""
        job.reservation.settle(job.usage)
        self.jobs.discard(job)
        if not self.jobs:
            self.idle.set()
            self.idle.clear()

    async def drain(self) -> None:
        """Takes no more, lets what runs go on for a while, and then ends it."""
        self.is_draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.drain_s
        while self.jobs and (left := end - loop.time()) > 0:
            try:
                await asyncio.wait_for(self.idle.wait(), left)
            except TimeoutError:
                break
        self.cancel()

    def cancel(self) -> None:
        """Ends all that runs; each gives the best that it has."""
        for job in list(self.jobs):
            job.cancel()

    def _model(self, key: Key, ask: Ask) -> Engine:
        if ask.model not in self.models:
            known = ", ".join(self.models)
            shown = ask.model if len(ask.model) <= 80 else f"{ask.model[:77]}..."
            raise Refusal(
                404,
                f"there is no model {shown!r}; there is {known}",
                code="model_not_found",
                param="model",
            )
        if key.models is not None and ask.model not in key.models:
            raise Refusal(
                403, f"this key may not use {ask.model}", code="model_not_allowed", param="model"
            )
        return self.models[ask.model]

    def _graph(
        self, key: Key, ask: Ask, engines: Mapping[str, Engine]
    ) -> tuple[Node, tuple[str, ...]]:
        _check_engine(engines["policy"], ask)
        if ask.constraint is not None:
            try:
                engines["policy"].check_constraint(ask.constraint)
            except ValueError as error:
                raise invalid("response_format", f"it cannot be held to: {error}") from None
        graph = chosen(ask, self.settings, key)
        if graph is None:
            return compile_graph(self._plain(ask, engines["policy"])), ()
        if ask.spec is not None and ask.spec not in self.settings.named:
            _check_roles(key, graph)
        graph, overridden = fitted(graph, ask, self.settings.sampling)
        try:
            graph.validate(engines)
        except GraphError as error:
            raise invalid(
                "model", f"the strategy cannot run: {error}", "invalid_strategy"
            ) from None
        return compile_graph(graph), overridden

    def _plain(self, ask: Ask, engine: Engine) -> Node:
        sampling = Sampling(constraint=ask.constraint, logprobs=ask.logprobs or 0, **ask.drawn)
        most = self.settings.max_tokens if ask.max_tokens is None else max(1, ask.max_tokens)
        until = ask.until
        if ask.tools and ask.constraint is None and form_for(engine) == "react":
            until = (*until, NEXT_LINE)  # what follows it the model would only imagine
        return Plain(n=ask.n, max_tokens=most, sampling=sampling, until=until)

    def _limit(self, ask: Ask, engines: Mapping[str, Engine]) -> Budget:
        """The least of what it asks for and what is allowed."""
        allowed, asked = self.settings.request_budget, ask.budget
        share = None if ask.effort is None else self.settings.efforts[ask.effort]
        limits: dict[str, Any] = {}
        for name in _NAMES:
            most, own = getattr(allowed, name), getattr(asked, name)
            if most is not None and share is not None and name != "seconds":
                most = int(most * share) if name in LOGICAL else float(most * share)
            known = [limit for limit in (most, own) if limit is not None]
            limits[name] = min(known, default=None)
        try:
            self._check_prices(asked, engines)
        except PriceError as error:
            raise invalid("ttc.budget", str(error)) from None
        return Budget(**limits)

    def _check_prices(self, budget: Budget, engines: Mapping[str, Engine]) -> None:
        today = datetime.now(UTC).date()
        found = {role: self.prices.of(engine.name, on=today) for role, engine in engines.items()}
        check_limits(budget, engines, {role: p for role, p in found.items() if p is not None})

    def _most(self, ask: Ask, prompts: Sequence[Prompt], limit: Budget) -> dict[str, int]:
        """What a request reserves: the most that it can use, and at most its limit."""
        runs = 1 if prompts[0].plain is not None else ask.n
        needs = {name: [prompt.most[name] for prompt in prompts] for name in LOGICAL}
        worst = {
            name: None if None in each else sum(most or 0 for most in each) * runs
            for name, each in needs.items()
        }
        is_own = ask.spec is not None and ask.spec not in self.settings.named
        if is_own:
            self._check_bound(worst)
        sizes = ledger_sizes(limit)
        for name, most in worst.items():
            if most is not None:
                sizes[name] = min(most, sizes.get(name, most))
            elif name not in sizes and (is_own or name == "tokens"):
                raise invalid(
                    "ttc.budget",
                    f"nothing bounds the {name} of this strategy; pass ttc.budget.{name}",
                    "unbounded_strategy",
                )
        return {name: sizes[name] for name in RESERVED if name in sizes}

    def _check_bound(self, worst: Mapping[str, int | None]) -> None:
        for name in ("calls", "verifier_calls"):
            most = worst[name]
            if most is None:
                raise invalid("model", f"nothing bounds the strategy's {name}", "invalid_strategy")
            if most > self.settings.max_calls:
                raise invalid(
                    "model",
                    f"the strategy may need {most} {name}, and {self.settings.max_calls} "
                    "are allowed; ask for less",
                    "invalid_strategy",
                )


def _with_tools(ask: Ask, engine: Engine) -> Ask:
    """A request whose model is told of its tools, and made to call one where it has to."""
    held = replace(ask, constraint=held_to(ask.tool_choice, ask.tools, engine))
    if form_for(engine) != "react":
        return held
    return replace(held, problems=tuple(in_lines(p, ask.tool_choice) for p in ask.problems))


def _check_roles(key: Key, graph: Node) -> None:
    """Whether a key may use the models of all roles that a stranger's strategy asks."""
    asked = roles_of(graph)
    for role in sorted(asked - {"policy"} - (asked if key.models is None else key.models)):
        raise Refusal(
            403,
            f"this key may not use the model of the role {role[:80]}",
            code="model_not_allowed",
            param="model",
        )


def _check_engine(engine: Engine, ask: Ask) -> None:
    can, spells = engine.capabilities, speller(engine)
    _check_bias(engine, ask)
    if ask.constraint is not None and not can.grammar:
        raise unsupported(
            "response_format", "this model's engine cannot hold a text to a form; leave it out"
        )
    if ask.token_ids and not can.tokens:
        raise unsupported(
            "return_token_ids", "this model's engine tells no token ids; leave it out"
        )
    if ask.logprobs is not None and can.logprobs <= ask.logprobs:
        raise unsupported(
            "logprobs" if not can.logprobs else "top_logprobs",
            f"this model tells at most {can.logprobs} log probabilities of a token",
        )
    if ask.logprobs and (can.next_tokens < ask.logprobs or spells is None):
        raise unsupported(
            "top_logprobs", f"this model tells {can.next_tokens} other tokens; ask for fewer"
        )
    if ask.echo and ask.logprobs is not None and not (can.score and spells):
        raise unsupported("echo", "this model's engine reads no given text; leave echo out")
    if ask.constraint is not None and ask.until:
        raise conflicting(
            "stop", "response_format says where a text ends, so stop has no place beside it"
        )


def _check_bias(engine: Engine, ask: Ask) -> None:
    bias, spells = ask.drawn.get("logit_bias", ()), speller(engine)
    if bias and not engine.capabilities.logit_bias:
        raise unsupported("logit_bias", "this model's engine takes no logit_bias; leave it out")
    if bias and spells is not None and bias[-1][0] >= spells.vocab_size:
        raise invalid(
            "logit_bias",
            f"this model has the tokens 0 to {spells.vocab_size - 1}, no {bias[-1][0]}",
        )
