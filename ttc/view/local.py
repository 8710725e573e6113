"""The viewer on this machine alone: loopback, a path that nobody can guess, no other host's name.

A journal is its owner's alone, and loopback is everybody's on a machine with several users; so the
secret in the path stands for a key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import Mount

from ttc.view.endpoints import routes_of
from ttc.view.journals import JournalView
from ttc.view.sources import KeptRuns

__all__ = ["Local", "application"]


@dataclass(frozen=True, kw_only=True)
class Local:
    """An application, and where its first page lies."""

    app: Starlette
    path: str


def application(journal: Path | None = None) -> Local:
    """The viewer of all kept runs, or of one journal.

    Args:
        journal: the only run that is shown.
    """
    secret = f"/{secrets.token_urlsafe(18)}"
    app = Starlette(
        routes=[Mount(secret, routes=routes_of(KeptRuns(journal)))],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
    )
    name = "" if journal is None else quote(JournalView(journal).name)
    return Local(app=app, path=f"{secret}/{name}")
