"""Failures: a failed call is a candidate, a failed verifier is unknown, a bug has a path."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.core.lab import PROMPT, QUESTION, Ledgers, check_no_task_is_left, solved, talker
from ttc import Budget, Candidate, EngineError, NodeError, Outcome, Problem, Score, node
from ttc.errors import ContextOverflow
from ttc.graph import Port
from ttc.ports import Request, Scope, Stream
from ttc.strategies import Best, Sample, SelfConsistency, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import UNMEASURED, Branch, Chunk, Event

SAID = "The answer is 1."


def test_one_failed_call_of_eight_leaves_seven() -> None:
    """It keeps its place, its error and what it cost; its siblings go on."""
    replies = [SAID] * 8
    run = solved(
        Sample(n=8) >> Vote(),
        [*replies[:3], EngineError("out of memory", output_tokens=2), *replies[4:]],
        in_order=True,
    )
    failed = run.outcome.candidates[3]

    assert [c.status for c in run.outcome.candidates].count("finished") == 7
    assert (failed.status, failed.error, failed.usage.tokens) == ("failed", "out of memory", 2)
    assert run.outcome.trace[3].detail["finish"] == "error"
    assert run.outcome.confidence == 7 / 8


def test_a_call_that_is_refused_at_once_leaves_its_prompt_to_the_next() -> None:
    """It was not sent, so nothing but the call is charged."""

    class Refusing(FakeEngine):
        def submit(self, request: Request, *told: Any) -> Any:
            if not request.call.endswith("#2"):
                raise EngineError("not today")
            return super().submit(request, *told)

    outcome = ttc.solve(QUESTION, Sample(n=4) >> Vote(), model=Refusing(SAID), seed=0)
    spent = [candidate.usage.tokens for candidate in outcome.candidates]

    assert spent == [0, 0, PROMPT + 4, 0]
    assert [record.usage.calls for record in outcome.trace if record.kind == "call"] == [1] * 4
    assert outcome.usage.tokens == PROMPT + 4


def test_sampling_by_budget_ends_where_every_call_fails_for_nothing() -> None:
    """No limit of tokens would ever end it: 17 in a row, of which the first pays for the prompt."""
    graph = Sample(n="budget") >> Vote()
    run = solved(graph, EngineError("broken"), budget=Budget(tokens=1000))

    assert run.outcome.usage.calls < 40
    assert (run.outcome.answer, run.outcome.stopped_by) == (None, "no_valid_answer")


def test_if_every_call_fails_there_is_no_answer() -> None:
    """And no exception."""
    run = solved(SelfConsistency(n=3), EngineError("broken"))

    assert (run.outcome.answer, run.outcome.stopped_by) == (None, "no_valid_answer")
    assert {c.status for c in run.outcome.candidates} == {"failed"}


def test_one_error_given_to_many_calls_names_each_of_them() -> None:
    """An engine that dies may fail all its calls with one object."""
    error = EngineError("died", output_tokens=1)
    run = solved(Sample(n=3) >> Vote(), lambda _: error)

    assert [c.branch.call for c in run.outcome.candidates] == [f"0.sample#{i}" for i in range(3)]
    assert [c.usage.tokens for c in run.outcome.candidates] == [PROMPT + 1, 1, 1]
    assert error.call is None


class StrangeEngine(FakeEngine):
    """An engine that keeps no rule of its port."""

    def __init__(self, what: str) -> None:
        super().__init__(SAID)
        self.what = what

    def submit(self, request: Request, on_chunk: Callable[[Chunk], None] | None = None):  # type: ignore[no-untyped-def]
        """Breaks one rule."""
        if self.what == "refuses":
            raise EngineError("no such request")
        if self.what == "raises":
            raise OSError("disk")
        generation = Strange(self.what, request)
        return generation


class Strange:
    """A generation that breaks a rule."""

    usage = UNMEASURED

    def __init__(self, what: str, request: Request) -> None:
        self.future: Future[Branch] = Future()
        ids = (1,) * (request.max_tokens + 5)
        if what == "produces too much":
            self.future.set_result(Branch(parent=request.branch, text="1", token_ids=ids))
        elif what == "counts too much":
            self.future.set_exception(EngineError("x", output_tokens=10**6))
        elif what == "fails strangely":
            self.future.set_exception(ZeroDivisionError("y"))
        elif what == "gives up":
            self.future.cancel()

    def cancel(self) -> int:
        """Counts too much, and then fails."""
        raise OSError("cannot cancel")


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("refuses", "no such request"),
        ("produces too much", "produced 9 tokens where 4 were allowed"),
        ("counts too much", "x"),
        ("fails strangely", "ZeroDivisionError: y"),
        ("gives up", "gave the call up"),
    ],
)
def test_a_strange_engine_makes_failed_candidates(what: str, error: str) -> None:
    """No call hangs, and none is booked for more than it was granted."""
    with Ledgers() as ledgers:
        outcome = ttc.solve(
            QUESTION,
            Sample(n=2, max_tokens=4) >> Vote(),
            model=StrangeEngine(what),
            budget=Budget(tokens=100),
        )
    ledgers.check_settled()

    assert [c.status for c in outcome.candidates] == ["failed", "failed"]
    assert error in (outcome.candidates[0].error or "")
    assert outcome.usage.tokens <= PROMPT + 8


def test_an_engine_that_cannot_cancel_is_charged_the_worst_case(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And the others are cancelled all the same."""
    clock = ManualClock()
    with Ledgers() as ledgers, caplog.at_level(logging.ERROR):
        outcome = clock.run(
            ttc.asolve(
                QUESTION,
                Sample(n=3, max_tokens=4) >> Vote(),
                model=StrangeEngine("hangs"),
                budget=Budget(seconds=1),
                clock=clock,
            )
        )
    ledgers.check_settled()

    assert outcome.usage.tokens == PROMPT + 12
    assert "could not cancel" in caplog.text


