"""What a failure of a request means: was it taken, and may it be sent again.

Only what was surely not done is done again. A connection that never came to be was not sent; a
server that answers 429 or 503 has refused. Everything else that goes wrong after the last byte was
written leaves open what the server has done and will bill: a time-out, a cut, a fault of a gateway.
Such a request is sent again only where the server is known to recognise it by its key.

What may have been done is charged at its worst case, what surely was not at nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from ttc.errors import ContextOverflow, EngineError

__all__ = ["Failure", "Refused", "Unknown", "failure_of", "seconds_to_wait"]

_TRY_LATER = {408, 409, 425, 429, 503, 529}
_MAYBE_DONE = {500, 502, 504, 520, 522, 524}
_OVERFLOW = ("context_length_exceeded", "maximum context length", "exceed_context_size")
_SAID = 300


class Failure(EngineError):
    """A request that came to nothing."""

    again = False
    """Whether it may be sent again without any knowledge of the server."""

    def __init__(self, message: str, *, after: float | None = None, again: bool = False) -> None:
        super().__init__(message, retryable=again or self.again)
        self.again = again or self.again
        self.after = after
        """Seconds for which the server asks to be left alone; `None` where it does not say."""


class Refused(Failure):
    """The server has surely not done it."""


class Unknown(Failure):
    """The server may have done it, and may bill it."""


def failure_of(
    status: int, headers: Mapping[str, str], said: str, *, code: str = ""
) -> EngineError:
    """What an answer that is no success means.

    Args:
        status: the HTTP status.
        headers: of the answer; names in lower case.
        said: the server's message.
        code: the server's name of the fault.
    """
    text = f"the server answered {status}{_phrase(status)}: {' '.join(said.split())[:_SAID]}"
    if status in (400, 413, 422) and any(sign in f"{code} {said}" for sign in _OVERFLOW):
        return ContextOverflow(text)
    told = headers.get("x-should-retry", "")
    after = seconds_to_wait(headers)
    if code == "insufficient_quota" or told == "false":
        return Unknown(text) if status in _MAYBE_DONE else Refused(text)
    if status in _TRY_LATER or told == "true":
        return Refused(text, after=after, again=True)
    return Unknown(text, after=after) if status in _MAYBE_DONE else Refused(text)


def seconds_to_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """What a server asks for by `retry-after-ms` or `Retry-After`; `None` where that is no time.

    Seconds or a date. What is negative is no wish: one backs off as if nothing was said. A date
    that has passed asks for nothing.
    """
    fine, coarse = headers.get("retry-after-ms"), headers.get("retry-after")
    for text, unit in ((fine, 1e-3), (coarse, 1.0)):
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    try:
        date = parsedate_to_datetime(coarse or "")
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""
