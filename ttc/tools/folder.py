"""Tools over one folder: read, find, search and write files that lie in it, and no others.

A path is followed name by name from an open folder, and no link is followed anywhere, so there is
nothing to check beforehand and no moment in between. Only regular files are opened. Whatever is
refused is refused in the same words. A pattern is searched for in a process that can be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from ttc.tools.function import FunctionTool, tool
from ttc.tools.process import call_in_process

__all__ = ["Folder", "folder_tools", "search_files"]

_MOST_FILES = 10_000
_MOST_READ = 1 << 20
_MOST_FOUND = 100
_LONGEST_LINE = 300
_FOLLOW_NOTHING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Folder:
    """Files in a folder."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """A folder, which is not left.

        Raises:
            NotADirectoryError: there is none.
            OSError: this system cannot open files by folder, as Windows.
        """
        if os.open not in os.supports_dir_fd:
            raise OSError("this system opens no file relative to a folder; use another one")
        self.root = Path(root)
        if not self.root.is_dir():
            raise NotADirectoryError(f"{self.root} is no folder")

    def read(self, path: str) -> str:
        """A file's text, of at most a mebibyte.

        Raises:
            PermissionError: it is no file in the folder.
        """
        with self._opened(path, os.O_RDONLY | os.O_NONBLOCK) as file:
            return _text(file)

    def write(self, path: str, text: str) -> None:
        """Writes a file, with the folders that it lies in.

        Raises:
            PermissionError: it would be no file in the folder.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
        with self._opened(path, flags, makes=True) as file:
            data = text.encode(errors="replace")
            while data:
                data = data[os.write(file, data) :]

    def names(self) -> Iterator[str]:
        """The paths of all files, in order; links are left out."""
        for path, _ in self._walk():
            yield path

    def texts(self) -> Iterator[tuple[str, str]]:
        """The paths and texts of all files, in order; what is no text is left out."""
        for path, file in self._walk():
            text = _text(file)
            if "\0" not in text:
                yield path, text

    def _walk(self) -> Iterator[tuple[str, int]]:
        """Each regular file, open to be read."""
        count = 0
        for folder, folders, files, at in os.fwalk(self.root, follow_symlinks=False):
            folders.sort()
            for name in sorted(files):
                try:
                    file = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FOLLOW_NOTHING, dir_fd=at)
                except OSError:
                    continue
                try:
                    if stat.S_ISREG(os.fstat(file).st_mode):
                        count += 1
                        yield os.path.relpath(os.path.join(folder, name), self.root), file
                finally:
                    os.close(file)
                if count >= _MOST_FILES:
                    return

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int, *, makes: bool = False) -> Iterator[int]:
        """A regular file, reached name by name."""
        *folders, name = _steps(path)
        at = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                if makes:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, 0o777, dir_fd=at)
                inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _FOLLOW_NOTHING, dir_fd=at)
                os.close(at)
                at = inner
            file = os.open(name, flags | _FOLLOW_NOTHING, 0o666, dir_fd=at)
        except OSError:
            raise _refused(path) from None
        finally:
            os.close(at)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _refused(path)
            yield file
        finally:
            os.close(file)


def _steps(path: str) -> list[str]:
    """The names of a path below the folder. Going up is going back by a name."""
    steps: list[str] = []
    for step in path.split("/"):
        if step == "..":
            if not steps:
                raise _refused(path)
            steps.pop()
        elif step not in ("", "."):
            steps.append(step)
    if not steps or path.startswith("/") or "\0" in path or path.endswith("/"):
        raise _refused(path)
    return steps


def _refused(path: str) -> PermissionError:
    return PermissionError(f"{path!r} is no file in the folder")


def _text(file: int) -> str:
    with os.fdopen(os.dup(file), "rb") as reader:
        return reader.read(_MOST_READ).decode(errors="replace")


def search_files(root: str, pattern: str) -> str:
    """The lines of a folder's files that a regular expression matches, with their places."""
    searched, found = re.compile(pattern), []
    for path, text in Folder(root).texts():
        for number, line in enumerate(text.splitlines(), 1):
            if searched.search(line):
                found.append(f"{path}:{number}: {line[:_LONGEST_LINE]}")
                if len(found) == _MOST_FOUND:
                    return "\n".join([*found, "(and more)"])
    return "\n".join(found) or "no line matches"


def folder_tools(
    root: str | os.PathLike[str], *, writes: bool = False, is_trusted: bool = False
) -> tuple[FunctionTool, ...]:
    """Tools that read, find and search files in a folder, and write them where that is allowed.

    Args:
        root: the folder.
        writes: whether there is a tool that writes.
        is_trusted: whether you vouch for what the files say.

    Raises:
        NotADirectoryError: there is none.
    """
    folder = Folder(root)

    @tool(effect="pure", is_trusted=is_trusted)
    async def read_file(path: str) -> str:
        """Reads a file of the folder."""
        return await asyncio.to_thread(folder.read, path)

    @tool(effect="pure", is_trusted=is_trusted)
    async def list_files() -> str:
        """Lists the files of the folder."""
        return "\n".join(await asyncio.to_thread(lambda: list(folder.names()))) or "no files"

    @tool(effect="pure", is_trusted=is_trusted)
    async def find_in_files(pattern: str) -> str:
        """Tells the lines in files of the folder that a regular expression matches."""
        arguments = {"root": str(folder.root), "pattern": pattern}
        return await call_in_process(search_files, [arguments], 64 * _LONGEST_LINE * _MOST_FOUND)

    @tool(effect="irreversible", is_trusted=True)
    async def write_file(path: str, text: str) -> str:
        """Writes a file of the folder, in the place of one that is there."""
        folder.write(path, text)
        return f"wrote {path}"

    reading = (read_file, list_files, find_in_files)
    return (*reading, write_file) if writes else reading
