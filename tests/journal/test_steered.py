"""Kept runs that somebody changed while they ran."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, seen
from tests.journal.test_journal import VOTE, solve, void
from ttc import Control, RecordError
from ttc.prices import Price
from ttc.testing import FakeEngine, ManualClock

PRICE = Price(model="fake", date=date(2026, 1, 1), input=1, output=4)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal lies."""
    return tmp_path / "run.journal"


@pytest.mark.parametrize(
    ("steer", "what"),
    [
        (lambda c: c.set_budget(tokens=50), "the limit of tokens was changed"),
        (lambda c: c.set_budget(seconds=2.5), "the limit of seconds was changed"),
        (lambda c: c.cancel(), "the run was cancelled"),
        (lambda c: c.cancel(call="0.sample#1"), "0.sample#1 was cancelled"),
        (lambda c: c.set_price(PRICE), "the price of fake was changed"),
    ],
)
def test_a_run_that_was_changed_by_hand_is_not_repeated(path: Path, steer: Any, what: str) -> None:
    """Nothing tells at which moment it would be changed again; finished or not, at once."""
    clock, control = ManualClock(), Control()
    clock.call_later(1.5, lambda: void(steer(control)))
    engine = FakeEngine("so the answer is 1", clock=clock, seconds_per_token=0.5)
    clock.run(
        ttc.asolve(QUESTION, VOTE, model=engine, seed=1, clock=clock, journal=path, control=control)
    )
    idle = FakeEngine("never")
    with pytest.raises(RecordError, match="by hand"):
        ttc.replay(path)
    for _ in range(2):
        with pytest.raises(RecordError, match=f"{what} by hand while it ran; begin another run"):
            solve(path, engine=idle, budget=None)
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))

    assert idle.calls == 0


def test_a_pause_changes_nothing_that_is_kept(path: Path) -> None:
    clock, control = ManualClock(), Control()
    clock.call_later(1.5, control.pause)
    clock.call_later(9.0, control.resume)
    engine = FakeEngine("so the answer is 1", clock=clock, seconds_per_token=0.5)
    kept = clock.run(
        ttc.asolve(QUESTION, VOTE, model=engine, seed=1, clock=clock, journal=path, control=control)
    )

    assert seen(ttc.replay(path)) == seen(kept)
