"""What keys and the server may spend: each request reserves its whole limit before it starts.

A reservation holds for its key and for the server, or for neither. At the end what was used is
spent, and the rest comes back. Inside a request only its own ledger binds, so no result depends on
other requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttc.budget import Account, Ticket
from ttc.resources import RESERVED, UNITS, in_units
from ttc.safe_text import safe_logger
from ttc.serve.keys import Key
from ttc.serve.refusal import Refusal
from ttc.serve.settings import Settings
from ttc.types import Budget, Usage

__all__ = ["Ledger", "Reservation", "ledger_sizes"]

_log = safe_logger(__name__)
_RETRY_S = 1


class Ledger:
    """The accounts of a server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.server = Account(settings.budget)
        self._keys: dict[str, Account] = {}

    def account(self, key: Key) -> Account:
        """A key's account."""
        if key.name not in self._keys:
            limit = self._settings.key_budget if key.budget is None else key.budget
            self._keys[key.name] = Account(limit, self.server)
        return self._keys[key.name]

    def reserve(self, key: Key, most: Mapping[str, int]) -> Reservation:
        """Reserves the most that a request can use.

        Args:
            key: who asks.
            most: by resource, in the ledger's whole numbers.

        Raises:
            Refusal: it does not fit.
        """
        account = self.account(key)
        if not account.holds(most):
            raise _short(account, most)
        return Reservation(account.launch(key.name, need=most))


class Reservation:
    """What one request has reserved."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def settle(self, usage: Usage) -> None:
        """Books what was used; what is unknown, as if all had been. Settling twice is harmless."""
        if self._ticket.state == "closed":
            return
        granted = self._ticket.granted
        used = {r: _used(usage, r, most) for r, most in granted.items()}
        over = {r: n for r, n in used.items() if n > granted[r]}
        if over:  # a bound that does not hold is a fault of ours; what was spent is booked
            _log.error("a request used more than it had reserved: %s of %s", over, granted)
        self._ticket.close(used)


def ledger_sizes(budget: Budget) -> dict[str, int]:
    """The limits of a budget that can be reserved, in the ledger's whole numbers."""
    return {
        r: round(limit * UNITS.get(r, 1))
        for r in RESERVED
        if (limit := getattr(budget, r)) is not None
    }


def _used(usage: Usage, resource: str, granted: int) -> int:
    used: Any = getattr(usage, resource)
    return granted if used is None else round(used * UNITS.get(resource, 1))


def _short(account: Account, most: Mapping[str, int]) -> Refusal:
    """Why a reservation does not fit: for good, or beside those that others hold now."""
    for owner in account.ancestry():
        for resource, need in most.items():
            limit = getattr(owner.limit, resource)
            if limit is None:
                continue
            left = round(limit * UNITS.get(resource, 1)) - owner.spent[resource]
            if need > left:
                whose = "server" if owner.parent is None else "key"
                shown = f"{in_units(resource, max(0, left)):g} of {limit:g} {resource}"
                return Refusal(
                    429,
                    f"the budget of this {whose} has {shown} left, and the request may need "
                    f"{in_units(resource, need):g}; ask for less by ttc.budget",
                    code="insufficient_quota",
                    headers={"x-should-retry": "false"},
                )
    return Refusal(
        429,
        "requests that run now have reserved what is left of the budget; try again",
        code="budget_reserved",
        headers={"Retry-After": str(_RETRY_S)},
    )
