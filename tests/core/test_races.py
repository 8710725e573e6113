"""What comes at the wrong moment: late arrivals, other threads, deadlines in the same step."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from queue import SimpleQueue

import pytest

import ttc
from tests.core.lab import (
    QUESTION,
    CheckedEngine,
    Ledgers,
    check_counts,
    check_no_task_is_left,
    solved,
    talker,
)
from ttc import Budget, Candidate, Node, node
from ttc.graph import Port
from ttc.ports import Generation, Request, Scope, Stream
from ttc.strategies import Best, Sample, SelfConsistency, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import UNMEASURED, Branch, Chunk

SAID = "The answer is 1."


@pytest.mark.parametrize("steps", range(8))
def test_a_deadline_may_come_between_an_arrival_and_its_reader(steps: int) -> None:
    """A call is booked once, whichever of the two is first."""
    clock, ledgers = ManualClock(), Ledgers()
    engine = CheckedEngine(SAID, clock=clock, seconds_per_token=1.0)

    async def run() -> None:
        graph = Sample(n=3, max_tokens=9) >> Vote()
        work = asyncio.ensure_future(
            ttc.asolve(QUESTION, graph, model=engine, clock=clock, budget=Budget(seconds=4.5))
        )
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(4.2)
        for _ in range(steps):
            await asyncio.sleep(0)
        clock.advance(1.0)
        check_counts(await work, engine, ledgers)
        check_no_task_is_left()

    with ledgers:
        clock.run(run())
    ledgers.check_settled()


class ThreadedEngine(FakeEngine):
    """An engine with a thread of its own, which gives its tokens as fast as it can."""

    def __init__(self) -> None:
        super().__init__(SAID)
        self.inbox: SimpleQueue[ThreadedGeneration | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        self.generated = 0

    def submit(  # type: ignore[override]
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> Generation:
        """Queues a call for the thread."""
        self.calls += 1
        generation = ThreadedGeneration(request, on_chunk)
        self.inbox.put(generation)
        return generation

    def _serve(self) -> None:
        while (generation := self.inbox.get()) is not None:
            self.generated += generation.generate()

    def end(self) -> None:
        """Ends the thread."""
        self.inbox.put(None)
        self.thread.join()


class ThreadedGeneration:
    """One call of a threaded engine."""

    usage = UNMEASURED

    def __init__(self, request: Request, on_chunk: Callable[[Chunk], None] | None) -> None:
        self.future: Future[Branch] = Future()
        self._request, self._on_chunk = request, on_chunk
        self._lock, self._cancelled, self._given = threading.Lock(), False, 0

    def generate(self) -> int:
        """Gives ten tokens, unless it is cancelled; returns how many."""
        for _ in range(10):
            with self._lock:
                if self._cancelled:
                    return self._given
                self._given += 1
            if self._on_chunk is not None:
                self._on_chunk(Chunk(text=" 1", token_ids=(1,)))
        branch = self._request.branch
        self.future.set_result(
            Branch(
                parent=branch,
                role=branch.role,
                text=SAID,
                token_ids=(1,) * 10,
                finish_reason="stop",
            )
        )
        return self._given

    def cancel(self) -> int:
        """Ends it."""
        with self._lock:
            self._cancelled = True
            return self._given


@pytest.mark.parametrize(
    "graph",
    [
        SelfConsistency(n=40, max_tokens=20),
        Sample(n=40, max_tokens=20) >> ScriptedVerifier({"1": 0.5}) >> Best(),
        (Sample(n=9, max_tokens=20) | SelfConsistency(n=30, max_tokens=20)) >> Vote(),
    ],
    ids=["stop", "all", "pool"],
)
def test_an_engine_may_live_in_a_thread(graph: Node) -> None:
    """What it gives while it is being cancelled is counted to the token."""
    engine = ThreadedEngine()
    try:
        with Ledgers() as ledgers:
            outcome = ttc.solve(QUESTION, graph, model=engine, budget=Budget(tokens=2000))
    finally:
        engine.end()
    ledgers.check_settled()

    assert outcome.answer == "1"
    assert outcome.usage.output_tokens == engine.generated
    assert outcome.usage.calls == engine.calls


def test_what_an_engine_says_after_the_end_of_a_loop_is_dropped() -> None:
    """Chunks and results alike; its thread goes on."""
    held: list[tuple[ThreadedGeneration, Callable[[Chunk], None] | None]] = []

    class Late(FakeEngine):
        def submit(  # type: ignore[override]
            self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
        ) -> Generation:
            held.append((ThreadedGeneration(request, on_chunk), on_chunk))
            return held[-1][0]

    @node(takes=Port("open", "many"))
    async def listen(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        async for _ in scope.stream(root.branch, index=0, max_tokens=10):
            yield root

    clock = ManualClock()
    outcome = clock.run(
        ttc.asolve(
            QUESTION, listen >> Vote(), model=Late(""), budget=Budget(seconds=1), clock=clock
        )
    )
    (generation, _), *_ = held
    generation._cancelled = False

    assert outcome.stopped_by == "seconds"
    assert generation.generate() == 10


def test_a_call_that_was_never_begun_is_not_charged() -> None:
    """A stream of chunks that nobody pulls asks for nothing."""

    @node(takes=Port("open", "many"))
    async def idle(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        for index in range(3):
            scope.stream(root.branch, index=index, max_tokens=9)
        yield root

    run = solved(idle >> Vote())

    assert run.engine.calls == run.outcome.usage.calls == 0
    assert [record.kind for record in run.outcome.trace] == ["decision"]


def test_a_run_that_is_cancelled_before_its_first_step_leaves_nothing() -> None:
    """There is nothing yet that could be settled."""

    async def run() -> None:
        engine = FakeEngine(SAID)
        work = asyncio.ensure_future(ttc.asolve(QUESTION, SelfConsistency(n=3), model=engine))
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert engine.calls == 0
        check_no_task_is_left()

    asyncio.run(run())


def test_work_grows_with_the_number_of_samples_and_no_faster() -> None:
    """Counted in calls of functions, so that a busy machine cannot fail it."""

    def cost(samples: int) -> int:
        count = 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        graph = Sample(n=samples, max_tokens=9) >> ScriptedVerifier({"1": 0.5}) >> Best()
        sys.setprofile(profile)
        try:
            solved(graph, talker(longest=3), budget=Budget(tokens=20 * samples))
        finally:
            sys.setprofile(None)
        return count

    small, large = cost(50), cost(400)

    assert large < 8.5 * small
