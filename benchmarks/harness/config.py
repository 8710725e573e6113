"""What an evaluation is: written down before it runs, and compared with what goes on later.

The comparisons that get a verdict are a part of it, at most six for each task, so that nobody
chooses them by their results.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from ttc.errors import RecordError
from ttc.types import Budget

__all__ = [
    "MAX_COMPARISONS",
    "SCHEMA_VERSION",
    "Arm",
    "Cell",
    "Comparison",
    "Config",
    "TaskFacts",
    "budget_name",
    "default_comparisons",
]

SCHEMA_VERSION = 1
MAX_COMPARISONS = 6
"""Of one task: with more, few differences are large enough to survive the correction."""
_FILE = "eval.json"
_MOST_CHANGES = 3


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A strategy under a name."""

    name: str
    strategy: str


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One strategy on one task, with one model and one budget."""

    task: str
    model: str
    arm: str
    budget: str

    @property
    def key(self) -> str:
        """A short name that no other cell has."""
        text = json.dumps([self.task, self.model, self.arm, self.budget])
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Whether one strategy is better than another, on equal terms: asked before the run."""

    task: str
    model: str
    budget: str
    first: str
    second: str


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """What a task was, without its problems."""

    name: str
    source: str
    digest: str
    num_problems: int
    num_publicly_tested: int
    grader: str
    example: str
    """The first problem as it was asked."""

    rows: str | None = None
    """The digest of all problems that its own are some of, wherever they lay."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TaskFacts:
        """What such values describe; of old, the source alone told the digest."""
        source, _, rows = values["source"].rpartition(", digest ")
        return cls(**{"rows": rows if source else None, **values})

    def shares_ids(self, other: TaskFacts) -> bool:
        """Whether one id names the same problem in both."""
        known = self.rows is not None and other.rows is not None
        of_one_set = self.rows == other.rows if known else self.source == other.source
        return of_one_set or self.digest == other.digest


@dataclass(frozen=True, kw_only=True)
class Config:
    """An evaluation."""

    tasks: tuple[TaskFacts, ...]
    arms: tuple[Arm, ...]
    budgets: Mapping[str, Mapping[str, float]]
    """Of one problem, by name."""
    models: tuple[str, ...]
    roles: Mapping[str, str]
    """Models of further roles."""
    seed: int
    repeats: int
    """How often a problem is run, with other seeds; on a pool, with other orders."""
    comparisons: tuple[Comparison, ...]
    asking: Mapping[str, Any]
    """How problems were chosen and asked."""
    pool: str | None = None

    def __post_init__(self) -> None:
        counts = Counter(comparison.task for comparison in self.comparisons)
        for task, count in counts.items():
            if count > MAX_COMPARISONS:
                raise ValueError(
                    f"{task} has {count} comparisons, and at most {MAX_COMPARISONS} can be told "
                    "apart from luck; name fewer by --compare, or fewer budgets or models"
                )
        if self.repeats < 1:
            raise ValueError(f"repeats is at least 1, not {self.repeats}")

    @property
    def cells(self) -> list[Cell]:
        """All cells, in the order in which they run."""
        return [
            Cell(task=task.name, model=model, arm=arm.name, budget=budget)
            for model in self.models
            for task in self.tasks
            for budget in self.budgets
            for arm in self.arms
        ]

    def task(self, name: str) -> TaskFacts:
        """A task by its name."""
        return next(task for task in self.tasks if task.name == name)

    def strategy(self, arm: str) -> str:
        """The text of a strategy."""
        return next(a.strategy for a in self.arms if a.name == arm)

    def budget(self, name: str) -> Budget:
        """A budget by its name."""
        return Budget(**self.budgets[name])  # type: ignore[arg-type]  # checked when it was made

    @property
    def values(self) -> dict[str, Any]:
        """As JSON."""
        own: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {"schema_version": SCHEMA_VERSION, **own}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Config:
        """What such values describe."""
        rest = {name: value for name, value in values.items() if name != "schema_version"}
        rest["tasks"] = tuple(map(TaskFacts.of, rest["tasks"]))
        for name, kind in {"arms": Arm, "comparisons": Comparison}.items():
            rest[name] = tuple(kind(**value) for value in rest[name])
        return cls(**{**rest, "models": tuple(rest["models"])})

    @property
    def digest(self) -> str:
        """A hash of all of it: the same command finds its own folder again."""
        text = json.dumps(self.values, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def begin(self, folder: Path) -> None:
        """Writes it down, or compares it with what the folder was begun with.

        Raises:
            RecordError: the folder is of another evaluation, or cannot be written.
        """
        path = folder / _FILE
        try:
            if path.is_file():
                self._compare(Config.read(folder), folder)
                return
            folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(self.values, indent=2) + "\n", encoding="utf-8")
            partial.replace(path)
        except OSError as error:
            raise RecordError(f"{folder} cannot be written: {error.strerror}") from error

    @classmethod
    def read(cls, folder: Path) -> Config:
        """What a folder was begun with.

        Raises:
            RecordError: it holds no evaluation.
        """
        path = folder / _FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.get("schema_version") != SCHEMA_VERSION:
                raise RecordError(f"{path} is of another version than {SCHEMA_VERSION}")
            return cls.of(values)
        except OSError as error:
            raise RecordError(f"{folder} holds no evaluation: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(f"{path} is no evaluation: {error}") from error

    def _compare(self, other: Config, folder: Path) -> None:
        for f in fields(self):
            mine, theirs = self.values[f.name], other.values[f.name]
            if mine != theirs:
                name = "strategies" if f.name == "arms" else f.name
                told = "; ".join(islice(_changes(theirs, mine, name), _MOST_CHANGES))
                raise RecordError(
                    f"{folder} holds another evaluation: {told}; write to another folder by "
                    "--output"
                )


def _changes(before: Any, now: Any, place: str) -> Iterator[str]:
    """What differs, part by part; parts of a list are told by their names."""
    if isinstance(before, list) and isinstance(now, list):
        before, now = _by_name(before), _by_name(now)
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({**before, **now}, key=str):
            if key not in now:
                yield f"{place} has {key} there, and not here"
            elif key not in before:
                yield f"{place} has {key} here, and not there"
            elif before[key] != now[key]:
                yield from _changes(before[key], now[key], f"{place}, {key}")
    else:
        yield f"{place} is {before!r} there, and {now!r} here"


def _by_name(parts: list[Any]) -> dict[Any, Any]:
    named = all(isinstance(part, dict) and "name" in part for part in parts)
    if named:
        return {part["name"]: part for part in parts}
    return {" > ".join(map(str, p.values())) if isinstance(p, dict) else p: p for p in parts}


def budget_name(limits: Mapping[str, float]) -> str:
    """What tables call a budget."""
    return ",".join(f"{name}={_told(value)}" for name, value in limits.items()) or "unlimited"


def _told(value: float) -> str:
    """A limit, short where that says all of it: two budgets never share a name."""
    short = f"{value:g}"
    return short if float(short) == value else str(value)


def default_comparisons(
    tasks: Iterable[str], models: Sequence[str], arms: Sequence[Arm], budgets: Sequence[str]
) -> tuple[Comparison, ...]:
    """Every strategy against the first: at each budget, else at the last, as far as six go."""
    rivals = len(arms) - 1
    chosen = list(budgets)
    if rivals * len(chosen) * len(models) > MAX_COMPARISONS:
        chosen = chosen[-1:]
    if not rivals or rivals * len(chosen) * len(models) > MAX_COMPARISONS:
        return ()
    return tuple(
        Comparison(task=task, model=model, budget=budget, first=arm.name, second=arms[0].name)
        for task in tasks
        for model in models
        for budget in chosen
        for arm in arms[1:]
    )
