"""`ttc solve` on a fake engine."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from ttc.cli.solve import Watch
from ttc.errors import EngineError
from ttc.testing import FakeEngine, ManualClock, finished
from ttc.types import Event, Usage

Cli = Callable[..., subprocess.CompletedProcess[str]]
Use = Callable[[FakeEngine], FakeEngine]
REPLIES = ["The answer is 391.", "The answer is 391.", "The answer is 41.", "I do not know"]
VOTE = ("--strategy", "sample(n=4, ahead=1) >> vote()", "--seed", "5")


@pytest.fixture
def voting(use_engine: Use) -> FakeEngine:
    """Two votes for 391, one for 41, and a silent one."""
    return use_engine(FakeEngine(REPLIES, in_order=True))


@pytest.mark.usefixtures("voting")
def test_the_answer_comes_first_and_then_the_votes(
    run_ttc: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that the run came to is on stdout."""
    monkeypatch.setattr("ttc.arguments.SystemClock", ManualClock)  # no time passes
    done = run_ttc("solve", "What is 17 * 23?", *VOTE)

    lines = [line.split() for line in done.stdout.splitlines() if line]
    assert done.returncode == 0
    assert lines == [
        ["391"],
        ["answer", "votes", "share"],
        ["391", "2", "50%", "chosen"],
        ["41", "1", "25%"],
        ["(no", "answer)", "1", "25%"],
        ["confidence", "0.50"],
        ["usage", "23", "tokens,", "4", "calls,", "0", "tokens", "cancelled,", "0.0", "s"],
        ["stopped", "by", "completed"],
        ["timing", "dependent", "no"],
        ["seed", "5"],
    ]


@pytest.mark.usefixtures("voting")
def test_progress_is_quiet_where_stderr_is_no_terminal(run_ttc: Cli) -> None:
    """Nothing but the result is written."""
    assert run_ttc("solve", "q", *VOTE).stderr == ""
    assert run_ttc("solve", "q", *VOTE, "--json").stderr == ""


@pytest.mark.usefixtures("voting")
def test_json_is_one_object_with_everything(run_ttc: Cli) -> None:
    """And nothing else on stdout."""
    found = json.loads(run_ttc("solve", "q", *VOTE, "--json").stdout)

    assert list(found) == [
        *("schema_version", "answer", "confidence", "text", "stopped_by", "seed", "usage"),
        *("usage_by_role", "candidates", "timing_dependent", "numerics", "speculation"),
    ]
    assert found["schema_version"] == 1
    assert (found["answer"], found["confidence"], found["seed"]) == ("391", 0.5, 5)
    assert found["usage"]["calls"] == found["usage_by_role"]["policy"]["calls"] == 4
    assert [candidate["answer"] for candidate in found["candidates"]] == ["391", "391", "41", None]
    assert found["candidates"][3] == {
        "answer": None,
        "status": "finished",
        "text": "I do not know",
        "scores": {},
        "error": None,
    }


def test_json_is_the_same_for_the_same_seed(run_ttc: Cli, use_engine: Use) -> None:
    """But for the seconds that were measured."""

    def once() -> Any:
        use_engine(FakeEngine(REPLIES))
        strategy = "sample(n=6) >> sequence_probability() >> vote(weighted=True)"
        done = run_ttc("solve", "q", "--strategy", strategy, "--seed", "3", "--json")
        found = json.loads(done.stdout)
        del found["usage"]["seconds"]
        for usage in (found["usage"], *found["usage_by_role"].values()):
            del usage["kv_byte_seconds"]
        return found

    assert once() == once()


def test_json_knows_no_nan_and_no_infinity(run_ttc: Cli, use_engine: Use) -> None:
    """A score that is not finite is unknown."""
    use_engine(FakeEngine("The answer is 4.", logprob=float("nan")))
    strategy = "sample(n=2) >> sequence_probability() >> vote(weighted=True)"

    out = run_ttc("solve", "q", "--strategy", strategy, "--json").stdout

    assert "NaN" not in out
    assert "Infinity" not in out
    scores = json.loads(out)["candidates"][0]["scores"]
    assert scores == {"sequence_probability": {"value": None, "range": [0.0, 1.0]}}


