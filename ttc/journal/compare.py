"""Whether a run is the one that a journal holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ttc.errors import JournalMismatch

__all__ = ["compare"]

_OF_NO_ACCOUNT = ("at", "began", "created", "engines", "graph", "prices", "text")
"""What the first line holds for readers: no result depends on it."""


def compare(name: str, where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Compares what a journal holds with what is.

    Raises:
        JournalMismatch: they differ.
    """
    for key in sorted({*before, *now} - set(_OF_NO_ACCOUNT)):
        if before.get(key) != now.get(key):
            raise JournalMismatch(name, where, key, _short(before.get(key)), _short(now.get(key)))


def _short(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
