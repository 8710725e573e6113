"""The scope: a node's only door to engine, verifiers, clock and randomness."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from ttc.answers import answer_key, extract_answer
from ttc.budget import LOGICAL, Account, Division
from ttc.call import Call, Plan, VerifierCall
from ttc.errors import BudgetExceeded, EngineError, NodeError, VerifierError
from ttc.graph import Flow, Node, join
from ttc.journal import derive_seed
from ttc.ports import Verifier
from ttc.run import Abortable, Run
from ttc.streams import PumpStream, calls_behind, iterate, ordered_map
from ttc.types import (
    UNFILTERED,
    Branch,
    Budget,
    Candidate,
    Chunk,
    Problem,
    Record,
    Sampling,
    Score,
    Status,
    Tail,
    Usage,
)

__all__ = ["NodeScope"]

U = TypeVar("U")
_log = logging.getLogger(__name__)


class NodeScope:
    """The scope of one node in one run; implements `ttc.ports.Scope`."""

    def __init__(
        self, run: Run, account: Account, path: str, *, beside: frozenset[str] = frozenset()
    ) -> None:
        self._run, self._account, self._path, self._beside = run, account, path, beside
        self._calls: dict[int, Call] = {}
        self._verifications: list[VerifierCall] = []
        self._children: list[NodeScope] = []
        self._streams: list[PumpStream[Any]] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._divisions: list[Division] = []
        self._verified = self._decided = 0
        self._ended = self._ending = False

    @property
    def problem(self) -> Problem:
        """The problem that is being solved."""
        return self._run.problem

    @property
    def path(self) -> str:
        """The path of the node that owns the scope."""
        return self._path

    @property
    def remaining(self) -> Budget:
        """What is left, less what is reserved; `None` where there is no limit."""
        deadline = self._run.deadline
        seconds = None if deadline is None else max(0.0, deadline - self.now())
        return Budget(seconds=seconds, **{r: self._account.room(r) for r in LOGICAL})

    def root(self, role: str = "policy") -> Branch:
        """The problem's prompt, for the model of a role."""
        if role not in self._run.roots:
            self._run.roots[role] = self._run.engine(role).root(self.problem, role)
        return self._run.roots[role]

    async def generate(
        self,
        branch: Branch,
        *,
        index: int,
        max_tokens: int,
        sampling: Sampling = UNFILTERED,
        at_least: int | None = None,
        until: tuple[str | int, ...] = (),
        tail: Tail | None = None,
    ) -> Branch:
        """Extends a branch once the ledger has admitted the call; see `ttc.ports.Scope`."""
        plan = Plan(
            path=self._path,
            index=index,
            branch=branch,
            max_tokens=max_tokens,
            sampling=sampling,
            at_least=at_least,
            until=until,
            tail=tail,
        )
        return await self._call(plan).run()

    def stream(
        self,
        branch: Branch,
        *,
        index: int,
        max_tokens: int,
        sampling: Sampling = UNFILTERED,
        at_least: int | None = None,
        until: tuple[str | int, ...] = (),
    ) -> PumpStream[Chunk]:
        """As `generate`, piece by piece; `stop()` ends the call and refunds the rest."""
        plan = Plan(
            path=self._path,
            index=index,
            branch=branch,
            max_tokens=max_tokens,
            sampling=sampling,
            at_least=at_least,
            until=until,
            tail=None,
        )
        return self._opened(PumpStream(self._chunks(plan), self, whole=False))

    async def _chunks(self, plan: Plan) -> AsyncGenerator[Chunk, None]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Chunk | None] = asyncio.Queue()

        def receive(chunk: Chunk) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, chunk)

        call = self._call(plan, receive)
        work = self.task(call.run())
        work.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while (chunk := await arrived.get()) is not None:
                if chunk.branch is None:
                    yield chunk
            yield Chunk(text="", token_ids=(), branch=work.result())
        finally:
            call.abort()

    async def verify(
        self, verifier: Verifier, candidates: Sequence[Candidate]
    ) -> tuple[Score, ...]:
        """One score for each candidate, charged as verifier calls; see `ttc.ports.Scope`."""
        self._check_open()
        index, self._verified = self._verified, self._verified + 1
        self._run.oracle = self._run.oracle or getattr(verifier, "oracle", False)
        call = VerifierCall(self._run, self._account, self._path, index, candidates)
        self._verifications.append(call)
        scores = await call.run(self._scores(verifier, candidates, index))
        return tuple(replace(score, verifier=verifier.name, call=call.key) for score in scores)

    async def _scores(
        self, verifier: Verifier, candidates: Sequence[Candidate], index: int
    ) -> tuple[Score, ...]:
        inner = self._child(str(index), self._account)
        try:
            scores = tuple(await verifier(self.problem, candidates, inner))
            if len(scores) != len(candidates):
                raise VerifierError(
                    f"{verifier.name} gave {len(scores)} scores for {len(candidates)} candidates"
                )
        except (BudgetExceeded, NodeError):
            raise
        except Exception as error:  # noqa: BLE001 - a verifier that fails leaves scores unknown
            _log.warning("%s: the verifier %s failed: %s", self._path, verifier.name, error)
            reason = {"error": f"{type(error).__name__}: {error}"}
            return (Score(value=None, range=verifier.range, evidence=reason),) * len(candidates)
        finally:
            inner.close()
        return scores

    def finish(self, candidate: Candidate, branch: Branch) -> Candidate:
        """The candidate that `branch` makes of `candidate`: text, answer, status and usage."""
        text = branch.output
        answer = extract_answer(
            text, self.problem.answer_format, finish_reason=branch.finish_reason
        )
        status: Status = "finished" if branch.finish_reason == "stop" else "truncated"
        return replace(
            candidate,
            branch=branch,
            text=text,
            answer=answer,
            key=answer_key(answer),
            status=status,
            usage=candidate.usage + self._usage_of(branch.call),
        )

    def map(
        self,
        work: Callable[[Any, int], Awaitable[U]],
        items: AsyncIterator[Any],
        *,
        ahead: int | None,
    ) -> PumpStream[U]:
        """Runs `work(item, launch index)` on up to `ahead` items at once; see `ttc.ports.Scope`."""
        if ahead is not None and ahead < 1:
            raise ValueError(f"ahead is at least 1, or None for no bound, not {ahead}")
        source = ordered_map(work, items, self, ahead=ahead, failed=self._failed)
        upstream = items if isinstance(items, PumpStream) else None
        return self._opened(PumpStream(source, self, upstream, whole=False))

    def run(
        self,
        graph: Node,
        candidates: AsyncIterator[Candidate],
        *,
        name: str,
        given: Flow | None = None,
        beside: frozenset[str] = frozenset(),
    ) -> PumpStream[Candidate]:
        """Opens a sub-graph in a child scope; see `ttc.ports.Scope`."""
        child = self._child(name, self._account, self._beside | beside)
        return self._opened(child.open(graph, candidates, given))

    async def run_together(
        self, graphs: Mapping[str, Node], candidates: Sequence[Candidate]
    ) -> list[PumpStream[Candidate]]:
        """Opens sub-graphs that run at the same time; see `ttc.ports.Scope`."""
        still_open = all(candidate.status == "open" for candidate in candidates)
        given = Flow(kind="open" if still_open else "finished", count=len(candidates))
        parties = [graph.bound(given).uses for graph in graphs.values()]
        division = await self._account.divide(self._path, parties, self._beside)
        self._divisions.append(division)
        streams = []
        for (name, graph), account in zip(graphs.items(), division.accounts, strict=True):
            child = self._child(name, account)
            streams.append(self._opened(child.open(graph, iterate(*candidates), given)))
        return streams

    def open(
        self, graph: Node, candidates: AsyncIterator[Candidate], given: Flow | None
    ) -> PumpStream[Candidate]:
        """The stream of a graph in this scope."""
        at_most = graph.flow(given).count if given is not None else None
        if isinstance(candidates, PumpStream):
            upstream = candidates
        else:
            count = given.count if given is not None else None
            upstream = PumpStream(_generator(candidates), _Source(self._run), at_most=count)
        stream = PumpStream(graph.run(upstream, self), self, upstream, at_most=at_most)
        if graph.selects:
            upstream.on_taken = lambda candidate: self._run.consider(self._path, candidate)
            stream.on_given = lambda candidate: replace(
                candidate, chosen_among=calls_behind(upstream.delivered)
            )
        return stream

    def spawn(self, coroutine: Coroutine[Any, Any, U]) -> asyncio.Task[U]:
        """Starts work that ends with the scope at the latest."""
        return self.task(coroutine)

    def random(self, *key: str | int) -> Random:
        """A generator that depends on (run seed, path, key) alone."""
        return Random(derive_seed(self._run.seed, self._path, "/".join(map(str, key))))

    def now(self) -> float:
        """Seconds by the run's clock."""
        return self._run.clock.now()

    def decide(self, kind: str, **detail: Any) -> None:
        """Records a decision, and names it as what stopped the run."""
        index, self._decided = self._decided, self._decided + 1
        self._run.decision = kind
        self._run.journal.add(
            Record(path=self._path, index=index, kind="decision", detail={"rule": kind, **detail})
        )
        self._run.emit("decision", self._path)

    # What follows is for the streams that the scope owns.

    def task(self, work: Coroutine[Any, Any, U]) -> asyncio.Task[U]:
        """Starts a task that the run waits for before it ends."""
        task = self._run.task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def refused(self, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended a stream."""
        self._run.refused(refusal)

    def cancel(self, keep: frozenset[str]) -> None:
        """Cancels every call; what calls outside `keep` had spent is labelled as cancelled."""
        if self._ending:
            return
        self._ending = True
        for stream in self._streams:
            stream.cancel(keep)
        for child in self._children:
            child.cancel(keep)
        for call in self._calls.values():
            if call.key not in keep:
                call.discard()
        self._ending = False
        self.close()

    def close(self) -> None:
        """Cancels what still runs. What has ended stands."""
        if self._ended:
            return
        self._ended = True
        for child in self._children:
            child.close()
        running: list[Abortable] = [*self._calls.values(), *self._verifications]
        for call in running:
            call.abort()
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        for division in self._divisions:
            division.reclaim()

    def _call(self, plan: Plan, on_chunk: Callable[[Chunk], None] | None = None) -> Call:
        self._check_open()
        if plan.index in self._calls:
            raise ValueError(
                f"index {plan.index} was used twice in {self._path}; each call of a node needs an "
                "index of its own, since its seed comes from it"
            )
        call = Call(self._run, self._account, plan, on_chunk)
        self._calls[plan.index] = call
        return call

    def _check_open(self) -> None:
        if self._ended:
            raise asyncio.CancelledError
        self._run.check_deadline()

    def _child(
        self, name: str, account: Account, beside: frozenset[str] = frozenset()
    ) -> NodeScope:
        path = join(self._path, name)
        if any(child.path == path for child in self._children):
            raise ValueError(f"{path} was opened twice; give each sub-graph a name of its own")
        child = NodeScope(self._run, account, path, beside=beside)
        self._children.append(child)
        return child

    def _opened(self, stream: PumpStream[U]) -> PumpStream[U]:
        self._streams.append(stream)
        return stream

    def _usage_of(self, key: str | None) -> Usage:
        mine = [call.usage for call in self._calls.values() if call.key == key]
        return mine[0] if mine else Usage()

    def _failed(self, item: Any, error: EngineError) -> Any:
        if not isinstance(item, Candidate):
            raise error
        branch = Branch(
            parent=item.branch,
            role=item.branch.role,
            text="",
            token_ids=(),
            finish_reason="error",
            call=error.call,
        )
        usage = item.usage + self._usage_of(error.call)
        return replace(item, branch=branch, status="failed", error=str(error), usage=usage)


class _Source:
    """The owner of given candidates: there is no work behind them that could be cancelled."""

    path = ""

    def __init__(self, run: Run) -> None:
        self.task = run.task
        self.refused = run.refused

    def cancel(self, keep: frozenset[str]) -> None:
        """There is nothing to cancel."""

    def close(self) -> None:
        """There is nothing to close."""


async def _generator(items: AsyncIterator[Candidate]) -> AsyncGenerator[Candidate, None]:
    async for item in items:
        yield item
