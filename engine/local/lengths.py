"""How long calls become: what calls of late have used of the output that they were allowed."""

from __future__ import annotations

import math
from collections import deque

from ttc.engine.local.call import Call

__all__ = ["Lengths"]

_REMEMBERED = 64
_KNOWN_FROM = 8  # ended calls; before, every call is thought to use all that it may
_QUANTILE = 0.8


class Lengths:
    """The lengths of calls that have ended, as parts of what they were allowed."""

    def __init__(self) -> None:
        self._parts: deque[float] = deque(maxlen=_REMEMBERED)
        self._typical = 1.0

    def note(self, call: Call) -> None:
        """A call has ended; one that was cancelled does not tell how long it would have become."""
        allowed = call.longest - call.prompt_length
        if call.cancelled or not allowed:
            return
        self._parts.append(call.num_output / allowed)
        if len(self._parts) >= _KNOWN_FROM:
            self._typical = sorted(self._parts)[int(_QUANTILE * len(self._parts))]

    def likely(self, call: Call) -> int:
        """The tokens that a call is likely to end with, or has already."""
        allowed = call.longest - call.prompt_length
        return max(call.prompt_length + math.ceil(self._typical * allowed), len(call.tokens))
