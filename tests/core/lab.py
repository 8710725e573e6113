"""A run on fakes with everything in view; see `ttc.testing.watched`."""

from collections.abc import AsyncGenerator, Callable

from ttc.ports import Clock, Scope, Stream
from ttc.testing.watched import (
    NOISE,
    PROMPT,
    QUESTION,
    CheckedEngine,
    Ledgers,
    Solved,
    calls,
    check_counts,
    check_no_task_is_left,
    counted,
    lines,
    prompt_tokens,
    seen,
    solved,
    talker,
    uneven,
    whole,
)
from ttc.types import Candidate

UserNode = Callable[[Stream[Candidate], Scope], AsyncGenerator[Candidate, None]]

__all__ = [
    "NOISE",
    "PROMPT",
    "QUESTION",
    "CheckedEngine",
    "Clock",
    "Ledgers",
    "Solved",
    "UserNode",
    "calls",
    "check_counts",
    "check_no_task_is_left",
    "counted",
    "lines",
    "prompt_tokens",
    "seen",
    "solved",
    "talker",
    "uneven",
    "whole",
]
