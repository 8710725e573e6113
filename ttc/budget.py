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
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Literal

from ttc.errors import BudgetExceeded
from ttc.types import Branch, Budget

__all__ = ["LOGICAL", "MEASURED", "Account", "Division", "PromptTree", "Ticket", "shares"]

LOGICAL = ("tokens", "calls", "verifier_calls")
"""The resources that are reserved. Seconds are a deadline and are not reserved."""

MEASURED = ("kv_byte_seconds", "sandbox_seconds")
"""The resources that are known only afterwards; a limit on one acts when it is reached."""

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
        self.state: Literal["waiting", "open", "closed"] = "waiting"
        self.granted: dict[str, int] = {}
        """What is reserved, by resource; the prompt is a part of its tokens."""
        self.prompt_tokens = 0
        """The part of the granted tokens that pays for the prompt."""
        self.shrunk_by: str | None = None
        """The resource whose limit left less than the worst case."""
        self.resources = tuple(
            r for r in LOGICAL if need.get(r, 0) > 0 or (r == "tokens" and prompt is not None)
        )
        """What it may hold some of."""
        self.division: Division | None = None
        """What the reservation is divided into, where it is."""
        self._need, self._floor, self._prompt = need, need if floor is None else floor, prompt
        self._refusal: BudgetExceeded | None = None
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
            self.wake()
            self.account.root.forget(self)

    def wake(self) -> None:
        """Lets who waits look again."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _with_prompt(self, sizes: Mapping[str, int]) -> dict[str, int]:
        demand = dict(sizes)
        if self._prompt is not None:
            tree, branch = self._prompt
            demand["tokens"] = demand.get("tokens", 0) + tree.missing(branch)
        return demand


class _Lines:
    """Who is launched and not closed, and who of them waits, by resource, in launch order."""

    def __init__(self) -> None:
        self._live: dict[str, OrderedDict[Ticket, None]] = {r: OrderedDict() for r in LOGICAL}
        self._waiting: dict[str, OrderedDict[Ticket, None]] = {r: OrderedDict() for r in LOGICAL}

    def enter(self, ticket: Ticket) -> None:
        """Takes the last place."""
        for resource in ticket.resources:
            self._live[resource][ticket] = self._waiting[resource][ticket] = None

    def admit(self, ticket: Ticket) -> None:
        """It waits no longer."""
        for resource in ticket.resources:
            self._waiting[resource].pop(ticket, None)

    def leave(self, ticket: Ticket) -> None:
        """It has ended."""
        self.admit(ticket)
        for resource in ticket.resources:
            self._live[resource].pop(ticket, None)

    def heads(self) -> list[Ticket]:
        """Who waits, with nobody before it that waits for the same."""
        fronts = [next(iter(line)) for line in self._waiting.values() if line]
        return [ticket for ticket in dict.fromkeys(fronts) if self.is_head(ticket)]

    def is_head(self, ticket: Ticket) -> bool:
        """Whether nobody before it waits for the same."""
        return all(next(iter(self._waiting[r])) is ticket for r in ticket.resources)

    def before(self, ticket: Ticket, resource: str) -> Iterator[Ticket]:
        """Who may still give some of a resource back before it is a ticket's turn."""
        return takewhile(lambda other: other is not ticket, self._live[resource])

    def last(self, resource: str) -> Ticket | None:
        """The call that was launched last and has not ended."""
        return next((t for t in reversed(self._live[resource]) if t.division is None), None)

    def is_empty(self) -> bool:
        """Whether all have ended."""
        return not any(self._live.values())


class Account:
    """A scope of the budget. A reservation holds on it and on all its ancestors, or on none."""

    def __init__(self, limit: Budget, parent: Account | None = None) -> None:
        self.limit = limit
        self.parent = parent
        self.root: Account = parent.root if parent else self
        self.spent = dict.fromkeys(LOGICAL, 0)
        self.reserved = dict.fromkeys(LOGICAL, 0)
        self.contended: set[str] = set()
        """Resources that nodes drew on side by side, so that launch order may follow timing."""
        self._lines = _Lines()
        self._askers: dict[str, dict[tuple[Account, str], None]] = {r: {} for r in LOGICAL}

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

    @property
    def is_settled(self) -> bool:
        """Whether every ticket has been closed."""
        return self.root._lines.is_empty()

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has ever asked for a token."""
        return not self.root._askers["tokens"]

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
        self.root._enter(ticket)
        ticket.take_turn()
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
        try:
            await ticket.admitted()
        except BaseException:
            ticket.cancel()
            raise
        division = Division(ticket, [Account(Budget()) for _ in parties])
        for account in division.accounts:
            account.contended = self.root.contended
        for resource, amount in list(ticket.granted.items()):
            weights = [int(resource in party) for party in (*parties, beside)]
            *parts, kept = shares(amount, weights)
            for account, part in zip(division.accounts, parts, strict=True):
                account.limit = replace(account.limit, **{resource: part})
            ticket.give_back(resource, kept if any(weights) else amount)
        return division

    def forget(self, ticket: Ticket) -> None:
        """Takes a closed ticket out of the lines and lets those behind it move up."""
        self._lines.leave(ticket)
        self.advance()

    def _enter(self, ticket: Ticket) -> None:
        asker = (ticket.account, ticket.path)
        for resource in ticket.resources:
            askers, last = self._askers[resource], self._lines.last(resource)
            beside_another = last is not None and (last.account, last.path) != asker
            in_turns = asker in askers and next(reversed(askers)) != asker
            if beside_another or in_turns:
                self.contended.add(resource)
            askers.pop(asker, None)
            askers[asker] = None  # the last one asked last
        self._lines.enter(ticket)

    def advance(self) -> None:
        """Wakes those whose turn has come."""
        for ticket in self._lines.heads():
            if self._verdict(ticket) is not None:
                ticket.wake()

    def decide(self, ticket: Ticket) -> None:
        """Opens, shrinks or refuses a waiting ticket if its turn has come."""
        verdict = self._verdict(ticket) if self._lines.is_head(ticket) else None
        if isinstance(verdict, BudgetExceeded):
            ticket.cancel(verdict)
        elif verdict is not None:
            ticket.open(*verdict)
            self._lines.admit(ticket)
            self.advance()

    def _verdict(self, ticket: Ticket) -> tuple[dict[str, int], str | None] | BudgetExceeded | None:
        """A grant and what shrank it, a refusal, or `None` where earlier calls may still decide."""
        need, room = ticket.need(), ticket.account.room
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
                    if (limit := getattr(account.limit, resource)) is not None
                )
                return BudgetExceeded(resource, needed=floor[resource], remaining=left, limit=limit)
        return {r: min(n, short.get(r, n)) for r, n in need.items()}, next(iter(short), None)

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
        spent = {r: sum(account.spent[r] for account in self.accounts) for r in LOGICAL}
        self._ticket.close(spent)


def shares(amount: int, weights: Sequence[int]) -> list[int]:
    """Divides a whole amount by weights; what rounding leaves goes to the largest remainders."""
    total = sum(weights)
    if total == 0:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    by_remainder = sorted(range(len(parts)), key=lambda i: -(amount * weights[i] % total))
    for place in by_remainder[: amount - sum(parts)]:
        parts[place] += 1
    return parts
