"""The life of one call in a run: an engine call with its tail, or a verifier call.

Launched, admitted, run, and settled once; `abort` ends it within one tick, whatever it is doing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from ttc.budget import Account, Ticket
from ttc.errors import BudgetExceeded, ContextOverflow, EngineError
from ttc.journal import derive_seed, fingerprint
from ttc.ports import Generation, Request
from ttc.run import Run
from ttc.types import Branch, Candidate, Chunk, Record, Sampling, Score, Tail, Usage

__all__ = ["Call", "Plan", "VerifierCall"]

_log = logging.getLogger(__name__)


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
    tail: Tail | None


class Call:
    """One engine call with its tail: launched, admitted, run, and settled once."""

    def __init__(
        self,
        run: Run,
        account: Account,
        plan: Plan,
        on_chunk: Callable[[Chunk], None] | None = None,
    ) -> None:
        self.key = f"{plan.path}#{plan.index}"
        self.usage = Usage()
        self.cancelled = False
        self._run, self._plan, self._on_chunk = run, plan, on_chunk
        self._engine = run.engine(plan.branch.role)
        self._seed = derive_seed(run.seed, plan.path, plan.index)
        self._generation: Generation | None = None
        self._arrival: asyncio.Future[Branch] | None = None
        self._produced = 0
        self._cue = 0
        self._done = False
        self._started = run.clock.now()
        self._tail = self._tail_tokens()
        self._max_tokens = self._fitting()
        self._place = run.journal.add(
            Record(path=plan.path, index=plan.index, kind="call", fingerprint=self._fingerprint())
        )
        self._ticket = self._launch(account)
        run.opened(self)

    async def run(self) -> Branch:
        """Waits for admission, runs and settles.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
            EngineError: the engine failed.
        """
        try:
            await self._ticket.admitted()
            if self._ticket.shrunk_by is not None:
                self._run.limit_acted(self._ticket.shrunk_by)
            branch = await self._generate()
        except asyncio.CancelledError:
            self.abort()
            raise
        except BudgetExceeded as refusal:
            self.abort(refusal)
            raise
        except Exception as error:
            if isinstance(error, EngineError):
                self._produced += error.output_tokens
                error.call = self.key
            self._settle("error", error=str(error))
            raise
        self._run.prompts.add(branch)
        self._settle(branch.finish_reason)
        return branch

    def abort(self, refusal: BudgetExceeded | None = None) -> None:
        """Ends it in this tick: the engine stops, what was spent is booked, the rest comes back."""
        if self._done:
            return
        self.cancelled = self._ticket.state == "open"
        self._run.cut = self._run.cut or self.cancelled
        if self._generation is not None:
            self._produced += self._generation.cancel()
        if self._arrival is not None and not self._arrival.done():
            if refusal is None:
                self._arrival.cancel()
            else:
                self._arrival.set_exception(refusal)
        if self.cancelled:
            self._settle("cancelled")
        else:
            self._refuse(refusal)

    def discard(self) -> None:
        """Labels what it had spent as cancelled, since a stop came before anyone used it."""
        if not self._done:
            self.abort()
        elif not self.cancelled:
            self.cancelled = self._run.cut = True
            label = Usage(tokens_cancelled=self.usage.tokens)
            self.usage += label
            self._run.book(self._plan.branch.role, label)
            self._run.journal.amend(self._place, usage=self.usage)

    async def _generate(self) -> Branch:
        plan = self._plan
        granted = self._ticket.granted["tokens"] - self._ticket.prompt_tokens - sum(self._tail)
        branch = await self._extend(plan.branch, granted, self._seed)
        if plan.tail is None or branch.finish_reason != "length":
            return branch
        self._cue = self._tail[0]
        seed = derive_seed(self._run.seed, plan.path, f"{plan.index}/tail")
        cue = self._engine.append(branch, plan.tail.cue)
        return await self._extend(cue, plan.tail.max_tokens, seed)

    def _launch(self, account: Account) -> Ticket:
        plan, tail = self._plan, sum(self._tail)
        at_least = plan.at_least
        if at_least is None:
            at_least = (self._max_tokens + 1) // 2
            if not self._run.usage_by_role:
                at_least = min(at_least, 16)
        least = min(at_least, self._max_tokens)
        return account.launch(
            plan.path,
            need={"tokens": self._max_tokens + tail, "calls": 1},
            floor={"tokens": least + tail, "calls": 1},
            prompt=(self._run.prompts, plan.branch),
        )

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
            sampling=plan.sampling,
            until=plan.until,
            tail=plan.tail,
            seed=self._seed,
        )

    async def _extend(self, branch: Branch, max_tokens: int, seed: int) -> Branch:
        loop = asyncio.get_running_loop()
        self._arrival = loop.create_future()
        request = Request(
            branch=branch,
            max_tokens=max_tokens,
            sampling=self._plan.sampling,
            seed=seed,
            until=self._plan.until,
        )
        self.usage += Usage(input_tokens=branch.num_tokens)
        self._generation = generation = self._engine.submit(request, self._on_chunk)
        generation.future.add_done_callback(_deliver(loop, self._arrival))
        segment = await self._arrival
        self._generation = None
        self.usage += Usage(cached_input_tokens=generation.cached_input_tokens)
        produced = max_tokens if segment.token_ids is None else len(segment.token_ids)
        self._produced += min(produced, max_tokens)
        if produced > max_tokens:
            raise EngineError(
                f"{self._engine.name} produced {produced} tokens where {max_tokens} were allowed"
            )
        return replace(segment, call=self.key)

    def _settle(self, finish: str | None, **detail: Any) -> None:
        tokens = self._ticket.prompt_tokens + self._cue + self._produced
        self.usage += Usage(
            tokens=tokens,
            calls=1,
            output_tokens=self._produced,
            tokens_cancelled=tokens if finish == "cancelled" else 0,
        )
        granted = self._ticket.granted["tokens"] - self._ticket.prompt_tokens
        self._ticket.settle({"tokens": tokens, "calls": 1})
        self._run.book(self._plan.branch.role, self.usage)
        self._end({"granted": granted, "finish": finish, **detail})

    def _refuse(self, refusal: BudgetExceeded | None) -> None:
        self._ticket.cancel(refusal)
        self._end({"refused": refusal.resource if refusal else "cancelled"})

    def _end(self, detail: Mapping[str, Any]) -> None:
        self._done = True
        self._run.closed(self)
        self._run.journal.amend(
            self._place,
            detail=detail,
            usage=self.usage,
            seconds=self._run.clock.now() - self._started,
        )
        self._run.emit("call", self._plan.path)


def _deliver(
    loop: asyncio.AbstractEventLoop, arrival: asyncio.Future[Branch]
) -> Callable[[Future[Branch]], None]:
    """Carries an engine's result from its thread into the event loop of the call."""

    def receive(future: Future[Branch]) -> None:
        if arrival.done() or future.cancelled():
            return
        error = future.exception()
        if isinstance(error, EngineError):
            arrival.set_exception(error)
        elif error is not None:
            arrival.set_exception(EngineError(f"{type(error).__name__}: {error}"))
        else:
            arrival.set_result(future.result())

    def done(future: Future[Branch]) -> None:
        try:
            loop.call_soon_threadsafe(receive, future)
        except RuntimeError:
            _log.debug("a result came after its event loop had closed")

    return done


