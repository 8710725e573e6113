"""Where the time of a run goes, so that a run tells what it takes beside the model."""

from __future__ import annotations

from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, talker
from ttc import Budget, Control, Outcome
from ttc.ports import Scope
from ttc.stopwatch import PARTS
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier


def run(graph: Any, clock: ManualClock, *, slots: int | None = None, **more: Any) -> Outcome:
    """An outcome by a clock of its own, on an engine that takes a second for each token."""
    engine = FakeEngine(talker(), clock=clock, seconds_per_token=1.0, concurrency=slots)
    return clock.run(ttc.asolve(QUESTION, graph, model=engine, clock=clock, seed=1, **more))


class Slow(ScriptedVerifier):
    """A verifier that takes three seconds of a clock."""

    async def __call__(self, problem: Any, candidates: Any, scope: Scope) -> Any:
        """Waits, and scores."""
        clock.advance(3.0)
        return await super().__call__(problem, candidates, scope)


clock = ManualClock()


@pytest.mark.parametrize("budget", [None, Budget(tokens=60), Budget(seconds=4)])
def test_the_parts_are_the_whole(budget: Budget | None) -> None:
    own = ManualClock()
    outcome = run(Sample(n=6, max_tokens=9, ahead=2) >> Vote(), own, budget=budget)

    assert sum(outcome.seconds_by.values()) == pytest.approx(outcome.usage.seconds)
    assert outcome.seconds_by["engine"] > 0
    assert set(outcome.seconds_by) == {*PARTS, "orchestration"}


def test_a_verifier_and_an_engine_are_told_apart() -> None:
    """Where both work at once, it is the engine's time."""
    graph = Sample(n=2, max_tokens=9, ahead=1) >> Slow({"1": 1.0}) >> Best()
    outcome = run(graph, clock)

    parts = outcome.seconds_by
    assert parts["verifier"] + parts["engine"] == pytest.approx(outcome.usage.seconds)
    assert parts["verifier"] == pytest.approx(6.0)
    assert parts["engine"] > 3


def test_a_pause_is_waiting_and_a_node_is_orchestration() -> None:
    own, control = ManualClock(), Control()
    control.pause()
    own.call_later(7.0, control.resume)
    outcome = run(Sample(n=1, max_tokens=9) >> Vote(), own, control=control)

    assert outcome.seconds_by["waiting"] == pytest.approx(7.0)

    @ttc.node
    async def thinks(candidates: Any, scope: Scope) -> Any:
        async for candidate in candidates:
            own.advance(5.0)
            yield candidate

    outcome = run(Sample(n=1, max_tokens=9) >> thinks >> Vote(), own)
    assert outcome.seconds_by["orchestration"] == pytest.approx(5.0)


def test_where_the_time_went_is_no_part_of_an_outcomes_identity() -> None:
    """It is measured."""
    graph = Sample(n=3, max_tokens=9) >> Vote()
    one, other = run(graph, ManualClock()), run(graph, ManualClock(), slots=1)

    assert one.seconds_by != other.seconds_by
    assert one.answer == other.answer
