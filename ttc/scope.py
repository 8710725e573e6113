"""The scope: a node's only door to engine, verifiers, clock and randomness."""

from __future__ import annotations

import asyncio
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ttc.budget import Account, Division
from ttc.call import Call, Plan
from ttc.equivalence import equivalent
from ttc.errors import EngineError
from ttc.frozen import changed
from ttc.graph import Flow, Node, join, written_out
from ttc.journal import derive_seed
from ttc.pace import Pace
from ttc.ports import Verifier
from ttc.postbox import Posting
from ttc.run import Run
from ttc.spoken import answer_of
from ttc.streams import PumpStream, calls_behind, generator, iterate, ordered_map
from ttc.telling import Telling
from ttc.types import (
    UNFILTERED,
    Branch,
    Budget,
    Candidate,
    Chunk,
    Order,
    Problem,
    Sampling,
    Score,
    Status,
    Tail,
)
from ttc.usage import NO_USAGE, Usage
from ttc.verifier_call import VerifierCall
from ttc.work import Spawned

if TYPE_CHECKING:
    from ttc.sandbox.execution import Execution
    from ttc.sandbox.extraction import Completion
    from ttc.sandbox.forms import Tests
    from ttc.sandbox.limits import Limits
    from ttc.tools.port import Confirm, Tool, ToolResult

__all__ = ["NodeScope"]

U = TypeVar("U")


