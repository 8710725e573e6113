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
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ttc.contention import Contention
from ttc.division import Division
from ttc.errors import BudgetExceeded, Revoked, TTCError
from ttc.launch_order import LaunchOrder
from ttc.prompt_tree import PromptTree
from ttc.resources import LOGICAL, MEASURED, RESERVED, UNITS, in_units, shares
from ttc.types import Branch, Budget

__all__ = [
    "LOGICAL",
    "MEASURED",
    "RESERVED",
    "Account",
    "Division",
    "Gate",
    "Ticket",
    "in_units",
    "shares",
]

_EVERYTHING = 2**200
Sizes = Mapping[str, int]


class Ticket:
    """One reservation: launched in order, admitted or refused once, closed once."""

    __slots__ = (
        "_floor",
        "_need",
        "_price",
        "_priced",
        "_prompt",
        "_refusal",
        "_turn",
        "account",
        "division",
        "granted",
        "on_revoked",
        "path",
        "prompt_tokens",
        "resources",
        "shrunk_by",
        "state",
    )

    def __init__(
        self,
        account: Account,
        path: str,
        *,
        need: Sizes,
        floor: Sizes | None = None,
        prompt: tuple[PromptTree, *tuple[Branch, ...]] | None = None,
        price: Callable[[int], Sizes] | None = None,
    ) -> None:
        self.account = account
        self.path = path
        self.state: Literal["waiting", "open", "closed"] = "waiting"
        self.granted: dict[str, int] = {}
        """What is reserved, by resource; the prompt is a part of its tokens."""
        self.prompt_tokens = 0
        """The part of the granted tokens that pays for the prompt."""
        self.shrunk_by: str | None = None
        """The resource whose limit left less than the worst case."""
        self.division: Division | None = None
        """What the reservation is divided into, where it is."""
        self.on_revoked: Callable[[Revoked], None] | None = None
        """What ends its call, where a limit was lowered below what is reserved; else `cancel`."""
        self._need, self._floor = need, need if floor is None else floor
        self._prompt, self._price = prompt, price
        self._priced = {} if price is None else price(need["tokens"])
        holds = [r for r, n in need.items() if n > 0] + [
            r for r, n in self._priced.items() if n > 0
        ]
        if prompt and "tokens" not in holds:
            holds.append("tokens")
        self.resources = tuple(holds)
        """What it may hold some of."""
        self._refusal: TTCError | None = None
        self._turn: asyncio.Future[None] | None = None

    async def admitted(self) -> None:
        """Waits for its turn. It opens in the very step in which the caller goes on.

        Raises:
            BudgetExceeded: even its floor does not fit beside what earlier calls used.
        """
        while self.state == "waiting":
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn
            self.take_turn()
        if self._refusal is not None:
            raise self._refusal
        if self.state == "closed":
            raise asyncio.CancelledError

    def take_turn(self) -> None:
        """Opens, shrinks or is refused, if its turn has come; else it goes on waiting."""
        if self.state == "waiting":
            self.account.root.decide(self)

    def settle(self, used: Sizes) -> None:
        """Books what was used and gives the rest of the reservation back.

        Raises:
            ValueError: more was used than a limited resource had granted; nothing is booked.
        """
        for resource, amount in used.items():
            granted = self.granted.get(resource, 0)
            if amount > granted:
                raise ValueError(f"{self.path} used {amount} {resource} of {granted} granted")
        self.close(used)

    def cancel(self, reason: TTCError | None = None) -> None:
        """Gives everything back; who waits for admission is given the reason, or cancelled."""
        if self.state != "closed":
            self._refusal = reason
            self.close({})

    def need(self) -> dict[str, int]:
        """Its worst case, with the prompt tokens that nobody has paid for yet."""
        return self._whole(self._need, self._priced)

    def floor(self) -> dict[str, int]:
        """The least that it can run with, likewise."""
        return self._whole(self._floor, self._price_of(self._floor))

    def fitting(self, room: Sizes) -> dict[str, int]:
        """The largest demand that fits into `room`, where its floor does."""
        most = dict(self._need)
        for resource in most.keys() & room.keys():
            most[resource] = min(most[resource], room[resource])
        if "tokens" in room:
            most["tokens"] = min(self._need["tokens"], room["tokens"] - self._missing())
        if self._price is not None:
            price, least = self._price, self._floor["tokens"]

            def is_too_dear(tokens: int) -> bool:
                return any(n > room.get(resource, n) for resource, n in price(tokens).items())

            sizes = range(least + 1, most["tokens"] + 1)
            most["tokens"] = least + bisect_left(sizes, True, key=is_too_dear)
        return self._whole(most, self._price_of(most))

    def open(self, grant: dict[str, int], shrunk_by: str | None) -> None:
        """Reserves `grant` on every ancestor and lets the call start."""
        if self._prompt is not None:
            tree, *branches = self._prompt
            self.prompt_tokens = tree.add(*branches)
        self._need = self._floor = self._priced = {}  # what it was decided by: thousands are open
        self._prompt = self._price = None
        self.state, self.granted, self.shrunk_by = "open", grant, shrunk_by
        account: Account | None = self.account
        while account is not None:
            reserved, account = account.reserved, account.parent
            for resource, amount in grant.items():
                reserved[resource] += amount

    def take(self, resource: str, amount: int) -> None:
        """Reserves what it needs of a resource that had no limit when it opened."""
        self.granted[resource] = amount
        self.resources = (*self.resources, resource)
        for account in self.account.ancestry():
            account.reserved[resource] += amount
        self.account.root.enter(self, resource)

    def give_back(self, resource: str, amount: int) -> None:
        """Gives a part of the reservation back before the end."""
        self.granted[resource] -= amount
        for account in self.account.ancestry():
            account.reserved[resource] -= amount
        self.account.root.advance()

    def close(self, used: Sizes) -> None:
        """Turns the reservation into spend. Closing twice is harmless."""
        account: Account | None = self.account if self.state == "open" else None
        while account is not None:
            spent, reserved, account = account.spent, account.reserved, account.parent
            for resource, amount in self.granted.items():
                reserved[resource] -= amount
            for resource, amount in used.items():
                spent[resource] += amount
        if self.state != "closed":
            self.state = "closed"
            self.on_revoked = None
            self.wake()
            self.account.root.forget(self)

    def wake(self) -> None:
        """Lets who waits look again."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _price_of(self, sizes: Sizes) -> Sizes:
        return {} if self._price is None else self._price(sizes["tokens"])

    def _whole(self, sizes: Sizes, priced: Sizes) -> dict[str, int]:
        demand = {**sizes, **priced}
        if self._prompt is not None:
            demand["tokens"] = demand.get("tokens", 0) + self._missing()
        return demand

    def _missing(self) -> int:
        if self._prompt is None:
            return 0
        tree, *branches = self._prompt
        return tree.missing(*branches)


class Gate:
    """Holds back every call that has not started, in all accounts of a run."""

    def __init__(self) -> None:
        self.is_closed = False
        self._behind: dict[Account, None] = {}

    def hold(self, is_held: bool) -> None:
        """Closes it, or opens it and lets those behind it look again."""
        self.is_closed = is_held
        if not is_held:
            behind, self._behind = self._behind, {}
            for account in behind:
                account.advance()

    def stops(self, account: Account) -> bool:
        """Whether an account's calls have to wait."""
        if self.is_closed:
            self._behind[account] = None
        return self.is_closed


