"""The text of a budget, `tokens=4000,seconds=30`, and what a budget that holds no call lacks."""

from __future__ import annotations

import math
from dataclasses import fields

from ttc.budget import LOGICAL
from ttc.cli.terminal import Fault
from ttc.safe_text import one_line
from ttc.types import Budget, Outcome

__all__ = ["parse_budget", "shortage"]

_NAMES = tuple(f.name for f in fields(Budget))
_WHOLE = frozenset(LOGICAL)


def parse_budget(text: str) -> Budget:
    """The budget that a text names.

    Raises:
        Fault: a name is unknown or comes twice, or a limit is no number of at least 0.
    """
    limits: dict[str, int | float] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or name not in _NAMES:
            wrong = f"{_quoted(name)} is no limit" if separator else f"{_quoted(part)} has no ="
            raise Fault(f"--budget: {wrong}; write tokens=4000,seconds=30, of {', '.join(_NAMES)}")
        if name in limits:
            raise Fault(f"--budget: {name} comes twice; leave one of them out")
        limits[name] = _limit(name, value)
    return Budget(**limits)  # type: ignore[arg-type]  # whole numbers but for the seconds


def _limit(name: str, value: str) -> int | float:
    is_whole = name in _WHOLE
    kind = "whole number" if is_whole else "number"
    try:
        limit = int(value) if is_whole else float(value)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise Fault(f"--budget: {name} is a {kind} of at least 0, not {_quoted(value)}")
    return limit


def _quoted(text: str) -> str:
    return repr(one_line(text, 40))


def shortage(outcome: Outcome) -> str | None:
    """What a budget lacked, where a limit refused every call; `None` where calls were made."""
    refusal = outcome.refusal
    if outcome.usage.calls or refusal is None:
        return None
    name, limit = refusal.resource, refusal.limit
    if name == "seconds":
        return f"seconds: no call could start within {limit:g} s; raise the budget's seconds"
    return (
        f"{name}: the first call needs at least {refusal.needed:g} and may have {limit:g}; "
        f"raise the budget's {name}"
    )