def test_an_engine_that_raises_something_else_is_a_bug_with_a_path() -> None:
    """What was reached until then hangs on the error."""
    with pytest.raises(NodeError, match=r"^0\.sample: OSError: disk$") as bug:
        ttc.solve(QUESTION, Sample(n=2) >> Vote(), model=StrangeEngine("raises"))

    assert bug.value.path == "0.sample"
    assert bug.value.outcome is not None
    assert bug.value.outcome.stopped_by == "error"
    assert isinstance(bug.value.__cause__, OSError)


@node(gives=Port("finished", "one"))
async def broken(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
    """Yields its first candidate and then has a bug."""
    first = await anext(candidates)
    second = await anext(candidates)
    if second.answer == "never":
        yield first
    raise RuntimeError("a bug")


def test_a_bug_in_a_node_has_its_path_and_the_partial_outcome() -> None:
    """Nothing is left running, and nothing reserved."""
    with pytest.raises(NodeError, match=r"^1\.broken: RuntimeError: a bug$") as bug:
        solved(Sample(n=8) >> broken, talker())

    outcome = bug.value.outcome
    assert outcome is not None
    assert len(outcome.candidates) == 2
    assert outcome.usage.calls == 8
    assert outcome.error is bug.value


def test_a_bug_upstream_comes_after_everything_before_it() -> None:
    """What had been given before the bug is worked on to its end, in any timing."""

    @node
    async def two_then_a_bug(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        yield await anext(candidates)
        yield await anext(candidates)
        raise RuntimeError("a bug")

    seen: list[list[Candidate]] = []
    for delay in (0, 5):

        class Slow(ScriptedVerifier):
            async def __call__(
                self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
            ) -> tuple[Score, ...]:
                for _ in range(delay):  # noqa: B023 - it is called in this very round
                    await asyncio.sleep(0)
                return (Score(value=0.5),)

        with pytest.raises(NodeError, match=r"1\.two_then_a_bug") as bug:
            solved(Sample(n=3) >> two_then_a_bug >> Slow({}) >> Best())
        assert bug.value.outcome is not None
        seen.append(list(bug.value.outcome.candidates))

    assert [len(candidates) for candidates in seen] == [2, 2]


def test_solve_many_goes_on_without_the_problem_that_met_a_bug() -> None:
    """Its outcome holds the error; a prompt that is too long is told in the same way."""

    @node
    async def picky(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            if "bad" in scope.problem.messages[0].content:
                raise ValueError("no")
            yield candidate

    outcomes = ttc.solve_many(
        ["good", "bad", "fine"], Sample(n=2) >> picky >> Vote(), model=FakeEngine(SAID)
    )

    assert [outcome.answer for outcome in outcomes] == ["1", None, "1"]
    assert isinstance(outcomes[1].error, NodeError)
    assert outcomes[1].stopped_by == "error"


class Narrow(FakeEngine):
    """An engine whose context some prompts overflow."""

    def root(self, problem: Problem, role: str) -> Branch:
        """Refuses long questions."""
        if len(problem.messages[0].content) > 9:
            raise ContextOverflow("too long")
        return super().root(problem, role)


def test_a_prompt_that_does_not_fit_fails_its_own_problem() -> None:
    """Alone it is raised, among others it is recorded."""
    outcomes = ttc.solve_many(["short", "long enough"], SelfConsistency(n=2), model=Narrow(SAID))

    assert [outcome.answer for outcome in outcomes] == ["1", None]
    assert isinstance(outcomes[1].error, ContextOverflow)
    with pytest.raises(ContextOverflow, match="too long"):
        ttc.solve("long enough", SelfConsistency(n=2), model=Narrow(SAID))


def _raise(error: BaseException) -> float:
    raise error


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (lambda _: _raise(ValueError("cannot parse")), "ValueError: cannot parse"),
        (lambda _: 7.0, "outside its range"),
        (lambda _: "high", "TypeError"),
        (lambda _: _raise(asyncio.CancelledError()), "it cancelled itself"),
    ],
)
def test_a_verifier_that_fails_gives_unknown_scores(
    script: Callable[[Candidate], float], reason: str
) -> None:
    """With the reason as evidence; the candidate keeps its place and never wins by it."""
    good = ScriptedVerifier(lambda c: 0.5 if c.answer == "2" else script(c), name="v")
    run = solved(Sample(n=4) >> good >> Best(), [SAID, "The answer is 2."], in_order=True)
    unknown = run.outcome.candidates[0].scores["v"]

    assert run.outcome.answer == "2"
    assert unknown.value is None
    assert reason in unknown.evidence["error"]
    assert run.outcome.usage.verifier_calls == 4


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ((), "scripted gave 0 scores for 1 candidates"),
        ((Score(value=0.1), Score(value=0.2)), "scripted gave 2 scores for 1 candidates"),
        ((0.5,), "scripted gave a float where a Score belongs; give Score.of"),
        (0.5, "scripted gave a float; give a tuple of one Score for each candidate"),
        (None, "scripted gave a NoneType; give a tuple"),
    ],
)
@pytest.mark.parametrize("on_disk", [False, True])
def test_scores_of_a_wrong_number_or_kind_are_unknown(
    scores: object, why: str, on_disk: bool, tmp_path: Path
) -> None:
    """They are never padded, cut or guessed, and what was wrong with them is told."""

    class Wrong(ScriptedVerifier):
        async def __call__(self, problem, candidates, scope):  # type: ignore[no-untyped-def]
            return scores

    journal = tmp_path / "run" if on_disk else None
    graph = Sample(n=2) >> Wrong({}) >> Best()
    outcome = ttc.solve(QUESTION, graph, model=FakeEngine(SAID), seed=0, journal=journal)
    found = [c.scores["scripted"] for c in outcome.candidates]

    assert outcome.answer is None
    assert outcome.stopped_by == "no_finite_score"
    assert [score.value for score in found] == [None, None]
    assert all(why in score.evidence["error"] for score in found)


