"""Files of lines that only grow: journals and pools.

A line is written by one call of the system, behind all that is there, so that a kill can cut the
last line and no other. Whoever opens the file to write cuts such a rest off first. What a process
has written stays when it is killed; a second thread brings it to the disk within a second, so that
the writer never waits for the disk, and a power failure costs that second at most.

A newline is the only separator: a text may hold whatever else Unicode calls the end of a line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Lines", "begins_object", "is_in_use", "read_lines"]

_SYNC_S = 1.0


def begins_object(rest: bytes) -> bool:
    """Whether bytes may be the beginning of a JSON object."""
    return rest.startswith(b"{")


class Lines:
    """A file of lines, open to be continued by this process alone."""

    def __init__(
        self,
        path: Path,
        *,
        is_whole: Callable[[bytes], bool],
        max_bytes: int | None = None,
        keep_alive: bool = False,
        begins: Callable[[bytes], bool] = begins_object,
    ) -> None:
        """Opens or makes a file that only its owner can read.

        Args:
            path: the file. Folders that are missing are made.
            is_whole: whether a last line without a newline is all there. Else it is cut off.
            max_bytes: how large the file may become.
            keep_alive: whether a thread brings lines to the disk while the file is open.
            begins: whether what a file begins with may be the beginning of such a line, so that it
                is no file of somebody else's.

        Raises:
            BlockingIOError: another process has it open.
            OSError: it cannot be opened, or is a file of something else, and was left as it is.
        """
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _lock(self._file)
            self.lines = self._load(is_whole, begins)
        except BaseException:
            os.close(self._file)
            raise
        self._max_bytes, self._keep_alive = max_bytes, keep_alive
        self._guard, self._syncing = threading.Lock(), threading.Lock()
        self._is_dirty, self._is_open = False, True

    def append(self, line: bytes) -> None:
        """Writes one line behind the others, or nothing of it. Any thread may call it.

        Raises:
            OSError: the disk is full, or the file would exceed its largest size.
        """
        data = line + b"\n"
        with self._guard:
            if self._max_bytes is not None and self._size + len(data) > self._max_bytes:
                raise OSError(errno.EFBIG, f"it has reached its {self._max_bytes:,} bytes")
            try:
                written = os.write(self._file, data)
                if written < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(self._file, self._size)
                raise
            self._size += len(data)
            is_first, self._is_dirty = not self._is_dirty, True
        if is_first and self._keep_alive:
            _disk.bring(self)

    def sync(self) -> None:
        """Brings everything to the disk, and waits for it.

        Raises:
            OSError: the disk does not take it.
        """
        os.fsync(self._file)

    def close(self) -> None:
        """Brings everything to the disk, and lets others have the file."""
        with self._syncing:
            self._is_open = False
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)

    def sync_if_open(self) -> None:
        """Brings what is new to the disk, unless that has been done by closing."""
        with self._syncing:
            if self._is_open:
                with self._guard:
                    self._is_dirty = False  # a line from now on asks again
                with contextlib.suppress(OSError):  # the end tells it
                    os.fsync(self._file)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(
        self, is_whole: Callable[[bytes], bool], begins: Callable[[bytes], bool]
    ) -> list[bytes]:
        """The lines that are there; what a kill left of a last one is taken out of the file.

        Nothing is taken out behind a first line that is none of its kind.
        """
        whole, rest = _split(_read(self._file))
        self._size = sum(len(line) + 1 for line in whole)
        if rest and not whole and not begins(rest):
            raise OSError(errno.EINVAL, "it holds something else, which was left as it is")
        if rest and (not whole or is_whole(whole[0])):
            os.ftruncate(self._file, self._size)
            if is_whole(rest):
                os.write(self._file, rest + b"\n")
                self._size += len(rest) + 1
                whole.append(rest)
        return whole


class _Disk:
    """One thread for all files, which brings each to the disk a second after its first new line."""

    def __init__(self) -> None:
        self._guard, self._files = threading.Condition(), set[Lines]()
        self._thread: threading.Thread | None = None

    def bring(self, file: Lines) -> None:
        """Has a file brought to the disk soon."""
        with self._guard:
            self._files.add(file)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ttc lines", daemon=True)
                self._thread.start()
            self._guard.notify()

    def _work(self) -> None:
        while True:
            with self._guard:
                self._guard.wait_for(lambda: self._files)
            time.sleep(_SYNC_S)
            with self._guard:
                files, self._files = self._files, set()
            for file in files:
                file.sync_if_open()


_disk = _Disk()


def _anew() -> None:
    """A process that was forked off has no thread of its parent's."""
    global _disk
    _disk = _Disk()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_anew)


def read_lines(path: Path) -> tuple[list[bytes], bytes]:
    """The whole lines of a file, and what stands behind the last newline; nothing is changed."""
    return _split(path.read_bytes())


def is_in_use(path: Path) -> bool:
    """Whether a process has the file open to continue it."""
    with path.open("rb") as file:
        try:
            _lock(file.fileno())
        except BlockingIOError:
            return True
    return False


def _split(content: bytes) -> tuple[list[bytes], bytes]:
    *whole, rest = content.split(b"\n")
    return whole, rest


def _read(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        return reader.read()


def _lock(file: int) -> None:
    """Takes the file for this process until it is closed.

    Raises:
        BlockingIOError: another process has it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows locks bytes; the one far behind the end stands for all
        import msvcrt

        os.lseek(file, 2**62, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError as error:
            raise BlockingIOError from error
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
