"""Pace: how far whoever reads a node's candidates has come with what it pays for each of them.

A node that launches work for others to pay on, as samples that a model is to score, may want to
begin no more than what can be paid to its end. So its reader tells it of every candidate that it
has done with. It knows no budget.
"""

from __future__ import annotations

import asyncio

__all__ = ["Pace"]


class Pace:
    """What one node and its reader know of each other."""

    def __init__(self) -> None:
        self.reader: str | None = None
        """The path of the reader, where it pays for each candidate and tells when it has."""
        self._num_done = 0
        self._awaited: asyncio.Future[None] | None = None

    def keep(self, reader: str) -> None:
        """Promises, before anything is read, to tell of each candidate when it is done with."""
        self.reader = reader

    def done(self) -> None:
        """One more candidate costs nothing any more."""
        self._num_done += 1
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def caught_up(self, num_given: int) -> None:
        """Waits until the reader has done with so many."""
        while self._num_done < num_given:
            self._awaited = asyncio.get_running_loop().create_future()
            await self._awaited
