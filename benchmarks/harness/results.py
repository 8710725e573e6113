"""Results: what each problem of each cell came to, a line of JSON each, in files that only grow.

A file may be cut at any byte. Half a line is dropped, and what it told is run again; a line that
stands there twice counts once. Shards write files of their own into one folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ttc.errors import RecordError
from ttc.lines import Lines, read_lines

__all__ = [
    "Faults",
    "Graded",
    "Key",
    "Result",
    "ResultFile",
    "faults",
    "journal_of",
    "read_results",
    "result_files",
]


class Key(NamedTuple):
    """What a result is of."""

    cell: str
    problem: str
    repeat: int


@dataclass(frozen=True, kw_only=True)
class Graded:
    """A candidate, read and graded."""

    answer: str | None
    grade: float | None
    """1 is right, 0 is wrong, `None` is undecided and counts as wrong."""
    tokens: int
    """Of its text, without the prompt."""
    status: str
    scores: Mapping[str, float | None] = field(default_factory=dict)
    text: str | None = None
    """`None` where a pool holds it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one problem of one cell came to."""

    cell: str
    problem: str
    repeat: int
    grade: float | None
    """Of the chosen answer. No answer is 0; `None` is undecided and counts as wrong."""
    answer: str | None
    text: str | None
    confidence: float | None
    stopped_by: str
    error: str | None = None
    """A fault that left the problem without an outcome: it counts as wrong, and is run again."""
    oracle: bool = False
    timing_dependent: tuple[str, ...] = ()
    usage: Mapping[str, float | None] = field(default_factory=dict)
    """What was spent, line by line."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """Tokens by the role that spent them."""
    overhead_s: float | None = None
    """Seconds in which ttc itself worked."""
    candidates: tuple[Graded, ...] = ()
    """All that the strategy chose among, in launch order; every one is graded."""

    @property
    def key(self) -> Key:
        """What it is of."""
        return Key(self.cell, self.problem, self.repeat)

    @property
    def value(self) -> float:
        """1 where the chosen answer is right, else 0."""
        return float(self.grade == 1.0)

    @property
    def line(self) -> bytes:
        """As JSON."""
        values = {**vars(self), "candidates": list(map(vars, self.candidates))}
        return json.dumps(values, ensure_ascii=False, allow_nan=False, default=dict).encode()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Result:
        """What such values describe."""
        candidates = tuple(Graded(**value) for value in values["candidates"])
        timing = tuple(values["timing_dependent"])
        return cls(**{**values, "candidates": candidates, "timing_dependent": timing})


class Faults(NamedTuple):
    """Runs of problems that a fault left without an outcome."""

    num: int
    of: int
    """All runs that have a result."""
    first: str | None


class ResultFile:
    """A file of results that this process alone continues."""

    def __init__(self, path: Path) -> None:
        """Opens a file, or makes one.

        Raises:
            RecordError: it is damaged, is in use, or cannot be written.
        """
        self.path = path
        try:
            self._lines = Lines(path, is_whole=_is_whole, keep_alive=True)
        except BlockingIOError:
            raise RecordError(f"{path} is in use by another evaluation; wait for it") from None
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self.done = {r.key for r in _parsed(self._lines.lines, path) if r.error is None}
        except BaseException:
            self._lines.close()
            raise
        self._lines.lines.clear()

    def add(self, result: Result) -> None:
        """Writes a result behind the others.

        Raises:
            RecordError: it cannot be written.
        """
        try:
            self._lines.append(result.line)
        except OSError as error:
            raise RecordError(
                f"{self.path} cannot be continued: {error.strerror}; nothing of it is lost"
            ) from error
        if result.error is None:
            self.done.add(result.key)

    def close(self) -> None:
        """Brings it to the disk."""
        self._lines.close()

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def journal_of(folder: Path, key: Key) -> Path:
    """The journal of a problem, which stays when its result is kept only if that is asked for."""
    problem = hashlib.blake2b(key.problem.encode(), digest_size=8).hexdigest()
    return folder / "journals" / key.cell / f"{problem}-{key.repeat}.journal"


def result_files(folder: Path) -> list[Path]:
    """The files of a folder: one, or one for each shard."""
    return sorted(folder.glob("results*.jsonl"))


def read_results(folder: Path, *, texts: bool = False) -> Iterator[Result]:
    """Every result of a folder, once; a fault only where nothing better came later.

    Args:
        folder: the folder.
        texts: whether what models wrote is read, too; otherwise it is dropped at once.

    Raises:
        RecordError: a file is damaged, or cannot be read.
    """
    seen: set[Key] = set()
    faults: dict[Key, Result] = {}
    for path in result_files(folder):
        for result in _read(path, texts):
            if result.error is not None:
                faults[result.key] = result
            elif result.key not in seen:
                seen.add(result.key)
                yield result
    yield from (result for key, result in faults.items() if key not in seen)


def faults(folder: Path) -> Faults:
    """How many results are faults, and the first of them."""
    num = of = 0
    first: str | None = None
    for result in read_results(folder):
        of += 1
        if result.error is not None:
            num, first = num + 1, first or result.error
    return Faults(num, of, first)


def _read(path: Path, texts: bool) -> Iterator[Result]:
    try:
        lines, rest = read_lines(path)
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    yield from _parsed([*lines, rest] if _is_whole(rest) else lines, path, texts=texts)


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _parsed(lines: Iterable[bytes], path: Path, *, texts: bool = False) -> Iterator[Result]:
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            if not texts:
                values["text"] = None
                for candidate in values["candidates"]:
                    candidate["text"] = None
            yield Result.of(values)
        except (ValueError, TypeError, KeyError) as error:
            raise RecordError(f"{path}: line {number} is no result: {error}") from None
