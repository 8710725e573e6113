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
        self._ticket.close(spent)

    def lower(self, resource: str, amount: int) -> None:
        """Takes some of what it holds away from its parties, in equal parts; spent is spent."""
        granted, kept = self._ticket.granted[resource], 0
        left = max(0, granted - amount - sum(a.spent[resource] for a in self.accounts))
        weights = [int(bool(getattr(a.limit, resource))) for a in self.accounts]
        for account, part in zip(self.accounts, shares(left, weights), strict=True):
            limit = account.spent[resource] + part
            own: dict[str, Any] = {resource: in_units(resource, limit)}
            account.limit = replace(account.limit, **own)
            account.wind_down()
            kept += max(limit, account.spent[resource] + account.reserved[resource])
        self._ticket.give_back(resource, max(0, granted - kept))