def test_a_verifier_that_hangs_is_cut_by_the_deadline() -> None:
    """The best so far is returned by then; what hung was charged."""

    class Hanging(ScriptedVerifier):
        async def __call__(self, problem, candidates, scope):  # type: ignore[no-untyped-def]
            if candidates[0].answer == "2":
                await asyncio.Event().wait()
            return (Score(value=0.5),)

    run = solved(
        Sample(n=4) >> Hanging({}) >> Best(),
        [SAID, "The answer is 2."],
        in_order=True,
        budget=Budget(seconds=5),
    )

    assert run.outcome.answer == "1"
    assert run.outcome.stopped_by == "seconds"
    assert run.clock.now() <= 5.1


def test_a_node_that_hangs_is_given_up_soon_after_the_deadline() -> None:
    """The run returns; nothing is left behind."""

    @node
    async def stuck(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        yield await anext(candidates)
        await asyncio.Event().wait()

    run = solved(Sample(n=4) >> stuck >> Vote(), budget=Budget(seconds=5))

    assert run.outcome.stopped_by == "seconds"
    assert run.clock.now() <= 6
    assert len(run.outcome.candidates) == 1


@pytest.mark.parametrize("cause", ["failure", "cancellation"])
def test_a_failure_or_a_cancellation_leaves_no_sibling_running(cause: str) -> None:
    """OR-02: Also beside a task that ignores its first cancellation; what was spent is booked."""
    clock, ignored = ManualClock(), []
    engine = FakeEngine("no end " * 100, clock=clock, seconds_per_token=0.01)

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ignored.append(1)
        await asyncio.Event().wait()

    @node(takes=Port("open", "many"))
    async def busy(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        root = await anext(candidates)
        calls = [scope.generate(root.branch, index=i, max_tokens=100) for i in range(4)]
        tasks = [scope.spawn(call) for call in calls]
        scope.spawn(stubborn())
        while engine.output_tokens < 10:
            await asyncio.sleep(0)
            clock.jump()
        if cause == "failure":
            raise RuntimeError("a bug")
        await asyncio.gather(*tasks)
        yield root

    async def run() -> None:
        work = asyncio.ensure_future(
            ttc.asolve(QUESTION, busy >> Vote(), model=engine, clock=clock)
        )
        while engine.output_tokens < 20 and not work.done():
            await asyncio.sleep(0)
            clock.jump()
        work.cancel()
        with pytest.raises((NodeError, asyncio.CancelledError)) as error:
            await work
        assert isinstance(error.value, NodeError) is (cause == "failure")
        assert engine.active == 0
        check_no_task_is_left()

    with Ledgers() as ledgers:
        clock.run(run())
    ledgers.check_settled()
    assert ignored == [1]
    assert ledgers.accounts[0].spent["tokens"] == PROMPT + engine.output_tokens


def test_being_cancelled_twice_still_settles() -> None:
    """A second cancellation while the run ends does not leave it half ended."""
    clock, started = ManualClock(), asyncio.Event()

    def pace(request: Request) -> float:
        started.set()
        return 1.0

    engine = FakeEngine(SAID, clock=clock, seconds_per_token=pace)

    async def run() -> None:
        work = asyncio.ensure_future(
            ttc.asolve(QUESTION, Sample(n=3) >> Vote(), model=engine, clock=clock)
        )
        await started.wait()
        for _ in range(3):
            work.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await work
        check_no_task_is_left()

    clock.run(run())
    assert engine.active == 0


def test_a_watcher_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""
    events: list[Event] = []

    def watch(event: Event) -> None:
        events.append(event)
        raise RuntimeError("a bad watcher")

    watched = solved(SelfConsistency(n=4), talker(), watch=watch).outcome
    alone = solved(SelfConsistency(n=4), talker()).outcome

    assert watched.trace == alone.trace
    assert "a watcher failed" in caplog.text
    assert {event.kind for event in events} >= {"call", "candidate"}
    assert [e.usage.tokens for e in events] == sorted(e.usage.tokens for e in events)


def test_sys_exit_in_a_node_is_a_bug_like_any_other() -> None:
    """It ends neither the process nor the loop that all runs share."""

    @node
    async def leaving(
        candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        yield await anext(candidates)
        raise SystemExit(3)

    with pytest.raises(NodeError, match=r"1\.leaving: SystemExit: 3"):
        ttc.solve(QUESTION, Sample(n=2) >> leaving >> Vote(), model=FakeEngine(SAID))

    outcome: Outcome = ttc.solve(QUESTION, Sample(n=2) >> Vote(), model=FakeEngine(SAID))
    assert outcome.answer == "1"
