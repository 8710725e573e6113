"""The ledger: limits, reservations and spend, which never exceed a limit at any instant.

A call reserves its worst case before it runs and settles what it used afterwards. `launch`,
`settle` and `cancel` are plain functions of one event loop; only waiting for admission is
asynchronous, and who waits holds nothing.

Admission is in launch order. A call that fits beside the worst cases of all earlier ones starts at
once. One that does not fit waits; only when every earlier call has settled is it shrunk or refused.
So a grant is a function of what earlier calls used, never of timing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ttc.errors import BudgetExceeded
from ttc.types import Branch, Budget

__all__ = ["LOGICAL", "Account", "Division", "PromptTree", "Ticket", "shares"]

LOGICAL = ("tokens", "calls", "verifier_calls")
"""The resources that are reserved. Seconds are a deadline and are not reserved."""

_EVERYTHING = 2**62


class PromptTree:
    """Which prompt tokens of a problem have been paid for: each distinct one is paid once.

    Two prompts share what their tokens have in common from the start. What an engine generated is
    paid as output; a text that is appended to it is a prompt of its own.
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[int, str | int], int] = {}
        self._ends: dict[Branch, int] = {}
        self._places = itertools.count(1)

    def missing(self, branch: Branch) -> int:
        """Prompt tokens on the way to `branch` that nobody has paid for."""
        return self._walk(branch, add=False)

    def add(self, branch: Branch) -> int:
        """Marks every prompt token on the way to `branch` as paid; returns how many were not."""
        return self._walk(branch, add=True)

    def _walk(self, branch: Branch, *, add: bool) -> int:
        unpaid, place = 0, 0
        for segment in branch.lineage():
            if segment in self._ends:
                place = self._ends[segment]
                continue
            if segment.call is not None:
                place = next(self._places) if add else -1
            else:
                if segment.parent is None:
                    place, _ = self._follow(place, (segment.role,), add=add)
                place, fresh = self._follow(place, _tokens(segment), add=add)
                unpaid += fresh
            if add:
                self._ends[segment] = place
        return unpaid

    def _follow(self, place: int, steps: Sequence[str | int], *, add: bool) -> tuple[int, int]:
        fresh = 0
        for step in steps:
            following = self._edges.get((place, step), -1)
            if following < 0:
                fresh += 1
                if add:
                    following = self._edges[place, step] = next(self._places)
            place = following
        return place, fresh


def _tokens(segment: Branch) -> Sequence[int]:
    """A segment's tokens; where the engine has none, its bytes, which are at least as many."""
    return segment.text.encode() if segment.token_ids is None else segment.token_ids


