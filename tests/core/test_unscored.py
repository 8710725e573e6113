"""What verifiers could not score is told once for a run, whatever it holds."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import ttc
from tests.benchmarks.evals import config_of, evaluation, sums
from ttc.benchmarks.harness.config import Arm
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.verifiers import UnitTests

STRATEGY = Sample(n=5, max_tokens=8) >> UnitTests() >> Best()
FIRST = "1.verify: the verifier unit_tests failed: VerifierError: the problem "


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_problem_without_tests_is_told_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Not once for each candidate; and each score is unknown, with the reason beside it."""
    outcome = ttc.solve("q", STRATEGY, model=FakeEngine(["2"]), seed=0)

    first, last = _told(caplog)
    assert first.startswith(FIRST)
    assert last == "1.verify: the verifier unit_tests gave no score to 5 candidates in all"
    scores = [candidate.scores["unit_tests"] for candidate in outcome.candidates]
    assert [score.value for score in scores] == [None] * 5
    assert all("has no public tests" in score.evidence["error"] for score in scores)
    assert outcome.stopped_by == "no_finite_score"


def test_many_problems_without_tests_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the first of them, and with how many candidates there were in all."""
    questions = [f"q{place}" for place in range(4)]
    ttc.solve_many(questions, STRATEGY, model=FakeEngine(["2"]), seed=0)

    first, last = _told(caplog)
    assert first.startswith(FIRST)
    assert last.endswith("no score to 20 candidates in all")


def test_an_evaluation_without_tests_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over all its problems, though each has a run of its own."""
    arm = Arm(name="tested", strategy="sample(n=3, max_tokens=8) >> unit_tests() >> best()")
    changes = {"arms": (arm,), "comparisons": config_of(sums(), arms=(arm,)).comparisons}
    evaluation(tmp_path, sums(4), changes=changes).run()

    first, last = _told(caplog)
    assert first.startswith(FIRST)
    assert last.endswith("no score to 12 candidates in all")


def test_each_kind_of_fault_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """One does not hide behind another; all of them are told to whoever asks for details."""
    faults = iter([KeyError("a"), ValueError("b"), KeyError("c")])

    def broken(candidate: ttc.Candidate) -> float:
        raise next(faults)

    strategy = Sample(n=3, max_tokens=8, ahead=1) >> ScriptedVerifier(broken) >> Best()
    with caplog.at_level(logging.DEBUG, logger="ttc.unscored"):
        ttc.solve("q", strategy, model=FakeEngine(["2"]), seed=0)

    start = "1.verify: the verifier scripted"
    assert _told(caplog) == [
        f"{start} failed: KeyError: 'a'",
        f"{start} failed: ValueError: b",
        f"{start} gave no score to 3 candidates in all",
    ]
    [hidden] = [record.getMessage() for record in caplog.records if record.levelname == "DEBUG"]
    assert hidden == f"{start} failed: KeyError: 'c'"


def test_a_single_fault_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to count."""
    ttc.solve("q", Sample(n=1) >> UnitTests() >> Best(), model=FakeEngine(["2"]), seed=0)

    assert len(_told(caplog)) == 1
