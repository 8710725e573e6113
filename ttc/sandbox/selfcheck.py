"""What of the jail really holds, found by trying from inside of it.

The first process of every zygote, confined like any other, runs this. A layer that the level
promises and that does not hold is a fault, and the level is refused.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
from collections.abc import Callable, Mapping

from ttc.sandbox import landlock

__all__ = ["PROMISED", "main"]

PROMISED: Mapping[str, frozenset[str]] = {
    "full": frozenset({"namespaces", "root", "seccomp", "rlimits"}),
    "restricted": frozenset({"landlock", "seccomp", "rlimits"}),
    "none": frozenset(),
}
"""The layers without which a level is not what it says."""

_SECRET = "/etc/passwd"  # exists everywhere, and no run may see it


def main(link: int) -> None:
    """Writes the names of the layers that hold, as JSON."""
    os.write(link, json.dumps([name for name, holds in _LAYERS.items() if holds()]).encode())


def _fails(work: Callable[[], object], error: type[OSError] = OSError) -> bool:
    try:
        work()
    except error:
        return True
    return False


def _namespaces() -> bool:
    return sys.platform == "linux" and os.getpid() == 1


def _root() -> bool:
    hidden = _fails(lambda: os.stat(_SECRET), FileNotFoundError)
    return hidden and _fails(lambda: os.mkdir("/ttc"))


def _seccomp() -> bool:
    return _fails(socket.socket, PermissionError) and _fails(_fork, PermissionError)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _landlock() -> bool:
    return landlock.version() > 0 and _fails(lambda: os.open("/dev/random", os.O_WRONLY))


def _rlimits() -> bool:
    import resource  # which Windows does not have

    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return False
    return _fails(lambda: mmap.mmap(-1, allowed))


_LAYERS: Mapping[str, Callable[[], bool]] = {
    "namespaces": _namespaces,
    "root": _root,
    "seccomp": _seccomp,
    "landlock": _landlock,
    "rlimits": _rlimits,
}