class Account:
    """A scope of the budget. A reservation holds on it and on all its ancestors, or on none."""

    def __init__(self, limit: Budget, parent: Account | None = None) -> None:
        self.limit = limit
        self.parent = parent
        self._root = parent.root if parent else None
        self.spent = dict.fromkeys(RESERVED, 0)
        """By resource; dollars in trillionths, so that nothing is ever rounded."""
        self.reserved = dict.fromkeys(RESERVED, 0)
        self.gate: Gate = parent.gate if parent else Gate()
        """What a pause closes; one for a whole run."""
        self.contention = Contention()
        """Whether launch order may follow timing; for the top account."""
        self.divisions: dict[Division, None] = {}
        """Those that have not ended, in all accounts of its tree; for the top account."""
        self._lines = LaunchOrder()

    @property
    def root(self) -> Account:
        """The top account of its tree."""
        return self._root or self

    @property
    def limit(self) -> Budget:
        """What may be spent; it may change while calls are open."""
        return self._limit

    @limit.setter
    def limit(self, limit: Budget) -> None:
        self._limit = limit
        self._limits = {
            r: round(amount * UNITS.get(r, 1))
            for r in RESERVED
            if (amount := getattr(limit, r)) is not None
        }

    def ancestry(self) -> Iterator[Account]:
        """This account and everything above it."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def room(self, resource: str) -> int | None:
        """What can still be reserved, here and above; `None` where nothing limits it."""
        least: int | None = None
        account: Account | None = self
        while account is not None:
            limit = account._limits.get(resource)
            if limit is not None:
                room = limit - account.spent[resource] - account.reserved[resource]
                least = room if least is None else min(least, room)
            account = account.parent
        return least

    def holds(self, need: Sizes) -> bool:
        """Whether so much can still be reserved, here and above."""
        account: Account | None = self
        while account is not None:
            limits, spent, reserved = account._limits, account.spent, account.reserved
            for resource, amount in need.items():
                if resource in limits and (
                    spent[resource] + reserved[resource] + amount > limits[resource]
                ):
                    return False
            account = account.parent
        return True

    @property
    def remaining(self) -> dict[str, Any]:
        """What can still be reserved of each resource, in the units of a budget."""
        rooms = {resource: self.room(resource) for resource in RESERVED}
        return {r: None if n is None else in_units(r, max(0, n)) for r, n in rooms.items()}

    @property
    def is_settled(self) -> bool:
        """Whether every ticket has been closed."""
        return self.root._lines.is_empty()

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has ever asked for a token."""
        return self.root.contention.is_untouched

    def launch(
        self,
        path: str,
        *,
        need: Sizes,
        floor: Sizes | None = None,
        prompt: tuple[PromptTree, *tuple[Branch, ...]] | None = None,
        price: Callable[[int], Sizes] | None = None,
    ) -> Ticket:
        """Takes the next place in launch order; the ticket opens at once if its worst case fits.

        Args:
            path: the node that asks.
            need: the worst case by resource, without the prompt.
            floor: the least that the call can run with; by default the worst case.
            prompt: branches whose unpaid prompt tokens are reserved as well.
            price: what else so many tokens of `need` cost at worst; more tokens never cost less.
        """
        ticket = Ticket(self, path, need=need, floor=floor, prompt=prompt, price=price)
        self.root._enter(ticket)
        ticket.take_turn()
        return ticket

    async def divide(
        self, path: str, parties: Sequence[frozenset[str]], beside: frozenset[str] = frozenset()
    ) -> Division:
        """Divides what remains among parties that run together, once all earlier calls have ended.

        Args:
            path: who divides.
            parties: for each party the logical resources that it can use. They get equal parts,
                and of what engine calls cost, too, where they use any.
            beside: resources of which this account keeps a part, for those who work beside them.
        """
        limited = [resource for resource in RESERVED if self.room(resource) is not None]
        ticket = self.launch(path, need=dict.fromkeys(limited, _EVERYTHING), floor={})
        try:
            await ticket.admitted()
        except BaseException:
            ticket.cancel()
            raise
        division = Division(ticket, [Account(Budget()) for _ in parties])
        self.root.divisions[division] = None
        for account in division.accounts:
            account.contention = Contention(self.root.contention)
            account.gate = self.root.gate
        for resource, amount in list(ticket.granted.items()):
            spender = resource if resource in LOGICAL else "calls"
            weights = [int(spender in party) for party in (*parties, beside)]
            *parts, kept = shares(amount, weights)
            for account, part in zip(division.accounts, parts, strict=True):
                own: dict[str, Any] = {resource: in_units(resource, part)}
                account.limit = replace(account.limit, **own)
            ticket.give_back(resource, kept if any(weights) else amount)
        return division

    def wind_down(self) -> None:
        """Ends calls until no more is reserved than its limit allows, the newest first.

        For the top account of its tree. What a call has spent when it is ended stays spent.
        """
        for resource, limit in self._limits.items():
            for division in self.divisions:
                division.hold(resource)
            for ticket in self._lines.newest_first(resource):
                over = self.spent[resource] + self.reserved[resource] - limit
                if over <= 0:
                    break
                if ticket.division is not None:
                    ticket.division.lower(resource, min(over, ticket.granted[resource]))
                    continue
                end = ticket.on_revoked or ticket.cancel
                end(Revoked(resource, limit=in_units(resource, limit)))
        self.advance()

    def enter(self, ticket: Ticket, resource: str) -> None:
        """Gives an open ticket a place in the line of one more resource."""
        self._lines.hold(ticket, resource)

    def release(self) -> None:
        """Forgets who has asked, once nobody will any more."""
        self.contention.release()

    def rest(self, paths: Collection[str]) -> None:
        """These nodes have no call open; if nobody has, what they do next owes timing nothing."""
        if self.is_settled:
            self.root.contention.forget(paths)

    def forget(self, ticket: Ticket) -> None:
        """Takes a closed ticket out of the lines and lets those behind it move up."""
        self._lines.leave(ticket)
        self.advance()

    def _enter(self, ticket: Ticket) -> None:
        self.contention.enter(ticket, self._lines)
        self._lines.enter(ticket)

    def advance(self) -> None:
        """Wakes those whose turn has come."""
        if self.gate.stops(self):
            return
        for ticket in self._lines.heads():
            if self._verdict(ticket) is not None:
                ticket.wake()

    def decide(self, ticket: Ticket) -> None:
        """Opens, shrinks or refuses a waiting ticket if its turn has come."""
        may_start = not self.gate.stops(self) and self._lines.is_head(ticket)
        verdict = self._verdict(ticket) if may_start else None
        if verdict is None:
            self._lines.wait(ticket)
        elif isinstance(verdict, BudgetExceeded):
            ticket.cancel(verdict)
        else:
            ticket.open(*verdict)
            if self._lines.admit(ticket):
                self.advance()

    def _verdict(self, ticket: Ticket) -> tuple[dict[str, int], str | None] | BudgetExceeded | None:
        """A grant and what shrank it, a refusal, or `None` where earlier calls may still decide."""
        need, room = ticket.need(), ticket.account.room
        if ticket.account.holds(need):
            return need, None
        short = {r: left for r, n in need.items() if (left := room(r)) is not None and n > left}
        waits = [self._waits_for_others(ticket, resource) for resource in short]
        if any(waits):
            return None
        floor = ticket.floor()
        for resource, left in short.items():
            if floor.get(resource, 0) > left:
                limit = min(
                    limit
                    for account in ticket.account.ancestry()
                    if (limit := account._limits.get(resource)) is not None
                )
                sizes = (in_units(resource, n) for n in (floor[resource], max(0, left), limit))
                needed, remaining, limited = sizes
                return BudgetExceeded(resource, needed=needed, remaining=remaining, limit=limited)
        return ticket.fitting(short), next(iter(short))

    def _waits_for_others(self, ticket: Ticket, resource: str) -> bool:
        """Whether earlier calls may still give some of a resource back.

        Where nothing but divisions may, their parties are asked to go on by themselves: whoever
        reads them may be the one who waits here.
        """
        divisions = []
        for other in self._lines.before(ticket, resource):
            if other.division is None:
                return True
            if other.granted.get(resource, 0) > 0:
                divisions.append(other.division)
        for division in divisions:
            division.hurry()
        return bool(divisions)
