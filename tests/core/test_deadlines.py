"""Deadlines: whatever hangs, the best answer so far is there by the deadline and `EPSILON_S`."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION
from ttc import Budget, Candidate, Node, Outcome, Score, node
from ttc.clock import SystemClock
from ttc.graph import Port
from ttc.ports import Clock, Request, Scope, Stream
from ttc.run import EPSILON_S, GRACE_S
from ttc.strategies import Best, Sample, SelfConsistency, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier

SAID = "so the answer is 1"
TEN = Sample(n=10, max_tokens=9, ahead=3)


class Hanging(ScriptedVerifier):
    """Scores two candidates at once, and hangs on the third in one of several ways."""

    def __init__(self, how: str) -> None:
        super().__init__({"1": 0.5}, name=how)
        self.freed = threading.Event()

    async def __call__(
        self, problem: Any, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """Hangs, unless it is one of the first two."""
        if len(self.seen) >= 2:
            await getattr(self, f"_{self.name}")(scope)
        return await super().__call__(problem, candidates, scope)

    async def _waits(self, scope: Scope) -> None:
        await asyncio.Event().wait()

    async def _sits_in_a_thread(self, scope: Scope) -> None:
        await asyncio.to_thread(self.freed.wait)

    async def _swallows(self, scope: Scope) -> None:
        while not self.freed.is_set():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def _spawns_a_tool(self, scope: Scope) -> None:
        await scope.spawn(self._waits(scope))

    async def _cleans_up_forever(self, scope: Scope) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()


@node
async def never_ends(
    candidates: Stream[Candidate], scope: Scope
) -> AsyncGenerator[Candidate, None]:
    """Gives what it reads, and then nothing, for ever."""
    async for candidate in candidates:
        yield candidate
    await asyncio.Event().wait()


@node(takes=Port("open", "many"))
async def swallows(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """Asks again whenever it is refused, and ignores its first cancellations."""
    root = await anext(candidates)
    for index in range(20):
        try:
            branch = await scope.generate(root.branch, index=index, max_tokens=9)
            yield scope.finish(root, branch)
        except (asyncio.CancelledError, ttc.BudgetExceeded):
            continue
    await asyncio.Event().wait()


@node(gives=Port("finished", "one"))
async def hesitates(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """Would improve what was chosen, and never ends."""
    chosen = await anext(candidates)
    await asyncio.Event().wait()
    yield chosen


class Fault:
    """What hangs in a run, and how it is let go after it."""

    def __init__(self, graph: Node, verifier: Hanging | None = None, **engine: Any) -> None:
        self.graph, self.verifier, self.engine = graph, verifier, engine

    def free(self) -> None:
        """Lets go of whatever hangs in a thread, or swallows cancellations."""
        if self.verifier is not None:
            self.verifier.freed.set()


class Stalls:
    """The first two calls are prompt, and the others give no token for an hour."""

    def __init__(self) -> None:
        self.seen: list[Request] = []

    def __call__(self, request: Request) -> float:
        """Seconds for each token of a request."""
        if request not in self.seen:
            self.seen.append(request)
        return 0.01 if self.seen.index(request) < 2 else 3600.0


def fault(name: str) -> Fault:
    """A fault, by its name."""
    if name == "engine stalls":
        return Fault(TEN >> Vote(), seconds_per_token=Stalls())
    if name == "engine is busy":
        return Fault(TEN >> Vote(), seconds_per_token=0.02, concurrency=1)
    if name == "node never ends":
        return Fault(Sample(n=2, max_tokens=9) >> never_ends >> Vote())
    if name == "node after the vote":
        return Fault(Sample(n=2, max_tokens=9) >> Vote() >> hesitates)
    if name == "node swallows":
        return Fault(swallows >> Vote(), seconds_per_token=0.01)
    hanging = Hanging(name)
    return Fault(TEN >> hanging >> Best(), hanging)


FAULTS = [
    "engine stalls",
    "engine is busy",
    "node never ends",
    "node swallows",
    "node after the vote",
    "waits",
    "sits_in_a_thread",
    "swallows",
    "spawns_a_tool",
    "cleans_up_forever",
]


async def run(name: str, seconds: float, clock: Clock) -> tuple[Outcome, float]:
    """Runs a fault into a deadline; gives the outcome and how long it took by the clock."""
    broken = fault(name)
    engine = FakeEngine(SAID, clock=clock, **broken.engine)
    started = clock.now()
    outcome = await ttc.asolve(
        QUESTION, broken.graph, model=engine, budget=Budget(seconds=seconds), clock=clock, seed=0
    )
    took = clock.now() - started
    broken.free()
    await asyncio.sleep(0)
    assert engine.active == 0
    return outcome, took


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_returns_the_best_so_far_by_its_deadline(name: str) -> None:
    """By a clock that jumps over every wait: thirty seconds, and the grace at most."""
    clock = ManualClock()
    outcome, took = clock.run(run(name, 30.0 if name != "engine is busy" else 0.3, clock))

    assert took <= 30 + GRACE_S
    assert outcome.answer == "1"
    assert outcome.stopped_by == "seconds"
    assert outcome.timing_dependent == ("a physical limit acted: seconds",)


@pytest.mark.parametrize("name", FAULTS)
def test_a_run_keeps_its_deadline_by_the_machines_clock(name: str) -> None:
    """Whatever hangs; half a second of slack for a machine that others use as well."""
    started = time.monotonic()
    outcome, _ = asyncio.run(run(name, 0.3, SystemClock()))

    assert time.monotonic() - started <= 0.3 + EPSILON_S + 0.5
    assert (outcome.answer, outcome.stopped_by) == ("1", "seconds")


def test_problems_that_a_deadline_finds_in_the_queue_cost_nothing() -> None:
    """Not even their prompts are made, so that a long queue cannot delay the end."""
    clock, made = ManualClock(), 0

    class Counting(FakeEngine):
        def root(self, *args: Any) -> Any:
            """Counts."""
            nonlocal made
            made += 1
            return super().root(*args)

    engine = Counting(SAID, clock=clock, seconds_per_token=1.0)
    outcomes = clock.run(
        ttc.asolve_many(
            [QUESTION] * 500,
            SelfConsistency(n=1),
            model=engine,
            budget=Budget(seconds=7),
            concurrency=3,
            clock=clock,
        )
    )

    assert made == 6
    assert [o.answer for o in outcomes[:3]] == ["1"] * 3
    assert {o.stopped_by for o in outcomes[3:]} == {"seconds"}


def test_a_blocked_event_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """It cannot be interrupted, so the deadline is late, and the log says why."""
    clock = ManualClock()

    @node
    async def block(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            clock._now += 60.0  # as if it had computed for a minute
            yield candidate

    with caplog.at_level(logging.WARNING, "ttc.run"):
        outcome = clock.run(
            ttc.asolve(
                QUESTION,
                Sample(n=2, max_tokens=9) >> block >> never_ends >> Vote(),
                model=FakeEngine(SAID, clock=clock),
                budget=Budget(seconds=5),
                clock=clock,
            )
        )

    assert "late, since something blocked the event loop" in caplog.text
    assert outcome.stopped_by == "seconds"


def test_a_slow_branch_holds_up_nobody_else() -> None:
    """Neither another problem, nor another part of the same graph, nor a later fork's own work."""
    clock = ManualClock()
    first: dict[object, int] = {}

    def pace(request: Request) -> float:
        key = (request.branch.text, request.seed)
        return 100.0 if first.setdefault(key, len(first)) == 0 else 0.01

    ended: list[float] = []
    engine = FakeEngine(SAID, clock=clock, seconds_per_token=pace)
    graph = (Sample(n=2, max_tokens=9) | Sample(n=3, max_tokens=9)) >> Vote()
    outcomes = clock.run(
        ttc.asolve_many(
            [QUESTION, "Another question?"],
            graph,
            model=engine,
            clock=clock,
            seed=0,
            watch=lambda event: ended.append(clock.now()),
        )
    )
    slow, quick = outcomes

    assert quick.usage.seconds is not None
    assert quick.usage.seconds < 1
    assert slow.usage.seconds == pytest.approx(500.0)
    assert sum(moment < 1 for moment in ended) >= 4 + 5