class NodeScope(Telling):
    """The scope of one node in one run; implements `ttc.ports.Scope`."""

    def __init__(
        self,
        run: Run,
        account: Account,
        path: str,
        *,
        beside: frozenset[str] = frozenset(),
        aside: bool = False,
    ) -> None:
        """A scope.

        Args:
            run: the run.
            account: what it draws on.
            path: the path of the node.
            beside: logical resources that work downstream of it uses while it runs.
            aside: whether it works for a verifier, whose choices are not the strategy's.
        """
        super().__init__(run, account, path, aside=aside)
        self.pace = Pace()
        self.beside = beside
        self._calls: dict[str, Call] = {}
        self._children: set[str] = set()
        self._told: set[str] = set()
        self._verified = self._executed = self._used = 0
        self._priorities: dict[int, float] = {}
        self._when_closed: Callable[[], None] = lambda: None

    @property
    def problem(self) -> Problem:
        """The problem that is being solved."""
        return self._run.problem

    @property
    def remaining(self) -> Budget:
        """What is left, less what is reserved; `None` where there is no limit."""
        deadline = self._run.deadline
        seconds = None if deadline is None else max(0.0, deadline - self.now())
        return Budget(seconds=seconds, **self._account.remaining, **self._run.measurable)

    def root(self, role: str = "policy") -> Branch:
        """The problem's prompt, for the model of a role."""
        if role not in self._run.roots:
            self._run.roots[role] = self._run.engine(role).root(self.problem, role)
        return self._run.roots[role]

    def prompt(self, problem: Problem, role: str) -> Branch:
        """A prompt of the node's own, for the model of a role; see `ttc.ports.Scope`."""
        return self._run.engine(role).root(problem, role)

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
            path=self.path,
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
        booked_as: str | None = None,
    ) -> PumpStream[Chunk]:
        """As `generate`, piece by piece; `stop()` ends the call and refunds the rest."""
        plan = Plan(
            path=self.path,
            index=index,
            branch=branch,
            max_tokens=max_tokens,
            sampling=sampling,
            at_least=at_least,
            until=until,
            booked_as=booked_as,
        )
        loop, work = asyncio.get_running_loop(), self.innermost().part()

        def tell(chunk: Chunk) -> None:
            if chunk.branch is None:
                stream.push(chunk)

        stream = PumpStream(self._whole(plan, Posting(loop, tell)), work)
        return stream

    async def _whole(
        self, plan: Plan, on_chunk: Callable[[Chunk], None]
    ) -> AsyncGenerator[Chunk, None]:
        """A call's last chunk; those before it are told as they come."""
        branch = await self._call(plan, on_chunk).run()
        yield Chunk(text="", token_ids=(), branch=branch)

    def prioritise(self, index: int, priority: float) -> None:
        """Says what a call of the node is worth beside others; see `ttc.ports.Scope`."""
        if math.isnan(priority):
            raise ValueError(f"{self.path}: the priority of a call is a number, not NaN")
        self._priorities[index] = priority
        if (call := self._calls.get(f"{self.path}#{index}")) is not None:
            call.prioritise(priority)

    async def verify(
        self, verifier: Verifier, candidates: Sequence[Candidate]
    ) -> tuple[Score, ...]:
        """One score for each candidate, charged as verifier calls; see `ttc.ports.Scope`."""
        work = self._open_work()
        self._run.check_deadline()
        index, self._verified = self._verified, self._verified + 1
        self._run.oracle = self._run.oracle or getattr(verifier, "oracle", False)
        if verifier.name not in self._told:
            self._told.add(verifier.name)
            self.note(verifier=verifier.name, range=verifier.range)
        inner = self._child(str(index), self._account, aside=True)
        call = VerifierCall(self._run, self._account, index, candidates, (inner, inner))
        work.calls.append(call)
        return await call.run(verifier)

    async def execute(
        self,
        program: str | Completion,
        tests: Tests | None = None,
        *,
        limits: Limits | None = None,
    ) -> Execution:
        """Runs code in a jail, against tests or alone; see `ttc.ports.Scope`."""
        from ttc.program_call import ProgramCall  # the sandbox is loaded when it is needed
        from ttc.sandbox.limits import Limits

        work = self._open_work()
        self._run.check_deadline()
        index, self._executed = self._executed, self._executed + 1
        limits = limits or Limits()
        call = ProgramCall(self._run, self.path, index, (program, tests, limits))
        work.calls.append(call)
        return await call.run(work, program, tests, limits)

    async def call(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        *,
        earlier: Sequence[Mapping[str, Any]] = (),
        after_untrusted: bool = True,
        confirm: Confirm | None = None,
    ) -> ToolResult:
        """Calls a tool, charged as a call; see `ttc.ports.Scope`."""
        from ttc.tool_call import Asked, ToolUse  # tools are loaded when they are needed

        work = self._open_work()
        self._run.check_deadline()
        index, self._used = self._used, self._used + 1
        asked = Asked(
            tool=tool,
            arguments=arguments,
            earlier=tuple(earlier),
            after_untrusted=after_untrusted,
            confirm=confirm,
        )
        inner = self._child(f"tool{index}", self._account, aside=True)
        use = ToolUse(self._run, self._account, index, asked, (inner, inner))
        work.calls.append(use)
        return await use.run()

    async def equivalent(
        self, pairs: Sequence[tuple[Candidate, Candidate]]
    ) -> tuple[bool | None, ...]:
        """Whether the answers of each pair are equal; see `ttc.ports.Scope`."""
        return await equivalent(self._run, self.path, pairs)

    def finish(self, candidate: Candidate, branch: Branch, *, is_open: bool = False) -> Candidate:
        """The candidate that `branch` makes of `candidate`; see `ttc.ports.Scope`."""
        status: Status = "finished" if branch.finish_reason == "stop" else "truncated"
        answer, key = None, None
        if is_open:
            status = "open"
        else:
            answer, key = answer_of(self.problem, branch, self._run.engine(branch.role))
        return changed(
            candidate,
            branch=branch,
            text=branch.output,
            answer=answer,
            key=key,
            status=status,
            usage=candidate.usage + self._usage_of(branch.call),
        )

    def map(
        self,
        work: Callable[[Any, int], Awaitable[U]],
        items: AsyncIterator[Any],
        *,
        ahead: int | None,
        order: Order = "launch",
        each: int = 1,
    ) -> PumpStream[U]:
        """Runs `work(item, launch index)` on up to `ahead` items at once; see `ttc.ports.Scope`."""
        if ahead is not None and ahead < 1:
            raise ValueError(f"ahead is at least 1, or None for no bound, not {ahead}")
        part = self.innermost().part()
        on_arrival = partial(self._run.arrived, self.path) if order == "arrival" else None
        source = ordered_map(
            work,
            items,
            part,
            ahead=ahead,
            each=each,
            failed=self._failed,
            on_arrival=on_arrival,
        )
        upstream = items if isinstance(items, PumpStream) else None
        return PumpStream(source, part, upstream)

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
        work = self._open_work()
        child = self._child(name, self._account, self.beside | beside)
        work.add(child)
        return child.open(written_out(graph), candidates, given)

    async def run_together(
        self, graphs: Mapping[str, Node], candidates: Sequence[Candidate]
    ) -> list[PumpStream[Candidate]]:
        """Opens sub-graphs that run at the same time; see `ttc.ports.Scope`."""
        graphs = {name: written_out(graph) for name, graph in graphs.items()}
        still_open = all(candidate.status == "open" for candidate in candidates)
        given = Flow(kind="open" if still_open else "finished", count=len(candidates))
        parties = [graph.bound(given).uses for graph in graphs.values()]
        work = self._open_work()
        division = await self._account.divide(self.path, parties, self.beside)
        try:
            children = [
                self._child(name, account)
                for name, account in zip(graphs, division.accounts, strict=True)
            ]
            streams = [
                child.open(graph, iterate(*candidates), given)
                for child, graph in zip(children, graphs.values(), strict=True)
            ]
        except BaseException:
            division.reclaim()
            raise
        self._share(division, children, streams)
        for child in children:
            work.add(child)
        return streams

    @staticmethod
    def _share(
        division: Division, children: Sequence[NodeScope], streams: Sequence[PumpStream[Candidate]]
    ) -> None:
        """Lets a division end with its last party, and its parties run free if they must."""
        running = set(children)

        def closed(child: NodeScope) -> None:
            running.discard(child)
            if not running:
                division.reclaim()

        def hurry() -> None:
            for stream in streams:
                stream.run_free()

        for child in children:
            child._when_closed = partial(closed, child)
        division.when_hurried(hurry)
        if not children:
            division.reclaim()

    def open(
        self, graph: Node, candidates: AsyncIterator[Candidate], given: Flow | None
    ) -> PumpStream[Candidate]:
        """The stream of a graph in this scope."""
        self._run.emit("opened", self.path)
        at_most = graph.flow(given).count if given is not None else None
        upstream = self._read(candidates, given)
        source = graph.run(upstream, self)
        stream = PumpStream(source, self, upstream, at_most=at_most, is_node=True)
        stream.pace = self.pace
        if graph.selects:
            self._run.reads(self.path, upstream)
            if not self._aside:
                upstream.on_taken = lambda candidate: self._run.consider(self.path, candidate)
            stream.on_given = lambda candidate: self._chosen(candidate, upstream)
        return stream

    def _chosen(self, candidate: Candidate, upstream: PumpStream[Candidate]) -> Candidate:
        """What the scope's selector gives, with what it was chosen among."""
        among = calls_behind(upstream.delivered) | candidate.chosen_among
        chosen = changed(candidate, chosen_among=among)
        if not self._aside:
            self._run.chose(self.path, chosen)
        return chosen

    def _read(
        self, candidates: AsyncIterator[Candidate], given: Flow | None
    ) -> PumpStream[Candidate]:
        """A stream of what the scope is given, with no work behind it that is not there already."""
        if isinstance(candidates, PumpStream):
            return candidates
        source = candidates if isinstance(candidates, AsyncGenerator) else generator(candidates)
        count = given.count if given is not None else None
        return PumpStream(source, self.part(), at_most=count)

    def spawn(self, coroutine: Coroutine[Any, Any, U]) -> Spawned[U]:
        """Starts work that ends with the scope at the latest."""
        if self.has_ended:
            coroutine.close()
            raise asyncio.CancelledError
        part = self.part()
        return Spawned(part.task(coroutine), part)

    def random(self, *key: str | int) -> Random:
        """A generator that depends on (run seed, path, key) alone."""
        return Random(derive_seed(self._run.seed, self.path, "/".join(map(str, key))))

    def now(self) -> float:
        """Seconds by the run's clock."""
        return self._run.clock.now()

    def cancel(self, keep: frozenset[str]) -> None:
        """Cancels everything; whatever had ended something here is not why the run ends."""
        super().cancel(keep)
        self._run.forget(self.path)

    def on_close(self) -> None:
        """Tells whoever waits for the scope to end."""
        self._run.emit("closed", self.path)
        self._when_closed()

    def _call(self, plan: Plan, on_chunk: Callable[[Chunk], None] | None = None) -> Call:
        work = self._open_work()
        self._run.check_deadline()
        if plan.key in self._calls:
            raise ValueError(
                f"index {plan.index} was used twice in {self.path}; each call of a node needs an "
                "index of its own, since its seed comes from it"
            )
        if plan.index in self._priorities:
            plan = changed(plan, priority=self._priorities[plan.index])
        call = self._calls[plan.key] = Call(self._run, self._account, plan, on_chunk)
        work.calls.append(call)
        return call

    def _child(
        self,
        name: str,
        account: Account,
        beside: frozenset[str] = frozenset(),
        *,
        aside: bool = False,
    ) -> NodeScope:
        path = join(self.path, name)
        if path in self._children:
            raise ValueError(f"{path} was opened twice; give each sub-graph a name of its own")
        self._children.add(path)
        return NodeScope(self._run, account, path, beside=beside, aside=aside or self._aside)

    def _usage_of(self, key: str | None) -> Usage:
        call = self._calls.get(key or "")
        return call.usage if call else NO_USAGE

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
        call = self._calls.get(error.call or "")
        status: Status = "cancelled" if call is not None and call.cancelled else "failed"
        return changed(item, branch=branch, status=status, error=str(error), usage=usage)
