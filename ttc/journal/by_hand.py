"""What somebody changed of a run by hand, as its journal tells: limits, prices, cancellations.

Nothing tells at which moment such a change would come again, so a run that has ended with one
cannot be repeated. One that was killed goes on under what held when it was killed: with the changed
limits and prices from its start on, and without the calls that were cancelled. What had been
answered is taken as it was granted then; what nobody asks for any more is told as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttc.journal.engines import PATIENCE_S
from ttc.journal.values import price_of

if TYPE_CHECKING:
    from ttc.control import Control
    from ttc.ports import Clock
    from ttc.prices import Price

__all__ = ["ByHand", "changes_of"]

_TOLD = {
    "limit_changed": "the limit of {resource} was changed",
    "price_changed": "the price of {model} was changed",
    "call_cancelled": "{call} was cancelled",
    "run_cancelled": "the run was cancelled",
}


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """All changes of one run, the latest of each kind."""

    limits: Mapping[str, Any]
    """By resource."""
    prices: tuple[Price, ...]
    calls: frozenset[str]
    """Those that were cancelled, as `path#index`."""
    is_cancelled: bool
    """Whether the whole run was."""
    first: str
    """What was done first, in words."""
    num_records: int

    def repeat(self, control: Control, clock: Clock) -> None:
        """Makes the changes that hold from the start on; `control` has not begun.

        A run that was cancelled ends once what had been answered is there again.
        """
        for price in self.prices:
            control.set_price(price)
        if self.limits:
            control.set_budget(**self.limits)
        if self.is_cancelled:
            clock.call_later(PATIENCE_S, control.cancel)


def changes_of(records: Iterable[Mapping[str, Any]]) -> ByHand | None:
    """What was changed by hand, out of a journal's records; `None` where nothing was."""
    found = [
        record["detail"]
        for record in records
        if record["path"] == "" and record["detail"].get("rule") in _TOLD
    ]
    if not found:
        return None
    prices = {d["price"]["model"]: price_of(d["price"]) for d in found if "price" in d}
    return ByHand(
        limits={d["resource"]: d["limit"] for d in found if d["rule"] == "limit_changed"},
        prices=tuple(prices.values()),
        calls=frozenset(d["call"] for d in found if d["rule"] == "call_cancelled"),
        is_cancelled=any(d["rule"] == "run_cancelled" for d in found),
        first=_TOLD[found[0]["rule"]].format_map(found[0]),
        num_records=len(found),
    )
