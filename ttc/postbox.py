"""Postbox: what other threads tell an event loop, with one wake-up for all that has come.

An engine tells many calls something in one step. To wake a loop costs a write to a pipe, and lets
two threads contend for the interpreter; so only the first letter does it, and the loop then takes
all that are there.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from ttc.safe_text import safe_logger

__all__ = ["Posting", "post"]

T = TypeVar("T")
_log = safe_logger(__name__)


class _Postbox:
    """The letters to one loop."""

    def __init__(self) -> None:
        self._letters: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_awaited = False
        self._lock = threading.Lock()

    def put(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[Any], object], value: Any
    ) -> None:
        with self._lock:
            if not self._is_awaited:
                call = loop.call_soon if _runs_here(loop) else loop.call_soon_threadsafe
                call(self._empty, loop)
                self._is_awaited = True
            self._letters.append((callback, value))

    def _empty(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            letters, self._letters = self._letters, deque()
            self._is_awaited = False
        for callback, value in letters:
            try:
                callback(value)
            except Exception as error:  # noqa: BLE001 - as a loop treats what it calls
                told = {"message": f"{callback!r} failed", "exception": error}
                loop.call_exception_handler(told)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it is a loop's own thread that tells it something: then it is awake."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


_boxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Postbox] = WeakKeyDictionary()
_making = threading.Lock()


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[T], object], value: T) -> None:
    """Calls back in an event loop, from any thread, in the order in which it was posted.

    What comes after the loop's end is dropped.
    """
    _put(_box(loop), loop, callback, value)


def _box(loop: asyncio.AbstractEventLoop) -> _Postbox:
    box = _boxes.get(loop)
    if box is None:
        with _making:
            box = _boxes.setdefault(loop, _Postbox())
    return box


def _put(
    box: _Postbox, loop: asyncio.AbstractEventLoop, callback: Callable[[T], object], value: T
) -> None:
    try:
        box.put(loop, callback, value)
    except RuntimeError:
        _log.debug("a message came after its event loop had closed")


class Posting(Generic[T]):
    """A callback that posts what it is told, so that whoever tells it is never held up."""

    never_waits = True
    """So an engine may call it on its own thread, in the middle of a step."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[T], object]) -> None:
        self._loop, self._callback, self._box = loop, callback, _box(loop)

    def __call__(self, value: T) -> None:
        """Posts a value."""
        _put(self._box, self._loop, self._callback, value)
