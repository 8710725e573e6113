"""Files of lines that only grow."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttc.lines import Lines, is_in_use, read_lines

Open = Callable[..., Lines]


def opened(path: Path, max_bytes: int | None = None, *, keep_alive: bool = False) -> Lines:
    """A file whose whole lines end in a full stop."""

    def is_whole(line: bytes) -> bool:
        return line.endswith(b".")

    return Lines(path, is_whole=is_whole, begins=bool, max_bytes=max_bytes, keep_alive=keep_alive)


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    """And so is a folder that is made for it."""
    with opened(tmp_path / "new" / "file"):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "new" / "file").stat().st_mode) == 0o600


@given(
    texts=st.lists(st.binary().map(lambda b: b.translate(None, b"\n.") + b".")), cut=st.integers(0)
)
def test_a_cut_at_any_byte_costs_the_last_line_at_most(
    texts: list[bytes], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is written afterwards starts a line of its own."""
    path = tmp_path_factory.mktemp("cut") / "file"
    whole = b"".join(text + b"\n" for text in texts)
    left = whole[: cut % (len(whole) + 1)]
    path.write_bytes(left)
    kept = left.count(b"\n") + (left.split(b"\n")[-1] in texts)

    with opened(path) as lines:
        found = list(lines.lines)
        lines.append(b"more.")

    assert found == texts[: len(found)]
    assert left.count(b"\n") <= len(found) <= kept
    assert read_lines(path) == ([*found, b"more."], b"")


@pytest.mark.parametrize("content", [b"notes", b"notes\nof mine", b"[1]"])
def test_a_file_of_something_else_loses_nothing(tmp_path: Path, content: bytes) -> None:
    """Neither one of a single line, which looks like a rest, nor the last line of another."""
    path = tmp_path / "file"
    path.write_bytes(content)

    with suppress(OSError):
        Lines(path, is_whole=lambda line: line.startswith(b"{")).close()

    assert path.read_bytes() == content


def test_other_ends_of_lines_are_text(tmp_path: Path) -> None:
    """BK-08: U+2028 and U+0085 stand inside a line."""
    text = "a\u2028b\u0085c\rd.".encode()
    with opened(tmp_path / "file") as lines:
        lines.append(text)

    with opened(tmp_path / "file") as lines:
        assert lines.lines == [text]


def test_a_file_belongs_to_one_writer(tmp_path: Path) -> None:
    with opened(tmp_path / "file"):
        assert is_in_use(tmp_path / "file")
        with pytest.raises(BlockingIOError):
            opened(tmp_path / "file")

    assert not is_in_use(tmp_path / "file")


def test_a_file_never_exceeds_its_largest_size(tmp_path: Path) -> None:
    """What was in it stays, and what still fits goes in."""
    with opened(tmp_path / "file", max_bytes=10) as lines:
        lines.append(b"four.")
        with pytest.raises(OSError, match="it has reached its 10 bytes"):
            lines.append(b"five.")
        lines.append(b"ee.")

    assert (tmp_path / "file").read_bytes() == b"four.\nee.\n"


def test_a_line_that_the_disk_cannot_hold_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it was written when the disk was full."""
    write = os.write
    with opened(tmp_path / "file") as lines:
        lines.append(b"first.")
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:3]))
        with pytest.raises(OSError, match="No space left"):
            lines.append(b"second.")
        monkeypatch.undo()
        lines.append(b"third.")

    assert (tmp_path / "file").read_bytes() == b"first.\nthird.\n"


def test_new_lines_reach_the_disk_while_the_file_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that there are some, and by one thread for all files."""
    monkeypatch.setattr("ttc.lines._SYNC_S", 0.0)
    brought: Queue[str] = Queue()
    monkeypatch.setattr(os, "fsync", lambda file: brought.put(threading.current_thread().name))
    with opened(tmp_path / "a", keep_alive=True) as a, opened(tmp_path / "b", keep_alive=True) as b:
        for file in (a, b, a):
            file.append(b"one.")
            assert brought.get(timeout=60) == "ttc lines"
        names = [thread.name for thread in threading.enumerate()]
    assert names.count("ttc lines") == 1


def test_a_file_that_was_closed_is_not_brought_to_the_disk_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be that of another file by then."""
    file = opened(tmp_path / "file")
    file.append(b"one.")
    file.close()
    monkeypatch.setattr(os, "fsync", lambda file: pytest.fail("it was closed"))
    file.sync_if_open()
