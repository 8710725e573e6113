"""Launch order: who was launched and has not ended, and who of them waits for admission.

It knows nothing of limits. Part of the ledger, `ttc.budget`.

Cost: the same for each ticket, however many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from ttc.resources import RESERVED

if TYPE_CHECKING:
    from ttc.budget import Ticket

__all__ = ["LaunchOrder"]


class LaunchOrder:
    """Who is launched and not closed, and who of them waits, by resource, in launch order."""

    def __init__(self) -> None:
        self._live: dict[str, OrderedDict[Ticket, None]] = {r: OrderedDict() for r in RESERVED}
        self._waiting: dict[str, OrderedDict[Ticket, None]] = {r: OrderedDict() for r in RESERVED}
        self._all_waiting: set[Ticket] = set()

    def enter(self, ticket: Ticket) -> None:
        """Takes the last place."""
        for resource in ticket.resources:
            self._live[resource][ticket] = None

    def wait(self, ticket: Ticket) -> None:
        """It was not its turn when it entered; a ticket that waits already keeps its place."""
        self._all_waiting.add(ticket)
        for resource in ticket.resources:
            self._waiting[resource][ticket] = None

    def hold(self, ticket: Ticket, resource: str) -> None:
        """It holds some of one more resource."""
        self._live[resource][ticket] = None

    def admit(self, ticket: Ticket) -> bool:
        """It waits no longer; says whether it has waited."""
        if ticket not in self._all_waiting:
            return False
        self._all_waiting.discard(ticket)
        for resource in ticket.resources:
            self._waiting[resource].pop(ticket, None)
        return True

    def leave(self, ticket: Ticket) -> None:
        """It has ended."""
        self.admit(ticket)
        for resource in ticket.resources:
            self._live[resource].pop(ticket, None)

    def heads(self) -> list[Ticket]:
        """Who waits, with nobody before it that waits for the same."""
        if not self._all_waiting:
            return []
        fronts = [next(iter(line)) for line in self._waiting.values() if line]
        return [ticket for ticket in dict.fromkeys(fronts) if self.is_head(ticket)]

    def is_head(self, ticket: Ticket) -> bool:
        """Whether nobody before it waits for the same."""
        if not self._all_waiting:
            return True
        lines = (self._waiting[resource] for resource in ticket.resources)
        return all(not line or next(iter(line)) is ticket for line in lines)

    def before(self, ticket: Ticket, resource: str) -> Iterator[Ticket]:
        """Who may still give some of a resource back before it is a ticket's turn."""
        return takewhile(lambda other: other is not ticket, self._live[resource])

    def newest_first(self, resource: str) -> list[Ticket]:
        """Everyone that holds some of a resource."""
        return [t for t in reversed(self._live[resource]) if t.granted.get(resource, 0) > 0]

    def last(self, resource: str) -> Ticket | None:
        """The call that was launched last and has not ended."""
        for ticket in reversed(self._live[resource]):
            if ticket.division is None:
                return ticket
        return None

    def is_empty(self) -> bool:
        """Whether all have ended."""
        return not any(self._live.values())
