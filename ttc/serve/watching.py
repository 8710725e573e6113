"""Watching a client: a request ends when whoever asked for it has gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import Receive

from ttc.serve.job import Job
from ttc.types import Outcome

__all__ = ["ClientGone", "disconnected", "ended", "while_there"]


class ClientGone(Exception):
    """Nobody waits for the reply any more."""


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone. The body has to be read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_there(
    work: asyncio.Task[list[Outcome]], job: Job, receive: Receive
) -> list[Outcome]:
    """What a job comes to, as long as its client is there.

    Raises:
        ClientGone: it was cancelled and settled.
    """
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        await ended(work, job)
        raise ClientGone
    except asyncio.CancelledError:
        await ended(work, job)
        raise
    finally:
        gone.cancel()


async def ended(work: asyncio.Task[list[Outcome]], job: Job) -> None:
    """Ends a job and waits until it is settled."""
    job.cancel()
    if not job.has_begun.is_set():
        work.cancel()
    with suppress(Exception, asyncio.CancelledError):
        await asyncio.shield(work)
