"""Texts of others in logs and on terminals."""

from __future__ import annotations

import io
import logging

import pytest

import ttc
from ttc.safe_text import one_line, printable, safe_logger, traceback_of
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine, ScriptedVerifier

HOSTILE = "\x1b[2Jgone\nWARNING ttc: all is well\x9b31m\u202e"


def _logged(level: int = logging.DEBUG) -> tuple[logging.Logger, io.StringIO]:
    """A logger of one test, and what it writes as logs are written by default."""
    logger, lines = safe_logger(f"ttc.test.{id(object())}"), io.StringIO()
    logger.addHandler(logging.StreamHandler(lines))
    logger.setLevel(level)
    return logger, lines


def test_a_text_in_a_line_of_the_log_stays_on_that_line() -> None:
    """And steers no terminal, whether it is an argument, a name or what an error says."""
    logger, lines = _logged()

    logger.warning("%s failed: %s", HOSTILE, ValueError(HOSTILE))
    logger.warning("%(it)s failed", {"it": HOSTILE})

    assert len(lines.getvalue().splitlines()) == 2
    assert not set(lines.getvalue()) & set("\x1b\x9b\u202e")


def test_a_number_in_a_line_of_the_log_stays_a_number() -> None:
    """So that a format may ask for its digits."""
    logger, lines = _logged()

    logger.warning("%d of %.1f", 3, 4.25)

    assert lines.getvalue() == "3 of 4.2\n"


def test_a_traceback_in_the_log_forges_no_line() -> None:
    """Each of its lines is indented, and steers no terminal."""
    logger, lines = _logged()
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it failed")

    first, *rest = lines.getvalue().splitlines()
    assert first == "it failed"
    assert any("all is well" in line for line in rest)
    assert all(line.startswith("  ") for line in rest)
    assert "\x1b" not in lines.getvalue()


def test_what_a_verifier_s_error_says_forges_no_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may quote a model, or a server."""

    def broken(candidate: ttc.Candidate) -> float:
        raise ttc.VerifierError(HOSTILE)

    strategy = Sample(n=1, max_tokens=8) >> ScriptedVerifier(broken) >> Best()
    outcome = ttc.solve("q", strategy, model=FakeEngine(["2"]), seed=0)

    [line] = [record.getMessage() for record in caplog.records]
    assert "all is well" in line
    assert one_line(line) == line
    [score] = outcome.candidates[0].scores.values()
    assert HOSTILE in score.evidence["error"], "what is kept is as it was"


@pytest.mark.parametrize("text", ["plain", "two\nlines\tand a tab", "שלום", "👩‍👧", "naïve"])
def test_a_text_that_steers_nothing_is_shown_as_it_is(text: str) -> None:
    """In any script, with the joiners that it needs."""
    assert printable(text) == text


def test_a_long_text_is_cut() -> None:
    """Where a length is asked for."""
    assert one_line("a" * 20, 10) == "aaaaaaa..."


def test_a_traceback_tells_where_and_what() -> None:
    """Of causes as well."""
    try:
        try:
            raise KeyError("first")
        except KeyError as cause:
            raise ValueError("second") from cause
    except ValueError as error:
        told = traceback_of(error)

    assert "KeyError: 'first'" in told
    assert "ValueError: second" in told
    assert "test_safe_text.py" in told
