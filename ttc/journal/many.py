"""The journals of a run over many problems: a folder, with a file for each problem that began."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttc.errors import JournalMismatch, RecordError
from ttc.journal.compare import compare
from ttc.journal.disk import DiskJournal, read
from ttc.journal.runs import open_run
from ttc.journal.values import Values, plain, price_of
from ttc.ports import Clock
from ttc.prices import Prices

if TYPE_CHECKING:
    from ttc.limits import Limits

__all__ = ["RunFolder", "among"]


def among(num_problems: int, limits: Limits) -> Values:
    """What a problem's journal tells of the others that share a run with it."""
    allocator = repr(limits.allocator)
    return {
        "problems": num_problems,
        "budget": plain(dict(vars(limits.run))),
        "allocator": blake2b(allocator.encode(), digest_size=16).hexdigest(),
    }


class RunFolder:
    """A folder with the journals of one run, as it is found."""

    def __init__(self, folder: Path) -> None:
        """Looks at what is there.

        Raises:
            RecordError: it is no folder, or a journal in it is damaged.
        """
        self._folder = folder
        self._facts: Callable[[int], Values] = lambda _: {}
        if folder.exists() and not folder.is_dir():
            raise RecordError(f"{folder} is a file; a run over many problems is kept in a folder")
        self._begun: dict[Path, Mapping[str, Any]] = {}
        self.elapsed = 0.0
        """Seconds that the run had taken before."""
        for path in sorted(folder.glob("*.journal")) if folder.is_dir() else ():
            kept = read(path, path.name)
            if kept.run:
                self._begun[path] = kept.run
                self.elapsed = max(self.elapsed, kept.run.get("began", 0.0) + kept.elapsed)

    @property
    def seed(self) -> int | None:
        """The run's seed; `None` where it has not begun."""
        return next((run["seed"] for run in self._begun.values()), None)

    @property
    def prices(self) -> Prices | None:
        """What tokens cost when it began; `None` where it has not begun."""
        first = next(iter(self._begun.values()), None)
        return None if first is None else Prices(map(price_of, first["prices"].values()))

    def begin(self, facts: Callable[[int], Values], count: int) -> None:
        """Takes a run on, and compares what has begun of it with what is to be run.

        Args:
            facts: the first line of each problem's journal, by its place.
            count: how many problems there are.

        Raises:
            JournalMismatch: it is another run.
        """
        self._facts = facts
        places = {self._path(place): place for place in range(count)}
        for path, run in self._begun.items():
            if path not in places:
                raise JournalMismatch(
                    path.name, "run", "the number of problems", "more", f"{count}"
                )
            compare(path.name, "run", run, facts(places[path]))

    def open(self, place: int, *, began: float, clock: Clock) -> DiskJournal:
        """The journal of a problem, which begins or goes on.

        Args:
            place: which one.
            began: seconds that the whole run had taken by then.
            clock: the run's clock.

        Raises:
            RecordError: it is in use, or cannot be written.
        """
        return open_run(self._path(place), {**self._facts(place), "began": began}, clock)

    def _path(self, place: int) -> Path:
        return self._folder / f"{place:06d}.journal"
