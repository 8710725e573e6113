"""Runs on disk: where journals lie, what each of them is, and how one is begun or gone on with."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from ttc.drawing import drawing_values
from ttc.errors import RecordError
from ttc.graph import Node
from ttc.journal.disk import SCHEMA_VERSION, DiskJournal, Kept, read
from ttc.journal.entries import begins, is_whole
from ttc.journal.values import Values, engine_values, plain, price_values, problem_values
from ttc.lines import Lines, is_in_use
from ttc.ports import Clock, Engine
from ttc.prices import Price
from ttc.types import Budget, Problem

__all__ = ["RunInfo", "facts_of", "info", "list_runs", "new_run", "open_run", "path_of", "remove"]

_SUFFIX = ".journal"
State = Literal["finished", "unfinished", "running", "damaged"]


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What a journal tells of its run."""

    name: str
    path: Path
    num_bytes: int
    state: State
    """`unfinished` can be resumed; `running` is open in a process now."""
    fault: str | None = None
    """Why it cannot be read."""
    kept: Kept | None = None
    """What it holds; `None` where it cannot be read."""


def new_run() -> Path:
    """Where a new run may lie: a name that sorts by time, and that nobody else has."""
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    return _folder() / (name + _SUFFIX)


def path_of(run: str | os.PathLike[str]) -> Path:
    """The journal that is meant: the name of a run in the folder of runs, or a path.

    Raises:
        RecordError: there is none.
    """
    named = _folder() / f"{os.fspath(run)}{_SUFFIX}"
    path = named if os.path.basename(run) == os.fspath(run) and named.exists() else Path(run)
    if not path.is_file():
        raise RecordError(f"there is no run {os.fspath(run)!r}; `ttc runs list` tells all of them")
    return path


def list_runs() -> list[RunInfo]:
    """All runs in the folder of runs, the newest first."""
    folder = _folder()
    found = sorted(folder.glob("*" + _SUFFIX), reverse=True) if folder.is_dir() else []
    return [info(path) for path in found]


def info(path: Path) -> RunInfo:
    """What a journal tells of its run."""
    name, num_bytes = _name(path), path.stat().st_size
    try:
        kept = read(path, name)
        running = is_in_use(path)
    except (OSError, RecordError) as error:
        return RunInfo(name=name, path=path, num_bytes=num_bytes, state="damaged", fault=str(error))
    state: State = "running" if running else "unfinished" if kept.end is None else "finished"
    return RunInfo(name=name, path=path, num_bytes=num_bytes, state=state, kept=kept)


def remove(path: Path) -> None:
    """Removes a run for good.

    Raises:
        RecordError: it is running, or it cannot be removed.
    """
    try:
        if is_in_use(path):
            raise RecordError(f"{_name(path)} is running; end it first")
        path.unlink()
    except OSError as error:
        raise RecordError(f"{path} cannot be removed: {error.strerror}") from error


def facts_of(
    problem: Problem,
    graph: Node,
    text: str | None,
    seed: int | None,
    budget: Budget,
    engines: Mapping[str, Engine],
    prices: Mapping[str, Price],
) -> Values:
    """The first line of a journal: what is solved, how, with what.

    Args:
        problem: what is solved.
        graph: the strategy.
        text: the strategy as it was written, where it was a text.
        seed: the run's seed; `None` takes that of a run that is gone on with.
        budget: what it may spend.
        engines: the engines by role.
        prices: what their tokens cost, as far as it is known. They hold to the end of the run.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "problem": problem_values(problem),
        "strategy": _without_addresses(repr(graph)),
        "text": text,
        "seed": seed,
        "budget": plain(dict(vars(budget))),
        "numerics": {role: engine.numerics for role, engine in engines.items()},
        "prices": {role: price_values(price) for role, price in prices.items()},
        "engines": {role: plain(engine_values(engine)) for role, engine in engines.items()},
        "graph": drawing_values(graph),
    }


def open_run(path: Path, facts: Values, clock: Clock) -> DiskJournal:
    """Begins a run in a file, or goes on with the one that is in it.

    Raises:
        JournalMismatch: the file is of another run.
        RecordError: it is damaged, in use, or cannot be written.
    """
    from ttc.config import settings  # reads a file of the user: not at import

    name, most = _name(path), settings().journal_mb.value * 2**20
    try:
        file = Lines(path, is_whole=is_whole, begins=begins, max_bytes=most, keep_alive=True)
    except BlockingIOError:
        raise RecordError(f"{name} is in use by another process; wait for it, or end it") from None
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror}") from error
    try:
        kept = Kept(file.lines, name)
        file.lines.clear()
        if facts["seed"] is None:
            facts = {**facts, "seed": kept.run.get("seed", secrets.randbits(63))}
        journal = DiskJournal(kept, facts, clock, file)
        journal.check()
    except BaseException:
        file.close()
        raise
    return journal


def _folder() -> Path:
    from ttc.config import settings

    return settings().home.value / "runs"


def _name(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX)


def _without_addresses(text: str) -> str:
    """A repr without what differs from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)
