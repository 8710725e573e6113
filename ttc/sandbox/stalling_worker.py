"""A worker that misbehaves when it is asked to: what the pool is tested with.

It does what one of its texts names, and is right about equal texts otherwise.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from ttc.sandbox import codec

__all__ = ["main"]


def main(link: int) -> None:
    """Answers requests until the link closes."""
    codec.serve(link, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    for side in ("left", "right"):
        _STALLS.get(request[side], _behave)()
    verdict = request["left"] == request["right"]
    return {"verdict": verdict, "cpu_seconds": time.process_time()}


def _ignore_signals() -> None:
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            while True:
                pass
        except BaseException:  # noqa: BLE001 - that is the point
            continue


def _hang_in_native_code() -> None:
    pow(7, 7**9)  # one operation of the interpreter, which no signal handler interrupts


def _sleep() -> None:
    while True:
        time.sleep(60)


def _fill_memory() -> None:
    [bytes(64 << 20) for _ in range(64)]  # 4 GiB in all, if nothing stops it


def _die() -> None:
    os._exit(7)


def _behave() -> None:
    """Misbehaves in no way."""


_STALLS: Mapping[str, Callable[[], None]] = {
    "ignore signals": _ignore_signals,
    "hang in native code": _hang_in_native_code,
    "sleep": _sleep,
    "fill memory": _fill_memory,
    "die": _die,
}
