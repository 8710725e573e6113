"""What a scope tells: decisions and bids, and whether timing may have had a part in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ttc.budget import Account
from ttc.errors import BudgetExceeded
from ttc.ports import Bid
from ttc.readings import Readings
from ttc.run import Run

__all__ = ["Telling"]


class Telling(Readings):
    """The part of a node's scope that tells; see `ttc.ports.Scope`."""

    def __init__(self, run: Run, account: Account, path: str, *, aside: bool) -> None:
        super().__init__(run, account, path)
        self._aside = aside

    def decide(self, kind: str, *, physical: bool = False, end: bool = True, **detail: Any) -> None:
        """Records a decision; see `ttc.ports.Scope`."""
        if physical:
            self._run.timing[f"a rule on what is measured acted: {kind}"] = None
        if resource := detail.get("resource"):
            self._run.limit_acted(resource)
        self._run.record(self.path, rule=kind, **detail)
        if end and not self._aside:
            self._run.decided(self.path, kind)

    def note(self, **values: Any) -> None:
        """Tells whoever looks at the run; see `ttc.ports.Scope`."""
        self._run.journal.note(self.path, values)

    def contend(self, *resources: str) -> None:
        """Notes that timing may order the node's calls; see `ttc.ports.Scope`."""
        self._account.root.contention.resources.update(resources)

    def rest(self, *others: str) -> None:
        """Notes that no call is open of the node, nor of others; see `ttc.ports.Scope`."""
        self._account.rest((self.path, *others))

    def arrived(self, launched: int) -> None:
        """Records what a node took up next; see `ttc.ports.Scope`."""
        self._run.arrived(self.path, launched)

    def offer(self, bid: Callable[[], Bid]) -> None:
        """This problem's bid for the budget of a run over many; see `ttc.ports.Scope`."""
        if self._run.bidder is not None and not self._aside:
            gain, cost, confidence = bid()
            self._run.bidder.offer(gain=gain, cost=cost, confidence=confidence)

    def refused(self, refusal: BudgetExceeded) -> None:
        """Notes that a limit ended a stream."""
        self._run.limit_acted(refusal.resource)
        if not self._aside:
            self._run.refused(self.path, refusal)