class Ticket:
    """One reservation: launched in order, admitted or refused once, closed once."""

    def __init__(
        self,
        account: Account,
        path: str,
        *,
        need: Mapping[str, int],
        floor: Mapping[str, int] | None = None,
        prompt: tuple[PromptTree, Branch] | None = None,
    ) -> None:
        self.account = account
        self.path = path
        self.order = next(account.root.orders)
        self.state: Literal["waiting", "open", "closed"] = "waiting"
        self.granted: dict[str, int] = {}
        """What is reserved, by resource; the prompt is a part of its tokens."""
        self.prompt_tokens = 0
        """The part of the granted tokens that pays for the prompt."""
        self.shrunk_by: str | None = None
        """The resource whose limit left less than the worst case."""
        self._need, self._floor, self._prompt = need, need if floor is None else floor, prompt
        self._refusal: BudgetExceeded | None = None
        self._turn: asyncio.Future[None] | None = None

    async def admitted(self) -> None:
        """Waits for its turn.

        Raises:
            BudgetExceeded: even its floor does not fit beside what earlier calls used.
        """
        if self.state == "waiting":
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
        if self._refusal is not None:
            raise self._refusal
        if self.state == "closed":
            raise asyncio.CancelledError

    def settle(self, used: Mapping[str, int]) -> None:
        """Books what was used and gives the rest of the reservation back.

        Raises:
            ValueError: more was used than a limited resource had granted; nothing is booked.
        """
        for resource, amount in used.items():
            granted = self.granted.get(resource, 0)
            if amount > granted:
                raise ValueError(f"{self.path} used {amount} {resource} of {granted} granted")
        self.close(used)

    def cancel(self, refusal: BudgetExceeded | None = None) -> None:
        """Gives everything back; who waits for admission is refused, or cancelled with it."""
        if self.state != "closed":
            self._refusal = refusal
            self.close({})

    def touches(self, resource: str) -> bool:
        """Whether it holds, or waits for, some of a resource."""
        return self._need.get(resource, 0) > 0 or (
            resource == "tokens" and self._prompt is not None
        )

    def need(self) -> dict[str, int]:
        """Its worst case, with the prompt tokens that nobody has paid for yet."""
        return self._with_prompt(self._need)

    def floor(self) -> dict[str, int]:
        """The least that it can run with, likewise."""
        return self._with_prompt(self._floor)

    def open(self, grant: Mapping[str, int], shrunk_by: str | None) -> None:
        """Reserves `grant` on every ancestor and lets the call start."""
        if self._prompt is not None:
            tree, branch = self._prompt
            self.prompt_tokens = tree.add(branch)
        self.state, self.granted, self.shrunk_by = "open", dict(grant), shrunk_by
        for account in self.account.ancestry():
            for resource, amount in self.granted.items():
                account.reserved[resource] += amount
        self._wake()

    def give_back(self, resource: str, amount: int) -> None:
        """Gives a part of the reservation back before the end."""
        self.granted[resource] -= amount
        for account in self.account.ancestry():
            account.reserved[resource] -= amount
        self.account.root.advance()

    def close(self, used: Mapping[str, int]) -> None:
        """Turns the reservation into spend. Closing twice is harmless."""
        if self.state == "open":
            for account in self.account.ancestry():
                for resource, amount in self.granted.items():
                    account.reserved[resource] -= amount
                for resource, amount in used.items():
                    account.spent[resource] += amount
        if self.state != "closed":
            self.state = "closed"
            self._wake()
            self.account.root.forget(self)

    def _with_prompt(self, sizes: Mapping[str, int]) -> dict[str, int]:
        demand = dict(sizes)
        if self._prompt is not None:
            tree, branch = self._prompt
            demand["tokens"] = demand.get("tokens", 0) + tree.missing(branch)
        return demand

    def _wake(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class Account:
    """A scope of the budget. A reservation holds on it and on all its ancestors, or on none."""

    def __init__(self, limit: Budget, parent: Account | None = None) -> None:
        self.limit = limit
        self.parent = parent
        self.root: Account = parent.root if parent else self
        self.spent = dict.fromkeys(LOGICAL, 0)
        self.reserved = dict.fromkeys(LOGICAL, 0)
        self.orders = itertools.count()
        self.contended: set[str] = set()
        """Resources that nodes asked for in turns, so that launch order may depend on timing."""
        self._open: dict[Ticket, None] = {}  # in launch order; those that wait as well
        self._waiting: list[Ticket] = []
        self._askers: dict[str, list[tuple[Account, str]]] = {resource: [] for resource in LOGICAL}
        self._advancing = False

    def ancestry(self) -> Iterator[Account]:
        """This account and everything above it."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def room(self, resource: str) -> int | None:
        """What can still be reserved, here and above; `None` where nothing limits it."""
        rooms = [
            limit - account.spent[resource] - account.reserved[resource]
            for account in self.ancestry()
            if (limit := getattr(account.limit, resource)) is not None
        ]
        return min(rooms, default=None)

    def launch(
        self,
        path: str,
        *,
        need: Mapping[str, int],
        floor: Mapping[str, int] | None = None,
        prompt: tuple[PromptTree, Branch] | None = None,
    ) -> Ticket:
        """Takes the next place in launch order; the ticket opens at once if its worst case fits.

        Args:
            path: the node that asks.
            need: the worst case by resource, without the prompt.
            floor: the least that the call can run with; by default the worst case.
            prompt: a branch whose unpaid prompt tokens are reserved as well.
        """
        ticket = Ticket(self, path, need=need, floor=floor, prompt=prompt)
        self.root._enqueue(ticket)
        return ticket

    async def divide(
        self, path: str, parties: Sequence[frozenset[str]], beside: frozenset[str] = frozenset()
    ) -> Division:
        """Divides what remains among parties that run together, once all earlier calls have ended.

        Args:
            path: who divides.
            parties: for each party the resources that it can use. They get equal parts.
            beside: resources of which this account keeps a part, for those who work beside them.
        """
        limited = [resource for resource in LOGICAL if self.room(resource) is not None]
        ticket = self.launch(path, need=dict.fromkeys(limited, _EVERYTHING), floor={})
        await ticket.admitted()
        accounts = [Account(Budget()) for _ in parties]
        for resource, amount in list(ticket.granted.items()):
            weights = [int(resource in party) for party in (*parties, beside)]
            *parts, kept = shares(amount, weights)
            for account, part in zip(accounts, parts, strict=True):
                account.limit = replace(account.limit, **{resource: part})
            ticket.give_back(resource, kept if any(weights) else amount)
        return Division(ticket, accounts)

    def forget(self, ticket: Ticket) -> None:
        """Takes a closed ticket out of the queue and lets those behind it move up."""
        del self._open[ticket]
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        self.advance()

    def _enqueue(self, ticket: Ticket) -> None:
        self._open[ticket] = None
        self._waiting.append(ticket)
        asker = (ticket.account, ticket.path)
        for resource, askers in self._askers.items():
            if resource in self.contended or not ticket.touches(resource) or askers[-1:] == [asker]:
                continue
            if asker in askers:
                self.contended.add(resource)
            askers.append(asker)
        self.advance()

    def advance(self) -> None:
        """Opens, shrinks or refuses every waiting ticket whose turn has come."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._sweep():
                pass
        finally:
            self._advancing = False

    def _sweep(self) -> bool:
        awaited: set[tuple[Account, str]] = set()
        for ticket in self._waiting:
            family = list(ticket.account.ancestry())
            if any(
                (account, r) in awaited for account in family for r in LOGICAL if ticket.touches(r)
            ):
                decided = False
            else:
                decided = self._decide(ticket)
            if decided:
                return True
            awaited.update((account, r) for account in family for r in LOGICAL if ticket.touches(r))
        return False

    def _decide(self, ticket: Ticket) -> bool:
        need, room = ticket.need(), ticket.account.room
        short = {r: left for r, n in need.items() if (left := room(r)) is not None and n > left}
        if any(self._earlier(ticket, resource) for resource in short):
            return False
        self._waiting.remove(ticket)
        floor = ticket.floor()
        for resource, left in short.items():
            if floor.get(resource, 0) > left:
                limit = min(
                    limit
                    for account in ticket.account.ancestry()
                    if (limit := getattr(account.limit, resource)) is not None
                )
                ticket.cancel(
                    BudgetExceeded(resource, needed=floor[resource], remaining=left, limit=limit)
                )
                return True
        grant = {r: min(n, short.get(r, n)) for r, n in need.items()}
        ticket.open(grant, next(iter(short), None))
        return True

    def _earlier(self, ticket: Ticket, resource: str) -> bool:
        """Whether an earlier call may still give some of a resource back."""
        accounts = set(ticket.account.ancestry())
        for other in self._open:
            if other is ticket:
                return False
            if other.touches(resource) and accounts.intersection(other.account.ancestry()):
                return True
        return False


class Division:
    """Accounts that share what remained of their parent, until the last user has ended."""

    def __init__(self, ticket: Ticket, accounts: Sequence[Account]) -> None:
        self.accounts = tuple(accounts)
        self._ticket = ticket

    def reclaim(self) -> None:
        """Books on the parent what the parties spent, and gives back what they left."""
        spent = {r: sum(account.spent[r] for account in self.accounts) for r in LOGICAL}
        self._ticket.close(spent)


def shares(amount: int, weights: Sequence[int]) -> list[int]:
    """Divides a whole amount by weights; what rounding leaves goes to the first parties."""
    total = sum(weights)
    if total == 0:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    rest = amount - sum(parts)
    for place in [i for i, weight in enumerate(weights) if weight][:rest]:
        parts[place] += 1
    return parts
