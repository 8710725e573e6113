"""Hands chunks to whoever reads along, beside the engine's thread: no callback holds a step up.

One thread tells everybody. Where a callback does not return, another one takes over, so a caller
that stops reading keeps nobody else waiting, and what it has not read is bounded: see `tell`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Generic, Protocol, TypeVar

from ttc.safe_text import safe_logger
from ttc.types import Chunk

__all__ = ["Listener", "Teller"]

logger = safe_logger(__name__)

_MOST_UNREAD = 256
_PATIENCE_S = 1.0  # a thread that tells may have to wait for a processor
_STUCK_S = 0.1  # a callback that takes longer is left to its own thread
_CLOSE_S = 1.0


class Listener(Protocol):
    """A call that somebody reads along. It is told on any thread, never on two at once."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that nothing more is to be told."""

    def tell(self, chunk: Chunk) -> None:
        """Hands a chunk to the caller."""


L = TypeVar("L", bound=Listener)


class _Line(Generic[L]):
    """What is to be told to one listener. It is there as long as somebody is to tell it."""

    def __init__(self, listener: L) -> None:
        self.listener = listener
        self.chunks: deque[Chunk] = deque()
        self.taken_at = time.monotonic()

    @property
    def has_stalled(self) -> bool:
        """Whether too much of it was left unread for too long."""
        is_long = len(self.chunks) > _MOST_UNREAD
        return is_long and time.monotonic() - self.taken_at > _PATIENCE_S


class Teller(Generic[L]):
    """Threads that tell: one that does, and one that takes over. They start with the first chunk.

    Args:
        on_fault: is told which listener's callback has raised what, on the thread that told it.
    """

    def __init__(self, on_fault: Callable[[L, BaseException], None]) -> None:
        self._on_fault = on_fault
        self._wake = threading.Condition()
        self._lines: dict[L, _Line[L]] = {}
        self._ready: deque[_Line[L]] = deque()
        self._num_waiting = 0
        self._told: _Line[L] | None = None
        """The line that is told now, by the thread that took one last."""
        self._taken_at = 0.0
        self._closing = False

    def tell(self, told: Seq[tuple[L, Chunk]]) -> list[L]:
        """Queues chunks. Returns the listeners that have stopped reading.

        They have left more than 256 chunks unread, and taken none for a second.
        """
        if not told:
            return []
        with self._wake:
            for listener, chunk in told:
                line = self._lines.get(listener)
                if line is None:
                    line = self._lines[listener] = _Line(listener)
                    self._ready.append(line)
                line.chunks.append(chunk)
            if not self._num_waiting:
                self._start()
            self._wake.notify_all()
            return [listener for listener, _ in told if self._lines[listener].has_stalled]

    def close(self) -> None:
        """Tells what is left, and ends the threads but for those that a callback holds up."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
            self._wake.wait_for(
                lambda: not (self._num_waiting or self._ready or self._told), _CLOSE_S
            )

    def _start(self) -> None:
        self._num_waiting += 1  # so that nobody else starts one before it runs
        threading.Thread(target=self._run, name="ttc-teller", daemon=True).start()

    def _run(self) -> None:
        while (line := self._next()) is not None:
            self._drain(line)
            with self._wake:
                self._num_waiting += 1
                if self._told is line:
                    self._told = None

    def _next(self) -> _Line[L] | None:
        """Waits for a line that nobody tells; `None` where this thread is one too many."""
        with self._wake:
            while not self._may_take():
                if self._num_waiting > 2 or (self._closing and not self._ready):
                    self._num_waiting -= 1
                    self._wake.notify_all()
                    return None
                self._wake.wait(_STUCK_S if self._lines else None)
            self._num_waiting -= 1
            if not self._num_waiting:
                self._start()
            self._taken_at = time.monotonic()
            self._told = line = self._ready.popleft()
            return line

    def _may_take(self) -> bool:
        """Whether there is a line, and nobody who is about to take it."""
        is_stuck = time.monotonic() - self._taken_at > _STUCK_S
        return bool(self._ready) and (self._told is None or is_stuck)

    def _drain(self, line: _Line[L]) -> None:
        """Tells one listener all that there is."""
        listener = line.listener
        while True:
            with self._wake:
                if not line.chunks or listener.is_over:
                    del self._lines[listener]
                    return
                chunk = line.chunks.popleft()
                line.taken_at = time.monotonic()
            try:
                listener.tell(chunk)
            except BaseException as error:  # whatever it is, the others are told
                logger.debug("a callback failed", exc_info=True)
                self._on_fault(listener, error)
