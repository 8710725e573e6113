"""The memory of a run that has several processes, read out of `/proc`."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["Memory"]


class Memory:
    """Adds up what a process and its descendants hold beyond what the bare process has."""

    def __init__(self) -> None:
        self._bare = _resident_pages(os.getpid())

    def used_by(self, pid: int) -> int:
        """Bytes held by `pid` and all that descend from it."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
            if entry.isdecimal():
                children.setdefault(_parent(int(entry)), []).append(int(entry))
        pages, waiting = 0, [pid]
        while waiting:
            one = waiting.pop()
            pages += max(0, _resident_pages(one) - self._bare)
            waiting += children.get(one, [])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _resident_pages(pid: int) -> int:
    return _number(_read(f"/proc/{pid}/statm").split(), 1)


def _parent(pid: int) -> int:
    return _number(_read(f"/proc/{pid}/stat").rpartition(")")[2].split(), 1)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the process has ended meanwhile
        return ""


def _number(words: Sequence[str], place: int) -> int:
    return int(words[place]) if len(words) > place else 0
