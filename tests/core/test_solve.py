"""`solve` and its siblings: from scripts, threads, running loops, forks, and under Ctrl-C."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import AsyncGenerator

import pytest

import ttc
from tests.core.lab import QUESTION, solved, talker
from ttc import Budget, Candidate, GraphError, NodeError, Problem, node
from ttc.ports import Scope, Stream
from ttc.strategies import Greedy, Sample, SelfConsistency, Vote
from ttc.testing import FakeEngine, ManualClock

SAID = "The answer is 1."


def test_solve_takes_a_question_and_a_text() -> None:
    """The shortest program."""
    outcome = ttc.solve("What is it?", "self_consistency(n=5)", model=FakeEngine(SAID))

    assert (outcome.answer, outcome.confidence, outcome.text) == ("1", 1.0, SAID)
    assert outcome.numerics == {"policy": "fake"}
    assert outcome.problem.messages[0].content == "What is it?"


def test_solve_works_inside_a_running_loop() -> None:
    """As in a notebook."""

    async def cell() -> ttc.Outcome:
        return ttc.solve(QUESTION, Greedy(), model=FakeEngine(SAID))

    assert asyncio.run(cell()).answer == "1"


def test_solve_works_from_many_threads_at_once() -> None:
    """All share one loop, and one engine."""
    engine = FakeEngine(talker())
    answers: list[str | None] = []

    def work(seed: int) -> None:
        answers.append(ttc.solve(QUESTION, SelfConsistency(n=3), model=engine, seed=seed).answer)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 8
    assert engine.active == 0


def test_asolve_runs_in_the_loop_of_its_caller() -> None:
    """And many may run at once."""

    async def many() -> list[ttc.Outcome]:
        engine = FakeEngine(SAID)
        return await asyncio.gather(
            *(ttc.asolve(QUESTION, Greedy(), model=engine) for _ in range(5))
        )

    assert [outcome.answer for outcome in asyncio.run(many())] == ["1"] * 5


def test_asolve_many_gives_outcomes_in_order() -> None:
    """Whatever ends first."""
    outcomes = asyncio.run(
        ttc.asolve_many(
            ["one", "two", "three"],
            Greedy(),
            model=FakeEngine(lambda r: f"The answer is {len(r.branch.text)}."),
        )
    )

    assert [outcome.problem.messages[0].content for outcome in outcomes] == ["one", "two", "three"]
    assert [outcome.answer for outcome in outcomes] == ["10", "10", "12"]


def test_solve_inside_a_node_says_what_to_do() -> None:
    """It would wait for its own loop for ever."""

    @node
    async def inner(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        yield await anext(candidates)
        ttc.solve(QUESTION, Greedy(), model=FakeEngine(SAID))

    with pytest.raises(NodeError, match=r"use `await asolve"):
        ttc.solve(QUESTION, Sample(n=2) >> inner >> Vote(), model=FakeEngine(SAID))


PROGRAM = textwrap.dedent("""
    import signal, threading
    import ttc
    from ttc.strategies import Sample, Vote
    from ttc.testing import FakeEngine

    signal.signal(signal.SIGINT, signal.default_int_handler)  # else a shell's `&` has it ignored
    engine = FakeEngine("no end " * 500, seconds_per_token=0.01)

    def ready():
        if engine.active == 3:
            print("ready", flush=True)
        else:
            threading.Timer(0.01, ready).start()

    ready()
    try:
        ttc.solve("q", Sample(n=3) >> Vote(), model=engine)
    except KeyboardInterrupt:
        print("stopped with", engine.active, "active", flush=True)
""")


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT to send")
def test_ctrl_c_cancels_and_settles() -> None:
    """Nothing runs any more when KeyboardInterrupt reaches the caller."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)

        assert program.stdout.readline() == "stopped with 0 active\n"
        assert program.wait(timeout=20) == 0


