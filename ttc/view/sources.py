"""Where the viewer's runs come from: the folder of kept runs, or whoever else has some."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ttc.errors import RecordError
from ttc.journal.runs import RunInfo, list_runs, path_of
from ttc.view.journals import JournalView

if TYPE_CHECKING:
    from starlette.requests import Request

    from ttc.view.run import RunView

__all__ = ["KeptRuns", "RunLine", "Source"]

_MOST_OPEN = 8


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """What the list of runs tells of one."""

    name: str
    """Also its place: letters, digits, `.`, `_` and `-`."""
    state: str
    question: str = ""
    answer: str | None = None
    tokens: int | None = None
    strategy: str = ""


class Source(Protocol):
    """Where runs come from. It may raise `starlette.exceptions.HTTPException`."""

    def runs(self, request: Request) -> Sequence[RunLine]:
        """The runs that the caller may see, the newest first."""

    def view(self, request: Request, name: str) -> RunView | None:
        """One of them; `None` where there is none, or none that the caller may see."""


class KeptRuns:
    """The runs in the folder of runs, or one journal that lies elsewhere."""

    def __init__(self, journal: Path | None = None) -> None:
        """A source.

        Args:
            journal: the only run that is shown; `None` shows all that are kept.
        """
        self._journal = journal
        self._views: dict[str, JournalView] = {}
        self._guard = threading.Lock()

    def runs(self, request: Request | None = None) -> list[RunLine]:
        """All of them, the newest first."""
        from ttc.journal.runs import info

        found = list_runs() if self._journal is None else [info(self._journal)]
        return [_line(run) for run in found]

    def view(self, request: Request | None, name: str) -> JournalView | None:
        """One of them, read again only where it has grown."""
        with self._guard:
            found = self._views.pop(name, None) or self._opened(name)
            if found is not None:
                self._views[name] = found  # the one that was asked for last stands last
                while len(self._views) > _MOST_OPEN:
                    del self._views[next(iter(self._views))]
        return found

    def _opened(self, name: str) -> JournalView | None:
        if self._journal is not None:
            view = JournalView(self._journal)
            return view if view.name == name else None
        if name not in {run.name for run in list_runs()}:
            return None
        try:
            return JournalView(path_of(name))
        except RecordError:
            return None


def _line(run: RunInfo) -> RunLine:
    kept = run.kept
    if kept is None or not kept.run:
        return RunLine(name=run.name, state=run.state)
    problem, end = kept.run["problem"], kept.end
    return RunLine(
        name=run.name,
        state=run.state,
        question=str(problem["prompt"] or problem["messages"][-1]["content"]),
        answer=None if end is None else end["answer"],
        tokens=None if end is None else end["usage"].get("tokens", 0),
        strategy=kept.run["text"] or kept.run["strategy"],
    )
