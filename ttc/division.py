"""Division: accounts that share what remained of their parent, while they run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttc.resources import RESERVED, in_units, shares

if TYPE_CHECKING:
    from ttc.budget import Account, Ticket

__all__ = ["Division"]


class Division:
    """Accounts that share what remained of their parent, until the last party has ended."""

    def __init__(self, ticket: Ticket, accounts: Sequence[Account]) -> None:
        self.accounts = tuple(accounts)
        self._ticket = ticket
        self._hurried = False
        self._on_hurry: Callable[[], None] = lambda: None
        ticket.division = self

    def hurry(self) -> None:
        """Asks the parties to go on by themselves: somebody waits for what they leave."""
        self._hurried = True
        self._on_hurry()

    def when_hurried(self, callback: Callable[[], None]) -> None:
        """Says how the parties are asked to go on; they are at once if somebody waits already."""
        self._on_hurry = callback
        if self._hurried:
            callback()

    def reclaim(self) -> None:
        """Books on the parent what the parties spent, and gives back what they left."""
        spent = {r: sum(account.spent[r] for account in self.accounts) for r in RESERVED}
        self._ticket.account.root.divisions.pop(self, None)
        self._ticket.close(spent)

    def used(self, resource: str) -> list[int]:
        """What each party has spent and reserved, those divided further included."""
        return [
            account.spent[resource]
            + account.reserved[resource]
            + sum(
                sum(inner.used(resource))
                for inner in account.divisions
                if resource not in inner.holds
            )
            for account in self.accounts
        ]

    @property
    def holds(self) -> frozenset[str]:
        """The resources of which it holds some, since they had a limit when they were divided."""
        return frozenset(self._ticket.granted)

    def hold(self, resource: str) -> None:
        """Divides what remains of a resource that has got a limit since its parties began."""
        if resource in self.holds:
            return
        used, room = self.used(resource), self._ticket.account.room(resource) or 0
        extra = shares(max(0, room - sum(used)), [1] * len(used))
        parts = [own + more for own, more in zip(used, extra, strict=True)]
        self._ticket.take(resource, sum(parts))
        for account, part in zip(self.accounts, parts, strict=True):
            self._limit(account, resource, part)

    @staticmethod
    def _limit(account: Account, resource: str, amount: int) -> None:
        own: dict[str, Any] = {resource: in_units(resource, amount)}
        account.limit = replace(account.limit, **own)
        account.wind_down()

    def lower(self, resource: str, amount: int) -> None:
        """Takes some of what it holds away from its parties, in equal parts; spent is spent."""
        granted, kept = self._ticket.granted[resource], 0
        left = max(0, granted - amount - sum(a.spent[resource] for a in self.accounts))
        weights = [int(bool(getattr(a.limit, resource))) for a in self.accounts]
        for account, part in zip(self.accounts, shares(left, weights), strict=True):
            limit = account.spent[resource] + part
            self._limit(account, resource, limit)
            kept += max(limit, account.spent[resource] + account.reserved[resource])
        self._ticket.give_back(resource, max(0, granted - kept))
