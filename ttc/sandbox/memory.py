"""The memory of a run that has several processes, read out of `/proc`."""

from __future__ import annotations

import contextlib
import os
import resource

__all__ = ["Memory"]


class Memory:
    """Adds up what a process and its descendants hold beyond what the bare process has."""

    def __init__(self) -> None:
        self._bare = _resident_pages(os.getpid())

    def used_by(self, pid: int) -> int:
        """Bytes held by `pid` and all that descend from it."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                children.setdefault(_parent(int(entry)), []).append(int(entry))
        pages, waiting = 0, [pid]
        while waiting:
            one = waiting.pop()
            pages += max(0, _resident_pages(one) - self._bare)
            waiting += children.get(one, [])
        return pages * resource.getpagesize()


def _resident_pages(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1])
    return 0


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    return 0
