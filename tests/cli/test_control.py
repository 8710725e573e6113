"""`ttc control`: another process changes a run, by a socket that only its user may open."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ttc
from ttc import Budget, Outcome
from ttc.cli.steering import running, socket_of, steerable
from ttc.ports import Request
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine

Cli = Callable[..., subprocess.CompletedProcess[str]]
GRAPH = Sample(n=10_000, max_tokens=20, ahead=4) >> Vote()
TABLE = '[[price]]\nmodel = "fake"\ndate = 2026-01-01\ninput = 1.0\noutput = 4.0\n'


class Solving(threading.Thread):
    """A run that listens under the name `long`: four quick calls, and then slow ones."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.outcome = threading.Event(), None

    outcome: Outcome | None

    def run(self) -> None:
        """Runs until it is ended by hand."""

        def pace(request: Request) -> float:
            if engine.calls >= 8:  # the quick ones have ended, and as many slow ones run
                self.begun.set()
            return 1e-3 if engine.calls <= 4 else 0.5

        engine = FakeEngine("so the answer is 4", seconds_per_token=pace)
        with steerable("long") as control:
            self.outcome = ttc.solve(
                "What is 2 + 2?",
                GRAPH,
                model=engine,
                budget=Budget(seconds=60),
                control=control,
            )

    def ended(self) -> Outcome:
        """What it came to."""
        self.join(30)
        assert self.outcome is not None
        return self.outcome


@pytest.fixture
def solving() -> Iterator[Solving]:
    """A run of which only slow calls are left."""
    thread = Solving()
    thread.start()
    assert thread.begun.wait(30)
    yield thread
    thread.join(60)


def test_a_run_is_paused_resumed_and_cancelled(solving: Solving, run_ttc: Cli) -> None:
    """Each order tells the state after it."""
    paused = run_ttc("control", "long", "pause")
    resumed = run_ttc("control", "long", "resume")
    run_ttc("control", "long", "cancel")
    outcome = solving.ended()

    assert paused.stdout.startswith("paused: 0 of 1 problem ended\nproblem 0: ")
    assert "limits: seconds=60" in paused.stdout
    assert resumed.stdout.startswith("running: 0 of 1 problem ended")
    assert (outcome.answer, outcome.stopped_by) == ("4", "cancelled")


def test_a_budget_is_lowered_from_another_terminal(solving: Solving, run_ttc: Cli) -> None:
    """With a call that is cancelled, and prices that begin to hold."""
    state = json.loads(run_ttc("control", "long", "--json").stdout)
    call = state["running"][0]["calls_running"][0]
    run_ttc("control", "long", "cancel", "--call", call)
    done = run_ttc("control", "long", "--budget", "calls=0,seconds=50", "--problem", "0")
    outcome = solving.ended()

    assert done.returncode == 0
    assert outcome.stopped_by == "calls"
    assert "a call was cancelled by hand" in outcome.timing_dependent
    assert "the limit of calls was changed" in outcome.timing_dependent


def test_prices_may_be_changed(solving: Solving, run_ttc: Cli, tmp_path: Path) -> None:
    """After that, dollars can be limited; before, the order is refused and changes nothing."""
    table = tmp_path / "prices.toml"
    table.write_text(TABLE)
    refused = run_ttc("control", "long", "--budget", "cost_usd=0")
    allowed = run_ttc("control", "long", "--prices", str(table), "--budget", "cost_usd=0")
    outcome = solving.ended()

    assert "the run refuses: the model 'fake' of the role 'policy' has no price" in refused.stderr
    assert allowed.returncode == 0
    assert outcome.stopped_by == "cost_usd"


def test_only_its_user_may_open_the_socket_which_goes_with_the_run(
    solving: Solving, run_ttc: Cli
) -> None:
    """Mode 0600, in a folder of mode 0700."""
    mode = stat.S_IMODE(os.stat(socket_of("long")).st_mode)
    listed = running()
    run_ttc("control", "long", "cancel")
    solving.ended()

    assert (mode, listed) == (0o600, ["long"])
    assert running() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("control", "nobody"), "no run 'nobody' is running"),
        (("control", "nobody", "--call", "a#1"), "--call names a call to cancel"),
        (("control", "nobody", "--budget", "token=3"), "'token' is no limit"),
        (("control", "nobody", "--prices", "missing.toml"), "missing.toml cannot be read"),
        (("control", "nobody", "stop"), "'stop' is not one of"),
    ],
)
def test_an_order_that_cannot_be_is_one_line(
    arguments: tuple[str, ...], message: str, run_ttc: Cli
) -> None:
    """And exit code 2."""
    done = run_ttc(*arguments)

    assert done.returncode == 2
    assert message in done.stderr


def test_a_folder_with_a_long_name_is_no_obstacle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_ttc: Cli
) -> None:
    """Though the system allows a socket a name of 107 bytes."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path / ("long" * 30)))
    with steerable("deep"):
        assert running() == ["deep"]


def test_a_run_goes_on_where_no_socket_can_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why nobody can steer it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TTC_HOME", str(tmp_path / "file"))
    with steerable("x") as control:
        control.pause()

    assert "no other process can steer this run" in caplog.text
