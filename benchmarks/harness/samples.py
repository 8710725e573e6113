"""Samples: the independent draws of each problem, graded, out of which selectors are estimated.

They are those of a pool, or of a strategy that samples a fixed number and was never cut short. What
a stop rule, a search or a limit has chosen to draw is no such sample: how many there are would
depend on what they say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ttc.answers import answer_key
from ttc.benchmarks.harness.config import Cell, Config
from ttc.benchmarks.harness.results import Result
from ttc.errors import RecordError
from ttc.graph import Chain
from ttc.lines import Lines, read_lines
from ttc.strategies import Sample
from ttc.text_form import parse

__all__ = ["SampleFile", "Samples", "classes", "drawn_by", "read_samples"]

_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The samples of one problem, in the order in which they were drawn."""

    task: str
    problem: str
    classes: tuple[int | None, ...]
    """Equal answers have equal numbers; `None` is no answer."""
    right: tuple[bool, ...]
    scores: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """By name; `None` is unknown."""

    @property
    def line(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False).encode()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Samples:
        """What such values describe."""
        scores = {name: tuple(column) for name, column in values["scores"].items()}
        lists = {name: tuple(values[name]) for name in ("classes", "right")}
        return cls(**{**values, **lists, "scores": scores})


class SampleFile:
    """The graded samples of a pool, a line for each problem, that this process alone continues."""

    def __init__(self, path: Path) -> None:
        """Opens a file, or makes one.

        Raises:
            RecordError: it is damaged, is in use, or cannot be written.
        """
        try:
            self._lines = Lines(path, is_whole=_is_whole)
        except BlockingIOError:
            raise RecordError(f"{path} is in use by another evaluation; wait for it") from None
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self._done = {(s.task, s.problem) for s in _parsed(self._lines.lines, path)}
        except BaseException:
            self._lines.close()
            raise

    def fill(self, task: str, problems: Iterable[str], graded: Callable[[str], Samples]) -> None:
        """Adds the problems that are not there yet, several graded at once, in their order."""
        missing = [problem for problem in problems if (task, problem) not in self._done]
        with ThreadPoolExecutor(_AT_ONCE, "ttc grading") as workers:
            for made in workers.map(graded, missing):
                self._lines.append(made.line)

    def __enter__(self) -> SampleFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()


def read_samples(folder: Path) -> Iterator[Samples]:
    """The samples of a folder's pool, each problem once; nothing where there was no pool.

    Raises:
        RecordError: a file is damaged, or cannot be read.
    """
    seen: set[tuple[str, str]] = set()
    for path in sorted(folder.glob("samples*.jsonl")):
        try:
            lines, rest = read_lines(path)
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}") from error
        for made in _parsed([*lines, rest] if _is_whole(rest) else lines, path):
            if (made.task, made.problem) not in seen:
                seen.add((made.task, made.problem))
                yield made


def drawn_by(config: Config, results: Iterable[Result]) -> dict[Cell, list[Samples]]:
    """The samples of every cell whose strategy drew a fixed number of each problem.

    A cell of which one problem has fewer, by a limit, a stop rule or a fault, is left out whole.
    """
    wanted = {
        cell.key: (cell, num * config.repeats)
        for cell in config.cells
        if (num := _fixed_number(config.strategy(cell.arm))) is not None
    }
    found: dict[str, dict[str, list[Result]]] = {key: {} for key in wanted}
    for result in results:
        if result.cell in found:
            found[result.cell].setdefault(result.problem, []).append(result)
    made: dict[Cell, list[Samples]] = {}
    for key, (cell, num) in wanted.items():
        problems = [_joined(cell.task, runs) for runs in found[key].values()]
        if num > 1 and problems and all(len(p.right) == num for p in problems):
            made[cell] = problems
    return made


def classes(keys: Iterable[Hashable | None]) -> tuple[int | None, ...]:
    """Equal keys as equal numbers, in the order of their first place."""
    numbers: dict[Hashable, int] = {}
    return tuple(None if key is None else numbers.setdefault(key, len(numbers)) for key in keys)


def _fixed_number(strategy: str) -> int | None:
    """How many samples a strategy draws of every problem, all alike; `None` where it may vary."""
    graph = parse(strategy).expand()
    first = graph.parts[0] if isinstance(graph, Chain) else graph
    if not isinstance(first, Sample) or first.order != "launch" or len(first.samplings()) > 1:
        return None
    return first.n if isinstance(first.n, int) and first.samplings()[0].temperature > 0 else None


def _joined(task: str, runs: Sequence[Result]) -> Samples:
    candidates = [c for run in sorted(runs, key=lambda r: r.repeat) for c in run.candidates]
    names = sorted({name for candidate in candidates for name in candidate.scores})
    return Samples(
        task=task,
        problem=runs[0].problem,
        classes=classes(answer_key(c.answer) for c in candidates),
        right=tuple(c.grade == 1.0 for c in candidates),
        scores={name: tuple(c.scores.get(name) for c in candidates) for name in names},
    )


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _parsed(lines: Iterable[bytes], path: Path) -> Iterator[Samples]:
    for number, line in enumerate(lines, 1):
        try:
            yield Samples.of(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecordError(f"{path}: line {number} holds no samples: {error}") from None
