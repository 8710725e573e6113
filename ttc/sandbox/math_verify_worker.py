"""A second opinion: the worker that compares answers by math-verify, inside the jail.

math-verify evaluates what it reads, so no text reaches it anywhere else. It is asked both ways
round, since its verdict depends on the order of its arguments; where the two differ, nothing is
known.
"""

from __future__ import annotations

import time
from typing import Any

import math_verify

from ttc.answers.equality import Verdict
from ttc.sandbox import codec

__all__ = ["main"]


def main(link: int) -> None:
    """Answers requests until the link closes."""
    codec.serve(link, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": _check(request), "cpu_seconds": time.process_time()}


def _check(request: dict[str, Any]) -> Verdict:
    try:
        left, right = (
            math_verify.parse(f"${request[side]}$", parsing_timeout=None)
            for side in ("left", "right")
        )
        if not left or not right:
            return None
        verdicts = {
            bool(math_verify.verify(a, b, timeout_seconds=None))
            for a, b in ((left, right), (right, left))
        }
    except Exception:  # noqa: BLE001 - whatever it raises, the verdict is unknown
        return None
    return verdicts.pop() if len(verdicts) == 1 else None
