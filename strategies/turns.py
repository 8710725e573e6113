"""Turns: a node begins no more than whoever reads it can pay for as well.

For nodes that launch work at once, and whose reader asks models for each candidate: under a limit
they begin one more once `thrift` finds that it can be paid with what follows. Whenever it does not,
they wait until nothing is in flight any more, here and at the reader, and count what is left.

Source: Dijkstra 1965, the banker's algorithm, as in `thrift`.
Differs: what nobody can claim beforehand is learned.
Cost: the first piece of work runs alone, and later ones wait for each other near the limit.
"""

from __future__ import annotations

from ttc.flow import Cost
from ttc.ports import Scope
from ttc.strategies.thrift import Thrift
from ttc.types import Candidate

__all__ = ["PaidTurns"]


class PaidTurns:
    """The turns of one node in one run."""

    def __init__(self, scope: Scope, reader: str, most: Cost) -> None:
        """Nobody's turn has come.

        Args:
            scope: that of the node.
            reader: the path of whoever pays for its candidates.
            most: what one piece of its work takes at most.
        """
        limits = {"tokens": most.tokens or 0, "calls": most.calls or 0}
        self._pace, self._thrift = scope.pace, Thrift(scope, limits, reader)
        self._num_begun = self._num_since = 0

    @classmethod
    def of(cls, scope: Scope, most: Cost) -> PaidTurns | None:
        """Those of a node whose candidates are paid for, too; `None` where no limit asks for it.

        Nobody else may have calls in flight: what it reads has ended.
        """
        left, reader = scope.remaining, scope.pace.reader
        is_limited = left.tokens is not None or left.calls is not None
        return cls(scope, reader, most) if reader is not None and is_limited else None

    async def begin(self) -> None:
        """Waits until the turn of one more piece of work has come."""
        is_first = self._num_begun == 0
        if is_first or not self._thrift.allows(has_unknown=self._num_since > 0):
            await self._pace.caught_up(self._num_begun)
            self._thrift.count()
            self._num_since = 0
        self._thrift.launched()
        self._num_begun += 1
        self._num_since += 1

    def told(self, before: Candidate, after: Candidate) -> None:
        """One has ended; that it was given an answer means that it will be scored."""
        spent = after.usage.tokens - before.usage.tokens
        self._thrift.told(spent, is_scored=after.key is not None)