FORKING = textwrap.dedent("""
    import os, sys
    import ttc
    from ttc.strategies import Greedy
    from ttc.testing import FakeEngine

    def run():
        return ttc.solve("q", Greedy(), model=FakeEngine("The answer is 1.")).answer

    first = run()
    child = os.fork()
    if child == 0:
        os._exit(0 if run() == "1" else 1)
    _, status = os.waitpid(child, 0)
    print(first, run(), os.waitstatus_to_exitcode(status))
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    """The thread that runs the parent's loop does not live in the child."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout == "1 1 0\n", done.stderr


def test_nothing_is_spent_on_a_graph_that_cannot_run() -> None:
    """A role without a model, and a capability that an engine lacks."""
    engine = FakeEngine(SAID)
    with pytest.raises(GraphError, match="no model is bound to the role 'judge'"):
        ttc.solve(QUESTION, Sample(role="judge") >> Vote(), model=engine)
    with pytest.raises(GraphError, match="no model is bound to the role 'policy'"):
        ttc.solve(QUESTION, Greedy(), models={"draft": engine})
    with pytest.raises(ValueError, match=r"models\['policy'\] name the same role"):
        ttc.solve(QUESTION, Greedy(), model=engine, models={"policy": engine})

    assert engine.calls == 0


def test_the_budget_of_many_is_divided_and_capped() -> None:
    """Each gets an equal part; `per_problem` caps it; the run's sum stays within its limit."""
    outcomes = ttc.solve_many(
        [QUESTION] * 3,
        Sample(n=9) >> Vote(),
        model=FakeEngine(SAID),
        budget=Budget(calls=10),
        per_problem=Budget(calls=3),
    )
    uncapped = ttc.solve_many(
        [QUESTION] * 3, Sample(n=9) >> Vote(), model=FakeEngine(SAID), budget=Budget(calls=10)
    )

    assert [outcome.usage.calls for outcome in outcomes] == [3, 3, 3]
    assert [outcome.usage.calls for outcome in uncapped] == [4, 3, 3]


def test_seconds_of_many_count_from_the_start_of_the_run() -> None:
    """Who comes later has less left, and none starts after the end."""
    clock = ManualClock()
    engine = FakeEngine(SAID, clock=clock, seconds_per_token=1.0)
    outcomes = clock.run(
        ttc.asolve_many(
            [QUESTION] * 4,
            Greedy(),
            model=engine,
            budget=Budget(seconds=9),
            concurrency=1,
            clock=clock,
        )
    )

    assert [outcome.answer for outcome in outcomes] == ["1", "1", None, None]
    assert [outcome.stopped_by for outcome in outcomes][2:] == ["seconds", "seconds"]
    assert clock.now() <= 9.5
    assert engine.calls == 3


def test_many_needs_room_for_one() -> None:
    """A concurrency of none would wait for ever."""
    with pytest.raises(ValueError, match="concurrency is a whole number of at least 1, not 0"):
        ttc.solve_many([QUESTION], Greedy(), model=FakeEngine(SAID), concurrency=0)
    assert ttc.solve_many([], Greedy(), model=FakeEngine(SAID), budget=Budget(tokens=5)) == []


def test_a_problem_is_a_conversation_or_a_text() -> None:
    """Never both, never neither."""
    with pytest.raises(ValueError, match="exactly one of them"):
        Problem()
    with pytest.raises(ValueError, match="exactly one of them"):
        Problem(messages=Problem.ask("q").messages, prompt="q")
    assert ttc.solve(Problem(prompt="2 + 2 ="), Greedy(), model=FakeEngine(SAID)).answer == "1"


def test_a_thousand_problems_stay_apart() -> None:
    """Each has its own ledger and trace; they share loop, strategy and engine."""
    outcomes = ttc.solve_many(
        [f"Question {i}" for i in range(1000)],
        Sample(n=2, max_tokens=9) >> Vote(),
        model=FakeEngine(SAID),
        per_problem=Budget(tokens=100),
        seed=1,
    )

    assert {outcome.usage.calls for outcome in outcomes} == {2}
    assert {len(outcome.trace) for outcome in outcomes} == {2}


@pytest.mark.parametrize("calls", [None, 1], ids=["completed", "refused"])
def test_an_outcome_keeps_nothing_of_its_run_alive(calls: int | None) -> None:
    """A hundred thousand of them fit into memory only if a refusal holds no frames."""

    async def run() -> tuple[ttc.Outcome, "weakref.ref[FakeEngine]"]:
        engine = FakeEngine(SAID)
        budget = Budget(calls=calls)
        outcome = await ttc.asolve(QUESTION, SelfConsistency(n=3), model=engine, budget=budget)
        return outcome, weakref.ref(engine)

    outcome, engine = asyncio.run(run())
    gc.collect()

    assert (outcome.refusal is None) == (calls is None)
    assert engine() is None


def test_an_outcome_says_when_a_reference_helped() -> None:
    """A verifier that knows the answer marks it."""
    from ttc.strategies import Best
    from ttc.testing import ScriptedVerifier

    class Knowing(ScriptedVerifier):
        oracle = True

    assert not solved(Sample(n=2) >> ScriptedVerifier({"1": 0.5}) >> Best()).outcome.oracle
    assert solved(Sample(n=2) >> Knowing({"1": 0.5}) >> Best()).outcome.oracle
