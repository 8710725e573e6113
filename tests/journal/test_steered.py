"""Kept runs that somebody changed while they ran."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, seen
from tests.journal.test_journal import VOTE, entries, solve, void
from ttc import Budget, Control, RecordError
from ttc.prices import Price
from ttc.testing import FakeEngine, ManualClock

AFTER_A_KILL = "a run that was changed by hand went on after a kill, as it was changed"
PRICE = Price(model="fake", date=date(2026, 1, 1), input=1, output=4)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal lies."""
    return tmp_path / "run.journal"


def steered(path: Path, steer: Any, **more: Any) -> ttc.Outcome:
    """A kept run that is changed while its calls run."""
    clock, control = ManualClock(), Control()
    clock.call_later(1.5, lambda: void(steer(control)))
    engine = FakeEngine("so the answer is 1", clock=clock, seconds_per_token=0.5)
    arguments = {"model": engine, "clock": clock, "control": control, **more}
    return clock.run(ttc.asolve(QUESTION, VOTE, seed=1, journal=path, **arguments))


def gone_on(path: Path, *, replayable: bool = True, **more: Any) -> tuple[ttc.Outcome, FakeEngine]:
    """A run that goes on after a kill, and the engine that it asked."""
    clock = ManualClock()
    engine = FakeEngine("so the answer is 1", clock=clock, seconds_per_token=0.5)
    engine.capabilities = replace(engine.capabilities, replayable=replayable)
    work = ttc.asolve(QUESTION, VOTE, model=engine, seed=1, clock=clock, journal=path, **more)
    return clock.run(work), engine


def kill(path: Path, num_lines: int) -> int:
    """Leaves so many lines of a journal; says how many there were."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:num_lines]))
    return len(lines)


CHANGES: list[tuple[Callable[[Control], object], str]] = [
    (lambda c: c.set_budget(tokens=50), "the limit of tokens was changed"),
    (lambda c: c.set_budget(seconds=2.5), "the limit of seconds was changed"),
    (lambda c: c.cancel(), "the run was cancelled"),
    (lambda c: c.cancel(call="0.sample#1"), "0.sample#1 was cancelled"),
    (lambda c: c.set_price(PRICE), "the price of fake was changed"),
]


@pytest.mark.parametrize(("steer", "what"), CHANGES)
def test_a_run_that_was_changed_by_hand_is_not_repeated(path: Path, steer: Any, what: str) -> None:
    """Nothing tells at which moment it would be changed again."""
    steered(path, steer)
    idle = FakeEngine("never")

    told = f"{what} by hand while it ran; begin another run"
    with pytest.raises(RecordError, match=told):
        ttc.replay(path)
    with pytest.raises(RecordError, match=told):
        solve(path, engine=idle, budget=None)
    assert idle.calls == 0


@pytest.mark.parametrize(("steer", "what"), CHANGES)
def test_a_run_that_was_changed_by_hand_and_killed_goes_on_as_it_was_changed(
    path: Path, steer: Any, what: str
) -> None:
    """Killed behind the change, at every boundary of its journal."""
    first = steered(path, steer)
    whole = path.read_bytes()
    changed = next(n for n, e in enumerate(entries(path)) if e.get("path") == "")
    for num_lines in range(changed + 1, len(entries(path))):
        path.write_bytes(whole)
        kill(path, num_lines)
        again, engine = gone_on(path)

        assert AFTER_A_KILL in again.timing_dependent
        assert again.answer in ("1", first.answer)
        assert again.usage.tokens <= max(50, first.usage.tokens)
        assert engine.calls <= 6
        with pytest.raises(RecordError, match=f"{what} by hand"):
            ttc.replay(path)


def test_a_run_that_was_cancelled_by_hand_asks_for_nothing_more(path: Path) -> None:
    first = steered(path, lambda c: c.cancel())
    kill(path, len(entries(path)) - 1)
    again, engine = gone_on(path)

    assert engine.calls == 0
    assert (again.answer, again.stopped_by) == (first.answer, "cancelled")


def test_a_call_that_was_cancelled_by_hand_stays_cancelled(path: Path) -> None:
    first = steered(path, lambda c: c.cancel(call="0.sample#1"))
    kill(path, len(entries(path)) - 1)
    again, engine = gone_on(path)

    assert [c.status for c in again.candidates] == [c.status for c in first.candidates]
    assert again.candidates[1].status == "cancelled"
    assert (again.usage, engine.calls) == (first.usage, 0)


def test_a_limit_that_was_lowered_holds_after_a_kill(path: Path) -> None:
    """What was answered under the old limit and is not asked for any more is told as lost."""
    steered(path, lambda c: c.set_budget(tokens=30))
    kill(path, len(entries(path)) - 1)
    again, _ = gone_on(path)

    assert again.usage.tokens <= 30
    assert again.stopped_by == "tokens"
    assert again.usage.tokens_lost > 0
    assert "the limit of tokens was changed" in again.timing_dependent


def test_a_limit_that_was_raised_holds_after_a_kill(path: Path) -> None:
    """Calls that were granted less before the change are not asked again."""
    limit = Budget(tokens=24)
    steered(path, lambda c: c.set_budget(tokens=900), budget=limit)
    for line in range(len(entries(path)) - 1, 0, -1):
        if entries(path)[line]["is"] == "answer":
            kill(path, line)
            break
    again, engine = gone_on(path, budget=limit)

    assert again.usage.tokens > 24
    assert again.answer == "1"
    assert engine.calls < again.usage.calls


def test_a_changed_price_holds_after_a_kill(path: Path) -> None:
    first = steered(path, lambda c: c.set_price(PRICE))
    kill(path, len(entries(path)) - 1)
    again, _ = gone_on(path)

    assert again.prices["policy"] == PRICE
    assert (again.usage.cost_usd or 0) >= (first.usage.cost_usd or 0)


def test_a_paid_call_is_not_sent_again_after_a_change_by_hand(path: Path) -> None:
    """What was in flight at the kill failed, and is charged at its worst case."""
    clock = ManualClock()
    paid = FakeEngine("so the answer is 1", clock=clock, seconds_per_token=0.5)
    paid.capabilities = replace(paid.capabilities, replayable=False)
    control = Control()
    clock.call_later(1.5, lambda: control.set_budget(tokens=9_000))
    clock.run(
        ttc.asolve(QUESTION, VOTE, model=paid, seed=1, clock=clock, control=control, journal=path)
    )
    answered = (n for n, e in enumerate(entries(path)) if e["is"] == "answer" and "#" in e["key"])
    kill(path, next(answered) + 1)
    sent = {e["key"] for e in entries(path) if e["is"] == "intent" and "seed" in e["request"]}
    again, engine = gone_on(path, replayable=False)

    assert len(sent) > 1
    assert not sent & {request.call for request in engine.requests}
    assert any("a kill cut 1 call" in reason for reason in again.timing_dependent)


def test_a_pause_changes_nothing_that_is_kept(path: Path) -> None:
    clock, control = ManualClock(), Control()
    clock.call_later(1.5, control.pause)
    clock.call_later(9.0, control.resume)
    engine = FakeEngine("so the answer is 1", clock=clock, seconds_per_token=0.5)
    kept = clock.run(
        ttc.asolve(QUESTION, VOTE, model=engine, seed=1, clock=clock, journal=path, control=control)
    )

    assert seen(ttc.replay(path)) == seen(kept)
