"""Contention: whether the order in which calls were launched may owe something to timing.

It does where nodes draw on one resource side by side, or in turns. A limit that acts then may act
otherwise in a second run, which the outcome has to say. Part of the ledger, `ttc.budget`.

Cost: the same for each call, however many there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ttc.resources import RESERVED

if TYPE_CHECKING:
    from ttc.budget import Account, Ticket
    from ttc.launch_order import LaunchOrder

__all__ = ["Contention"]


class Contention:
    """Who has asked one ledger for what."""

    def __init__(self, beside: Contention | None = None) -> None:
        """Nobody has asked.

        Args:
            beside: that of the ledger of which this one divides a part with others.
        """
        self.resources: set[str] = beside.resources if beside else set()
        """Those that nodes drew on side by side, so that launch order may follow timing."""
        self.is_untouched = True
        """Whether nobody has ever asked for a token."""
        self._is_divided = beside is not None
        self._askers: dict[str, dict[tuple[Account, str], None]] = {r: {} for r in RESERVED}

    def enter(self, ticket: Ticket, lines: LaunchOrder) -> None:
        """Takes note of a call that is about to take its place in the lines."""
        asker = (ticket.account, ticket.path)
        for resource in ticket.resources:
            self.is_untouched = self.is_untouched and resource != "tokens"
            askers = self._askers[resource]
            if len(askers) == 1 and asker in askers:
                continue  # nobody else has ever asked
            last = lines.last(resource)
            beside_another = last is not None and (last.account, last.path) != asker
            in_turns = asker in askers and next(reversed(askers)) != asker
            if beside_another or in_turns:
                self.resources.add(resource)
            if in_turns or asker not in askers:
                askers.pop(asker, None)
                askers[asker] = None  # the last one asked last

    def forget(self, paths: Collection[str]) -> None:
        """Forgets what was, since no call is open and these nodes launch what comes next.

        Whatever they drew on side by side was there for all. It remembers where others have asked
        as well, or still may.

        Args:
            paths: of the nodes; their verifiers ask below them.
        """
        askers = {path for asked in self._askers.values() for _, path in asked}
        below = tuple(f"{path}/" for path in paths)
        if not self._is_divided and all(p in paths or p.startswith(below) for p in askers):
            self.resources.clear()
            self.release()

    def release(self) -> None:
        """Forgets who has asked."""
        for askers in self._askers.values():
            askers.clear()
