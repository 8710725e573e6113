"""Logs: one JSON object for each request, and never a text of a client's or of a model's."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import orjson

__all__ = ["JsonLines", "log_failure", "log_request"]

_log = logging.getLogger("ttc.serve")
_MOST = 8


class JsonLines(logging.Formatter):
    """Writes each record as one JSON object; of an exception its kind and places, and no text."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        facts: dict[str, Any] = {"time": record.created, "level": record.levelname}
        if record.name == _log.name:
            facts |= orjson.loads(record.getMessage())
        else:
            facts |= {"logger": record.name, "event": record.msg}  # its arguments may be texts
        if record.exc_info and record.exc_info[1] is not None:
            facts["causes"] = _causes(record.exc_info[1])
        return orjson.dumps(facts, default=str).decode()


def log_request(**facts: Any) -> None:
    """Tells how a request ended."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", orjson.dumps({"event": "request", **facts}).decode())


def log_failure(error: BaseException) -> None:
    """Tells of a fault of ours: where it was, and what kind. Its message may quote a client."""
    _log.error("%s", orjson.dumps({"event": "failure", "causes": _causes(error)}).decode())


def _causes(error: BaseException) -> list[dict[str, Any]]:
    """An exception and what caused it: kinds and places."""
    causes: list[dict[str, Any]] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < _MOST:
        frames = traceback.extract_tb(cause.__traceback__)[-_MOST:]
        at = [f"{frame.filename}:{frame.lineno}" for frame in frames]
        causes.append({"error": type(cause).__name__, "at": at})
        cause = cause.__cause__
    return causes
