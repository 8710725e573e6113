"""The viewer: what a run did, as one value and as a page, while it runs and afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ttc.journal.runs import path_of
from ttc.types import Outcome
from ttc.view.journals import JournalView
from ttc.view.recorder import Recorder, of_outcome
from ttc.view.run import RunView
from ttc.view.sources import KeptRuns, RunLine, Source

if TYPE_CHECKING:
    from starlette.routing import Route

__all__ = [
    "KeptRuns",
    "Recorder",
    "RunLine",
    "RunView",
    "Source",
    "document",
    "routes",
    "view",
    "written",
]


def view(run: str | os.PathLike[str] | Outcome) -> RunView:
    """A run to look at.

    Args:
        run: the name of a kept run, the path of a journal, or an outcome.

    Raises:
        RecordError: there is no such run, or it is damaged.
    """
    if isinstance(run, Outcome):
        return of_outcome(run)
    found = JournalView(path_of(run))
    found.refresh()
    return found


def document(run: str | os.PathLike[str] | Outcome, *, after: int = 0) -> dict[str, Any]:
    """What a run did, as JSON; see `docs/viewer.md`.

    Args:
        run: the name of a kept run, the path of a journal, or an outcome.
        after: the version of a document that is known already: rows that are older are left out.

    Raises:
        RecordError: there is no such run, or it is damaged.
    """
    return view(run).document(after)


def written(run: str | os.PathLike[str] | Outcome) -> str:
    """A page that holds all of a run and needs no server.

    Raises:
        RecordError: there is no such run, or it is damaged.
    """
    from ttc.view.page import written_page

    seen = view(run)
    return written_page(seen.document(), seen.texts.all())


def routes(source: Source) -> list[Route]:
    """The routes of the viewer, to be mounted in a Starlette application; see `Source`."""
    from ttc.view.endpoints import routes_of

    return routes_of(source)
