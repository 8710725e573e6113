"""Work that is in no answer: retries, rejected drafts, recomputation. Each has its own line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, lines, talker
from ttc import Budget, EngineError, Outcome, Tail, Usage
from ttc.strategies import Cascade, Sample, SelfConsistency, Vote, confidence
from ttc.testing import FakeEngine, ManualClock

WASTED = ("recomputed_tokens", "draft_tokens", "rejected_draft_tokens", "retried_tokens")
GRAPH = (
    Sample(n=6, max_tokens=5, tail=Tail(cue=" The answer is", max_tokens=2))
    | Sample(n=4, max_tokens=9)
) >> Vote()


class Told:
    """A call of an engine that wastes work, and tells how much."""

    def __init__(self, generation: Any, waste: dict[str, int | None]) -> None:
        self._generation, self._waste = generation, waste
        self.future = generation.future

    @property
    def usage(self) -> Usage:
        """What was measured, with what was wasted."""
        measured: Usage = self._generation.usage
        return replace(measured, **self._waste)  # type: ignore[arg-type]

    def cancel(self) -> int:
        """Ends it."""
        return int(self._generation.cancel())


class Wasteful(FakeEngine):
    """Recomputes, rejects and sends again; it counts what it tells."""

    def __init__(self, *arguments: Any, silent_about: str = "", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.silent_about = silent_about
        self.wasted = dict.fromkeys(WASTED, 0)

    def submit(self, request: Any, on_chunk: Any = None) -> Any:
        """Queues a call, whose waste depends on its seed."""
        waste: dict[str, int | None] = {}
        for place, name in enumerate(WASTED):
            waste[name] = 1 + (request.seed >> 3 * place) % 7
            self.wasted[name] += waste[name] or 0
            if name == self.silent_about:
                waste[name] = None
        return Told(super().submit(request, on_chunk), waste)


def run(engine: Wasteful, graph: Any = GRAPH, **more: Any) -> Outcome:
    """An outcome, by a clock of its own."""
    clock = ManualClock()
    engine._clock = clock
    work = ttc.asolve(QUESTION, graph, model=engine, clock=clock, seed=2, **more)
    return clock.run(work)


@pytest.mark.parametrize("failing", [0.0, 0.5])
@pytest.mark.parametrize("graph", [GRAPH, SelfConsistency(n=9, max_tokens=9, ahead=4)])
def test_wasted_work_is_booked_to_the_token(graph: Any, failing: float) -> None:
    """Through tails, failures, and calls that a stop cut: as the engine counted it."""
    engine = Wasteful(talker(failing=failing), seconds_per_token=0.05)
    outcome = run(engine, graph)

    assert {name: getattr(outcome.usage, name) for name in WASTED} == engine.wasted
    assert all(engine.wasted.values())
    assert sum(outcome.usage_by_role.values(), Usage()) == outcome.usage
    calls = [record.usage for record in outcome.trace if record.kind == "call"]
    assert sum(u.retried_tokens or 0 for u in calls) == outcome.usage.retried_tokens


def test_wasted_work_is_in_no_other_count() -> None:
    """Nor in any logical line, so that it changes neither an answer nor what a limit allows."""
    plain = run(Wasteful(talker()), budget=Budget(tokens=90))
    clean = FakeEngine(talker())
    clock = ManualClock()
    clean._clock = clock
    work = ttc.asolve(QUESTION, GRAPH, model=clean, clock=clock, seed=2, budget=Budget(tokens=90))
    other = clock.run(work)

    assert plain.usage == other.usage
    assert plain.usage.output_tokens == other.usage.output_tokens
    assert plain.usage.flops == other.usage.flops
    assert lines(plain.usage) != lines(other.usage)
    assert plain.answer == other.answer


@pytest.mark.parametrize("name", WASTED)
def test_waste_that_an_engine_does_not_tell_is_unknown(name: str) -> None:
    """And no zero; the other lines are known."""
    usage = run(Wasteful(talker(), silent_about=name)).usage

    assert getattr(usage, name) is None
    assert all(getattr(usage, other) for other in WASTED if other != name)


def test_waste_of_several_roles_stands_apart() -> None:
    """A second model's retries are its own."""
    clock = ManualClock()
    engines = {role: Wasteful(talker(), clock=clock) for role in ("policy", "large")}
    graph = Cascade(
        Sample(n=2, max_tokens=9) >> Vote(),
        Sample(n=2, max_tokens=9, role="large") >> Vote(),
        accept=confidence(1.0),
    )
    work = ttc.asolve(QUESTION, graph, models=engines, clock=clock, seed=1)
    by_role = clock.run(work).usage_by_role

    for role, usage in by_role.items():
        assert usage.retried_tokens == engines[role].wasted["retried_tokens"]


def test_waste_is_kept_in_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = run(Wasteful(talker()), "sample(n=3) >> vote()", journal=path)
    again = ttc.replay(path)
    kept = [json.loads(line.partition(b" ")[2]) for line in path.read_bytes().splitlines()]

    assert {n: getattr(again.usage, n) for n in WASTED} == {
        n: getattr(first.usage, n) for n in WASTED
    }
    assert kept[-1]["usage"]["retried_tokens"] == first.usage.retried_tokens


def test_an_outcome_its_journal_and_a_replay_tell_who_drafted(tmp_path: Path) -> None:
    """It decides no result, so a run goes on whoever drafts."""
    engine, path = Wasteful(talker()), tmp_path / "run"
    engine.capabilities = replace(engine.capabilities, speculation="ngram, coupled")
    first = run(engine, "sample(n=3) >> vote()", journal=path)

    assert first.speculation == ttc.replay(path).speculation == {"policy": "ngram, coupled"}
    assert run(Wasteful(talker()), "sample(n=3) >> vote()", journal=path).speculation == {}


def test_a_call_that_failed_after_retries_is_charged_for_them() -> None:
    engine = Wasteful(EngineError("it broke for good", output_tokens=1))
    outcome = run(engine, Sample(n=2, max_tokens=9) >> Vote())

    assert outcome.answer is None
    assert outcome.usage.retried_tokens == engine.wasted["retried_tokens"] > 0