class VerifierCall:
    """One request to a verifier, for one or more candidates."""

    def __init__(
        self, run: Run, account: Account, path: str, index: int, candidates: Sequence[Candidate]
    ) -> None:
        self.key = f"{path}#{index}"
        self._run, self._path = run, path
        self._usage = Usage(verifier_calls=len(candidates))
        self._done = False
        self._started = run.clock.now()
        self._work: asyncio.Task[tuple[Score, ...]] | None = None
        self._arrival: asyncio.Future[tuple[Score, ...]] | None = None
        hashes = " ".join(fingerprint(candidate.branch) for candidate in candidates)
        self._place = run.journal.add(
            Record(path=path, index=index, kind="verify", fingerprint=hashes)
        )
        self._ticket = account.launch(path, need={"verifier_calls": len(candidates)})
        run.opened(self)

    async def run(self, work: Coroutine[Any, Any, tuple[Score, ...]]) -> tuple[Score, ...]:
        """Waits for admission, then for `work`.

        Raises:
            BudgetExceeded: a limit refused the call, or the deadline cut it.
        """
        try:
            await self._ticket.admitted()
            self._arrival = asyncio.get_running_loop().create_future()
            self._work = self._run.task(work)
            self._work.add_done_callback(self._receive)
            scores = await self._arrival
        except BaseException as error:
            if self._work is None:
                work.close()
            self.abort(error if isinstance(error, BudgetExceeded) else None)
            raise
        self._end({"scores": tuple(score.value for score in scores)})
        return scores

    def abort(self, refusal: BudgetExceeded | None = None) -> None:
        """Ends it in this tick. Once it was admitted it is charged."""
        if self._done:
            return
        admitted = self._ticket.state == "open"
        if self._work is not None:
            self._work.cancel()
        if self._arrival is not None and not self._arrival.done():
            if refusal is None:
                self._arrival.cancel()
            else:
                self._arrival.set_exception(refusal)
        if admitted:
            self._run.cut = True
            self._end({"cut": True})
        else:
            self._usage = Usage()
            self._ticket.cancel(refusal)
            self._end({"refused": refusal.resource if refusal else "cancelled"})

    def discard(self) -> None:
        """Ends it if it still runs."""
        self.abort()

    def _receive(self, work: asyncio.Task[tuple[Score, ...]]) -> None:
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
        if self._ticket.state == "open":
            self._ticket.settle({"verifier_calls": self._usage.verifier_calls})
            self._run.book("verifier", self._usage)
        seconds = self._run.clock.now() - self._started
        self._run.journal.amend(self._place, detail=detail, usage=self._usage, seconds=seconds)
        self._run.emit("call", self._path)
