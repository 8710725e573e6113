"""What verifiers could not score in a run: told once, and counted until the run ends.

A verifier that cannot score one candidate can often score none, on any problem. So a fault is told
where it comes first, and at the end how many candidates have no score for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ttc.safe_text import safe_logger

__all__ = ["Unscored", "told_once"]

_log = safe_logger(__name__)


class Unscored:
    """The faults of the verifiers of a run, or of all runs that are told of together."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str]] = set()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._candidates: Counter[tuple[str, str]] = Counter()

    @staticmethod
    def current() -> Unscored:
        """That of the runs that are under way here; a new one where there are none."""
        return _current.get() or Unscored()

    def add(self, path: str, verifier: str, reason: str, candidates: int) -> None:
        """Notes a verifier's call that failed; one with a fault of a new kind is told.

        Args:
            path: the node that asked.
            verifier: its name.
            reason: the kind of fault, and behind a colon what it says.
            candidates: how many have no score for it.
        """
        kind = path, verifier, reason.partition(":")[0]
        tell = _log.debug if kind in self._told else _log.warning
        tell("%s: the verifier %s failed: %s", path, verifier, reason)
        self._told.add(kind)
        self._calls[path, verifier] += 1
        self._candidates[path, verifier] += candidates

    def tell(self) -> None:
        """Tells how many there were, where more than one call failed."""
        for (path, verifier), calls in self._calls.items():
            if calls > 1:
                count = self._candidates[path, verifier]
                told = "%s: the verifier %s gave no score to %d candidates in all"
                _log.warning(told, path, verifier, count)


_current: ContextVar[Unscored | None] = ContextVar("ttc_unscored", default=None)


@contextmanager
def told_once() -> Iterator[None]:
    """Until it ends, runs tell of their faults together; within another one it changes nothing."""
    if _current.get() is not None:
        yield
        return
    found = Unscored()
    token = _current.set(found)
    try:
        yield
    finally:
        _current.reset(token)
        found.tell()
