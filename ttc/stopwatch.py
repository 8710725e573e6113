"""Stopwatch: where the wall time of a run goes, so that what ttc itself takes is told.

Each moment counts for one part: the engine, if a call of it runs; else a program in the sandbox;
else a verifier; else a tool; else waiting for admission, by the ledger, an allocator or a pause.
What is left is orchestration: the nodes' own work, reading answers, and the event loop. So the
parts sum up to the wall time exactly.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["PARTS", "Part", "Stopwatch"]

Part: TypeAlias = Literal["engine", "sandbox", "verifier", "tool", "waiting"]

PARTS: tuple[Part, ...] = ("engine", "sandbox", "verifier", "tool", "waiting")
"""The parts that calls are in; of several at once the first counts."""


class Stopwatch:
    """Adds the time up by part."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._in: dict[Part, int] = dict.fromkeys(PARTS, 0)
        self._seconds: dict[str, float] = dict.fromkeys((*PARTS, "orchestration"), 0.0)

    def enter(self, part: Part, now: float) -> None:
        """A call begins a part."""
        self._count(now)
        self._in[part] += 1

    def leave(self, part: Part, now: float) -> None:
        """A call ends a part."""
        self._count(now)
        self._in[part] -= 1

    def read(self, now: float) -> dict[str, float]:
        """Seconds by part, until now."""
        self._count(now)
        return dict(self._seconds)

    def _count(self, now: float) -> None:
        running = self._in
        for part in PARTS:
            if running[part]:
                self._seconds[part] += now - self._since
                break
        else:
            self._seconds["orchestration"] += now - self._since
        self._since = now
