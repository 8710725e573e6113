"""Readings and the journal: given text has one value, so what is known of it is not read again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any, Protocol

from ttc.errors import EngineError
from ttc.journal.trace import digest
from ttc.journal.values import Values, error_of, error_values, usage_of, usage_values
from ttc.ports import Reading
from ttc.types import Branch, Usage

__all__ = ["ReadingAnswers", "key_of", "read"]

Read = tuple[Any, ...]


class ReadingAnswers(Protocol):
    """What readings need of a journal."""

    def asked(
        self, key: str, request: Values, *, again: bool, about: Values | None = None
    ) -> Values | None:
        """Notes that something is about to be asked; gives the answer where it is known already."""

    def answered(self, key: str, answer: Values) -> None:
        """Keeps an answer."""


def key_of(kind: str, branch: Branch, rest: Sequence[Branch] | Sequence[int]) -> str:
    """What a reading is kept under: a hash of what is read."""
    parts = [digest(part) if isinstance(part, Branch) else str(part) for part in rest]
    whole = blake2b(" ".join([digest(branch), *parts]).encode(), digest_size=16)
    return f"{kind} of {whole.hexdigest()}"


def read(key: str, numerics: str, ask: Callable[[], Reading], journal: ReadingAnswers) -> Reading:
    """Asks the engine, unless the values are known.

    Args:
        key: what they are kept under.
        numerics: the engine's, on which they depend.
        ask: asks it.
        journal: the journal.
    """
    answer = journal.asked(key, {"engine": numerics}, again=True)
    return _Asked(key, ask, journal) if answer is None else _Known(answer)


class _Known:
    """A reading whose values are known."""

    def __init__(self, answer: Values) -> None:
        self.future: Future[Read] = Future()
        self.usage: Usage = usage_of(answer)
        if "error" in answer:
            self.future.set_exception(error_of(answer))
        else:
            self.future.set_result(tuple(map(tuple, answer["values"])))

    def cancel(self) -> int:
        """Nothing runs."""
        return 0


class _Asked:
    """A reading of the engine, whose values are kept before anybody sees them."""

    def __init__(self, key: str, ask: Callable[[], Reading], journal: ReadingAnswers) -> None:
        self.future: Future[Read] = Future()
        self._key, self._journal = key, journal
        self._ending, self._has_ended = threading.Lock(), False
        self._reading = ask()
        self._reading.future.add_done_callback(self._receive)

    @property
    def usage(self) -> Usage:
        """The physical lines, as the engine measures them."""
        return self._reading.usage

    def cancel(self) -> int:
        """Ends it. Nothing is kept: whoever needs the values reads again."""
        self._end()
        return self._reading.cancel()

    def _end(self) -> bool:
        with self._ending:
            ended, self._has_ended = self._has_ended, True
            return ended

    def _receive(self, future: Future[Read]) -> None:
        if self._end() or future.cancelled():
            self.future.cancel()
            return
        error, usage = future.exception(), usage_values(self._reading.usage)
        if error is None:
            self._keep({"values": [list(row) for row in future.result()], "usage": usage})
            self.future.set_result(future.result())
            return
        if not isinstance(error, EngineError):
            error = EngineError(f"{type(error).__name__}: {error}")
        self._keep({**error_values(error), "usage": usage})
        self.future.set_exception(error)

    def _keep(self, answer: dict[str, Any]) -> None:
        self._journal.answered(self._key, answer)
