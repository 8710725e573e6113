"""Programs that a node runs through its scope."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest

import ttc
from ttc.ports import Scope, Stream
from ttc.sandbox.execution import Execution
from ttc.sandbox.limits import Limits
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine

if sys.platform != "linux":
    pytest.skip("the jail needs Linux", allow_module_level=True)

LOOP = "while True: pass"


def solved(program: str, *, limits: Limits | None = None, **options: Any) -> tuple[Any, Any]:
    """The outcome of a strategy with a node that runs a program, and the execution."""
    seen: list[Execution] = []

    @ttc.node
    async def runs(
        candidates: Stream[ttc.Candidate], scope: Scope
    ) -> AsyncGenerator[ttc.Candidate, None]:
        async for candidate in candidates:
            seen.append(await scope.execute(program, limits=limits))
            yield candidate

    strategy = Sample(n=1, max_tokens=8) >> runs >> Vote()
    outcome = ttc.solve("Ask.", strategy, model=FakeEngine(["It is 1."]), seed=0, **options)
    return outcome, seen[0] if seen else None


def test_a_node_runs_a_program_through_its_scope() -> None:
    """Its output comes back, and the trace holds it."""
    outcome, execution = solved("print('hello')")

    assert (execution.verdict, execution.output) == ("finished", "hello\n")
    (record,) = [record for record in outcome.trace if record.kind == "execution"]
    assert record.detail == {"verdict": "finished"}


def test_a_program_that_fails_is_data() -> None:
    """The run goes on."""
    outcome, execution = solved("raise ValueError('no')")

    assert (execution.verdict, execution.reason) == ("failed", "ValueError: no")
    assert outcome.stopped_by == "completed"


def test_a_time_limit_of_a_program_makes_the_run_depend_on_timing() -> None:
    """The outcome says so."""
    outcome, execution = solved(LOOP, limits=Limits(seconds=0.3))

    assert execution.verdict == "timeout"
    assert outcome.timing_dependent == ("a program was stopped by a limit of time",)


def test_a_deadline_cuts_a_program() -> None:
    """Nobody waits for its own limit."""
    outcome, execution = solved(LOOP, budget=ttc.Budget(seconds=1))

    assert execution is None
    assert outcome.stopped_by == "seconds"


def test_cancelling_a_run_ends_its_programs() -> None:
    """Nothing of it is left in the loop."""

    @ttc.node
    async def runs(
        candidates: Stream[ttc.Candidate], scope: Scope
    ) -> AsyncGenerator[ttc.Candidate, None]:
        async for candidate in candidates:
            started.set()
            await scope.execute(LOOP)
            yield candidate

    async def work() -> set[Any]:
        model = FakeEngine(["It is 1."])
        run = ttc.asolve("Ask.", Sample(n=1, max_tokens=8) >> runs >> Vote(), model=model)
        task = asyncio.create_task(run)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return asyncio.all_tasks() - {asyncio.current_task()}

    started = asyncio.Event()
    assert asyncio.run(work()) == set()


def test_what_a_program_used_is_booked_and_limited() -> None:
    """In a line of its own, under a role of its own; the trace adds up to it."""
    outcome, execution = solved("for _ in range(10**6): pass")

    assert outcome.usage.sandbox_seconds == execution.cpu_seconds > 0
    assert outcome.usage_by_role["sandbox"].sandbox_seconds == execution.cpu_seconds
    assert sum(r.usage.sandbox_seconds for r in outcome.trace) == execution.cpu_seconds
    small = ttc.Budget(sandbox_seconds=1e-6)
    assert solved("print(1)", budget=small)[0].stopped_by == "sandbox_seconds"


def test_a_program_that_is_cut_is_booked_too() -> None:
    """What it had used until then is spent."""
    outcome, _ = solved(LOOP, budget=ttc.Budget(seconds=1))

    assert outcome.usage.sandbox_seconds > 0
