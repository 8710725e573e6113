"""What was spent, and what may be: the same lines in both. Part of the nouns in `ttc.types`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

__all__ = ["NO_USAGE", "UNMEASURED", "Budget", "Usage"]


def _physical(default: Any) -> Any:
    """A line that is measured: two usages are equal where their logical lines are."""
    return field(default=default, compare=False)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What was spent. Logical lines depend on the work alone; physical lines are measured.

    Two usages are equal where their logical lines are. `None` is unknown.
    """

    tokens: int = 0
    """Logical: output tokens, and each distinct prompt token of the problem's trees once."""
    calls: int = 0
    """Logical: calls of engines, and of tools (role `tools`); a call and its tail are one."""
    verifier_calls: int = 0
    """Logical: candidates that a verifier was asked to score."""
    tokens_cancelled: int = 0
    """The part of `tokens` whose work a stop cut off. It alone depends on timing."""
    tokens_lost: int = _physical(0)
    """What calls that a crash cut may have spent before they ran again; no part of `tokens`."""
    seconds: float | None = _physical(None)
    """Physical: wall time of the run by its clock. `None` where a part of a run is meant."""
    input_tokens: int = _physical(0)
    """Physical: prompt tokens that the engine was sent, those of its cache included."""
    cached_input_tokens: int | None = _physical(0)
    """Physical: the part of `input_tokens` that the engine had in its cache."""
    output_tokens: int = _physical(0)
    """Physical: tokens that the engine generated."""
    recomputed_tokens: int | None = _physical(0)
    """Physical: tokens that the engine computed again, since it had thrown their state away."""
    draft_tokens: int | None = _physical(0)
    """Physical: drafted tokens that the model tried. Those that it accepted are output as well."""
    rejected_draft_tokens: int | None = _physical(0)
    """Physical: drafted tokens that the model did not accept. They are in no other count."""
    retried_tokens: int | None = _physical(0)
    """Physical: tokens of attempts that failed and were sent again. They are in no other count."""
    flops: int | None = _physical(0)
    """Physical: operations of the model's products and attention; see `ttc.costs`."""
    kv_byte_seconds: float | None = _physical(0.0)
    """Physical: memory of keys and values times how long it was held, a shared page in parts."""
    sandbox_seconds: float = _physical(0.0)
    """Physical: processor seconds of programs in the sandbox."""
    cost_usd: float | None = _physical(0.0)
    """Physical: dollars, by the user's table of prices."""

    def __add__(self, other: Usage) -> Usage:
        """The sum, line by line; a sum with an unknown part is unknown, but for `seconds`."""
        ours, theirs = _lines_of(self), _lines_of(other)
        if ours == _NOTHING:
            return other
        if theirs == _NOTHING:
            return self
        pairs = zip(ours, theirs, strict=True)
        sums = [None if a is None or b is None else a + b for a, b in pairs]
        total: dict[str, Any] = dict(zip(_LINES, sums, strict=True))
        if total["seconds"] is None:
            total["seconds"] = self.seconds if other.seconds is None else other.seconds
        made = object.__new__(Usage)  # it checks nothing
        made.__dict__.update(total)
        return made


_LINES = tuple(f.name for f in fields(Usage))
_lines_of = attrgetter(*_LINES)  # every call adds several up, most of them to nothing
NO_USAGE = Usage()
"""Nothing was spent; one value for all, since every call begins with several."""
_NOTHING = _lines_of(NO_USAGE)


UNMEASURED = Usage(
    cached_input_tokens=None,
    recomputed_tokens=None,
    draft_tokens=None,
    rejected_draft_tokens=None,
    retried_tokens=None,
    flops=None,
    kv_byte_seconds=None,
    cost_usd=None,
)
"""What an engine tells that measures nothing."""

_WHOLE = ("tokens", "calls", "verifier_calls")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent. `None` is no limit; any mixture of limits holds.

    Whatever has a worst case that is known beforehand is reserved before a call starts, and is
    never overrun. The others are looked at when something is booked; once one is reached, what
    runs is cancelled and nothing more starts.
    """

    tokens: int | None = None
    """Reserved: never overrun."""
    calls: int | None = None
    """Reserved: never overrun."""
    verifier_calls: int | None = None
    """Reserved: never overrun."""
    flops: float | None = None
    """Reserved at the worst case, in which nothing is cached: never overrun."""
    cost_usd: float | None = None
    """Reserved at the worst case, in which nothing is cached: never overrun."""
    kv_byte_seconds: float | None = None
    """Looked at when a call ends: overrun at most by what the calls then in flight hold."""
    sandbox_seconds: float | None = None
    """Looked at when a program ends: overrun at most by the time limits of those then running."""
    seconds: float | None = None
    """A deadline: no call starts after it, and what runs then is cancelled."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise ValueError(f"a budget's {name} is a number of at least 0, not {value!r}")
            if name in _WHOLE and not isinstance(value, int):
                raise ValueError(f"a budget's {name} is a whole number, not {value!r}")
            if math.isinf(value):
                raise ValueError(f"a budget's {name} is finite, or None for no limit")
