"""What a failure means, and how long a server wants to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ttc.engine.openai.failures import Failure, Refused, Unknown, failure_of, seconds_to_wait
from ttc.errors import ContextOverflow

NOW = datetime(2026, 5, 1, 12, 0, 0, 200_000, tzinfo=UTC)


def dated(seconds: float) -> str:
    return format_datetime((NOW + timedelta(seconds=seconds)).replace(microsecond=0), usegmt=True)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("2", 2.0), ("0", 0.0), ("999999", 999999.0), ("1.5", 1.5)],
)
def test_seconds_are_waited_as_asked(said: str, seconds: float) -> None:
    assert seconds_to_wait({"retry-after": said}, NOW) == seconds


@pytest.mark.parametrize("said", ["-5", "soon", "", "nan", "inf", "12:00"])
def test_what_is_no_time_is_passed_over(said: str) -> None:
    """PX-07: then one backs off as usual; it never switches the backing off off."""
    assert seconds_to_wait({"retry-after": said}, NOW) is None


def test_a_date_is_never_rounded_down() -> None:
    """PX-07: 59.8 seconds ahead are at least 59.8 seconds."""
    assert seconds_to_wait({"retry-after": dated(60)}, NOW) == pytest.approx(59.8)


def test_a_date_that_has_passed_asks_for_nothing() -> None:
    assert seconds_to_wait({"retry-after": dated(-100)}, NOW) == 0.0


def test_milliseconds_come_first() -> None:
    headers = {"retry-after-ms": "20", "retry-after": "1"}

    assert seconds_to_wait(headers, NOW) == 0.02
    assert seconds_to_wait({**headers, "retry-after-ms": "x"}, NOW) == 1.0


def test_nothing_said_is_nothing_asked() -> None:
    assert seconds_to_wait({}) is None


@pytest.mark.parametrize("status", [408, 409, 425, 429, 503, 529])
def test_a_server_that_is_busy_has_done_nothing(status: int) -> None:
    failure = failure_of(status, {"retry-after": "3"}, "busy")

    assert isinstance(failure, Refused)
    assert (failure.again, failure.retryable, failure.after) == (True, True, 3.0)


@pytest.mark.parametrize("status", [500, 502, 504, 524])
def test_a_server_that_breaks_may_have_done_it(status: int) -> None:
    failure = failure_of(status, {}, "oops")

    assert isinstance(failure, Unknown)
    assert not failure.again


def test_a_server_that_says_so_may_be_asked_again() -> None:
    failure = failure_of(500, {"x-should-retry": "true"}, "oops")

    assert isinstance(failure, Refused)
    assert failure.again


@pytest.mark.parametrize("status", [400, 401, 403, 404, 418, 422, 501])
def test_a_request_that_is_wrong_stays_wrong(status: int) -> None:
    failure = failure_of(status, {}, "no")

    assert isinstance(failure, Refused)
    assert not failure.again


@pytest.mark.parametrize(
    ("headers", "code"), [({"x-should-retry": "false"}, ""), ({}, "insufficient_quota")]
)
def test_a_spent_quota_does_not_come_back(headers: dict[str, str], code: str) -> None:
    failure = failure_of(429, headers, "spent", code=code)

    assert isinstance(failure, Failure)
    assert not failure.again


def test_a_prompt_that_is_too_long_is_told_as_such() -> None:
    failure = failure_of(400, {}, "too long", code="context_length_exceeded")

    assert isinstance(failure, ContextOverflow)
