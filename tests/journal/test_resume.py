"""Kept runs that go on from Python, by their file alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttc
from tests.core.lab import seen, talker
from tests.journal.test_journal import cut_after, solve
from ttc import RecordError
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal lies."""
    return tmp_path / "run.journal"


def test_a_killed_run_is_resumed_by_its_file_alone(path: Path) -> None:
    """Problem, strategy, seed and budget are those of the run; a finished one asks nothing."""
    first = solve(path)
    whole_file = path.read_bytes()
    cut_after(path, "answer", 4)
    engine = FakeEngine(talker(failing=0.2))
    resumed = ttc.resume(path, models={"policy": engine})

    assert seen(resumed) == seen(first)
    assert engine.calls > 0
    path.write_bytes(whole_file)
    assert seen(ttc.resume(path)) == seen(first)


def test_what_a_journal_does_not_hold_is_asked_for_by_resume(path: Path) -> None:
    solve(path, Sample(n=3) >> Vote(), FakeEngine("The answer is 1."))
    cut_after(path, "answer", 2)

    with pytest.raises(RecordError, match="was built in Python; pass it as strategy="):
        ttc.resume(path)
    path.write_bytes(b"")
    with pytest.raises(RecordError, match="was killed before it began"):
        ttc.resume(path)