def test_json_is_written_though_no_call_was_made(run_ttc: Cli, use_engine: Use) -> None:
    """The fault is on stderr, as ever."""
    use_engine(FakeEngine("The answer is 4."))

    done = run_ttc("solve", "q", "--budget", "calls=0", "--json")

    assert done.returncode == 2
    assert json.loads(done.stdout)["stopped_by"] == "calls"
    assert done.stderr.count("\n") == 1


def test_a_drawn_seed_is_told_and_repeats_the_run(run_ttc: Cli, use_engine: Use) -> None:
    """It is small enough for readers whose numbers are floats."""
    use_engine(FakeEngine(REPLIES))
    first = json.loads(run_ttc("solve", "q", "--json").stdout)

    again = json.loads(run_ttc("solve", "q", "--json", "--seed", str(first["seed"])).stdout)

    assert first["seed"] < 2**53
    assert again["candidates"] == first["candidates"]


def test_the_only_text_is_shown_where_no_answer_was_found(run_ttc: Cli, use_engine: Use) -> None:
    """And it is said."""
    use_engine(FakeEngine("I do not know"))

    done = run_ttc("solve", "q", "--strategy", "greedy()")

    assert done.stdout.startswith("no answer was found; the text:\n\nI do not know\n")
    assert "stopped by        no_valid_answer" in done.stdout


def test_no_answer_among_many_is_said(run_ttc: Cli, use_engine: Use) -> None:
    """Without a table, since nobody voted."""
    use_engine(FakeEngine("I do not know"))

    done = run_ttc("solve", "q", "--strategy", "self_consistency(n=3)")

    assert done.stdout.startswith("no answer was found in 3 candidates\n")
    assert "votes" not in done.stdout


def test_failed_calls_are_told_beside_the_answer(run_ttc: Cli, use_engine: Use) -> None:
    """With the reason of the first."""
    use_engine(FakeEngine(["The answer is 4.", EngineError("too hot")], in_order=True))

    done = run_ttc("solve", "q", "--strategy", "sample(n=2, ahead=1) >> vote()")

    assert done.stdout.startswith("4\n")
    assert "failed calls      1: too hot" in done.stdout


def test_an_answer_format_is_passed_on(run_ttc: Cli, use_engine: Use) -> None:
    """A whole text is an answer where that is asked for."""
    use_engine(FakeEngine("Paris"))

    done = run_ttc("solve", "q", "--strategy", "greedy()", "--answer-format", "text")

    assert done.stdout.splitlines()[0] == "Paris"


def test_a_model_cannot_steer_the_terminal(run_ttc: Cli, use_engine: Use) -> None:
    """Control characters of a text are shown as a mark."""
    use_engine(FakeEngine("\x1b[2J\x07 nothing"))

    done = run_ttc("solve", "q", "--strategy", "greedy()")

    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_a_question_is_never_logged(
    run_ttc: Cli, use_engine: Use, caplog: pytest.LogCaptureFixture
) -> None:
    """On no level."""
    use_engine(FakeEngine([EngineError("failed")]))

    with caplog.at_level(logging.DEBUG):
        done = run_ttc("solve", "a secret question", "--json")

    assert "secret" not in caplog.text + done.stderr


def test_an_engine_ends_with_its_command(run_ttc: Cli, use_engine: Use) -> None:
    """Where it can be ended."""
    closed: list[bool] = []

    class Closable(FakeEngine):
        def close(self) -> None:
            closed.append(True)

    use_engine(Closable("The answer is 4."))

    run_ttc("solve", "q")

    assert closed == [True]


def test_progress_tells_samples_tokens_and_the_leader() -> None:
    """A line for every event."""
    lines: list[str] = []
    watch = Watch(lines.append, 4000)

    watch(Event(kind="call", path="0.sample", usage=Usage(tokens=1234)))
    for answer in ("5", "7", "7"):
        candidate = finished(answer)
        watch(Event(kind="candidate", path="1.vote", usage=Usage(tokens=2), candidate=candidate))

    assert lines == [
        "0 samples, 1,234 of 4,000 tokens",
        "1 sample, 2 of 4,000 tokens, leading: 5 (1)",
        "2 samples, 2 of 4,000 tokens, leading: 5 (1)",
        "3 samples, 2 of 4,000 tokens, leading: 7 (2)",
    ]
