"""What a run that was killed comes to, once it has been resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
ROOT = Path(__file__).parents[2]
WHOLE = 0
"""The exit code of a run that had ended before its moment came."""


@pytest.fixture(scope="module")
def kills() -> Callable[[str], dict[str, Any]]:
    """Kills a run at every point of a mode, and tells of the runs that were resumed."""

    def run(mode: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.journal.kills", mode]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    return run


def test_a_run_killed_at_any_boundary_of_its_journal_comes_to_the_same(
    kills: Callable[[str], dict[str, Any]],
) -> None:
    """Answer, candidates and tokens less the cancelled ones; what a kill cost is told apart."""
    report = kills("boundaries")
    whole, killed = report["whole"], report["killed"]

    assert [run["num_lines"] for run in killed] == list(range(len(killed)))
    assert {run["died_of"] for run in killed} == {-signal.SIGKILL}
    assert [run["seen"] for run in killed] == [whole["seen"]] * len(killed)
    assert all(run["replays"] and run["state"] == "finished" for run in killed)
    assert {tuple(run["timing"]) for run in killed} == {()}
    assert killed[0]["asked"] == whole["asked"]
    assert killed[-1]["asked"] == 0, "everything was in the journal"
    assert [run["lost"] > 0 for run in killed] == [run["most_sent"] > 1 for run in killed]
    assert whole["lost"] == 0 < max(run["lost"] for run in killed)


def test_a_run_killed_at_any_moment_comes_to_the_same(
    kills: Callable[[str], dict[str, Any]],
) -> None:
    """Fifty moments, spread over the time that a run takes."""
    report = kills("moments")
    whole, killed = report["whole"], report["killed"]

    assert len(killed) == 50
    assert {run["died_of"] for run in killed} <= {-signal.SIGALRM, WHOLE}
    assert sum(run["died_of"] != WHOLE for run in killed) >= 10
    assert [run["seen"] for run in killed] == [whole["seen"]] * len(killed)
    assert all(run["replays"] and run["state"] == "finished" for run in killed)


def test_a_call_that_is_paid_for_is_never_sent_twice(
    kills: Callable[[str], dict[str, Any]],
) -> None:
    """What was open at the kill is charged at its worst case, and the outcome says so."""
    report = kills("paid")
    whole, killed = report["whole"], report["killed"]

    assert {run["most_sent"] for run in killed} == {1}
    assert {run["lost"] for run in killed} == {0}
    assert all(run["timing"] or run["seen"] == whole["seen"] for run in killed)
    assert any("a kill cut" in reason for run in killed for reason in run["timing"])
    assert all(run["tokens"] <= 300 and run["replays"] for run in killed)
