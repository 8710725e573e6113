"""The ledger under any interleaving: never overdrawn, all ancestors or none, fair to order."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc import Budget, BudgetExceeded
from ttc.budget import LOGICAL, RESERVED, Account, Division, Ticket, shares
from ttc.prompt_tree import PromptTree
from ttc.resources import UNITS
from ttc.types import Branch

LIMITS = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 60),
    calls=st.none() | st.integers(0, 6),
    verifier_calls=st.none() | st.integers(0, 6),
    flops=st.none() | st.integers(0, 400),
    cost_usd=st.none() | st.integers(0, 300).map(lambda parts: parts / 10**12),
)


class Ledger:
    """A tree of accounts that does one random thing after another, and is checked after each."""

    def __init__(self, limits: Sequence[Budget], seed: int) -> None:
        self.random = Random(seed)
        self.accounts = [Account(limits[0])]
        for limit in limits[1:]:
            self.accounts.append(Account(limit, self.random.choice(self.accounts)))
        self.tickets: list[Ticket] = []
        self.divisions: list[Division] = []
        self.trees = {account.root: PromptTree() for account in self.accounts}

    def launch(self) -> None:
        account = self.random.choice(self.accounts)
        most = {"tokens": 25, "calls": 2, "verifier_calls": 3}
        need = {r: self.random.randint(0, n) for r, n in most.items() if self.random.random() < 0.7}
        floor = {r: self.random.randint(0, n) for r, n in need.items()}
        prompt = None
        if self.random.random() < 0.3:
            ids = tuple(self.random.choices((1, 2), k=self.random.randint(0, 6)))
            prompt = (self.trees[account.root], Branch(text="", token_ids=ids))
        path, price = self.random.choice("abc"), None
        if "tokens" in need and self.random.random() < 0.5:
            price = partial(self.price, self.random.randint(0, 9), self.random.randint(0, 50))
        ticket = account.launch(path, need=need, floor=floor, prompt=prompt, price=price)
        self.tickets.append(ticket)

    @staticmethod
    def price(each: int, once: int, tokens: int) -> dict[str, int]:
        return {"flops": tokens * tokens, "cost_usd": once + each * tokens}

    def take_turn(self) -> None:
        for ticket in self.tickets:
            ticket.take_turn()

    def settle(self) -> None:
        if opened := [ticket for ticket in self.tickets if ticket.state == "open"]:
            ticket = self.random.choice(opened)
            ticket.settle({r: self.random.randint(0, n) for r, n in ticket.granted.items()})

    def overdraw(self) -> None:
        if opened := [ticket for ticket in self.tickets if ticket.state == "open"]:
            ticket = self.random.choice(opened)
            with pytest.raises(ValueError, match="granted"):
                ticket.settle({"tokens": ticket.granted.get("tokens", 0) + 1})

    def cancel(self) -> None:
        if self.tickets:
            self.random.choice(self.tickets).cancel()

    def divide(self) -> None:
        """As `Account.divide` does, for as long as nobody has to wait for it."""
        account = self.random.choice(self.accounts)
        parties = [
            frozenset(r for r in LOGICAL if self.random.random() < 0.6)
            for _ in range(self.random.randint(1, 3))
        ]
        coroutine = account.divide("d", parties, frozenset({"tokens"}))
        try:
            coroutine.send(None)
        except StopIteration as done:
            self.divisions.append(done.value)
            self.trees |= {party: PromptTree() for party in done.value.accounts}
            self.accounts += done.value.accounts
        except RuntimeError:  # it would have to wait, and there is no event loop here
            pass
        finally:
            coroutine.close()

    def lower(self) -> None:
        """Changes a limit: what was spent until then stays spent, and nothing more is held."""
        account = self.random.choice([account for account in self.accounts if not account.parent])
        before = {resource: self.spent(account, resource) for resource in LOGICAL}
        limits = {r: self.random.choice([None, 0, 3, 9, 25, 60]) for r in LOGICAL}
        account.limit = Budget(**limits)
        account.wind_down()
        for resource, limit in limits.items():
            used = account.spent[resource] + account.reserved[resource]
            assert limit is None or used <= max(limit, before[resource])
        kept = {r: None if n is None else max(n, before[r]) for r, n in limits.items()}
        account.limit = Budget(**kept)

    def spent(self, account: Account, resource: str) -> int:
        """What an account has spent, with what its divisions will book on it in the end."""
        return account.spent[resource] + sum(
            self.spent(party, resource)
            for division in self.divisions
            if division._ticket.account.root is account
            for party in division.accounts
        )

    def reclaim(self) -> None:
        if self.divisions:
            division = self.divisions.pop()
            for ticket in self.tickets:
                if ticket.account in division.accounts:
                    ticket.cancel()
            self.accounts = [a for a in self.accounts if a not in division.accounts]
            division.reclaim()

    def check(self) -> None:
        for account in self.accounts:
            for resource in RESERVED:
                limit = getattr(account.limit, resource)
                used = account.spent[resource] + account.reserved[resource]
                assert account.reserved[resource] >= 0
                assert limit is None or used <= round(limit * UNITS.get(resource, 1))
        for account in self.accounts:
            for resource in RESERVED:
                if account.parent is not None:
                    assert account.parent.reserved[resource] >= account.reserved[resource]
                    assert account.parent.spent[resource] >= account.spent[resource]

    def end(self) -> None:
        while self.divisions:
            self.reclaim()
        for ticket in self.tickets:
            ticket.cancel()
        for account in self.accounts:
            assert account.reserved == dict.fromkeys(RESERVED, 0)
            assert account.is_settled


STEPS = (
    "launch",
    "launch",
    "take_turn",
    "settle",
    "overdraw",
    "cancel",
    "divide",
    "lower",
    "reclaim",
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(LIMITS, min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.lists(st.sampled_from(STEPS), max_size=60),
)
def test_no_account_is_ever_overdrawn(limits: list[Budget], seed: int, steps: list[str]) -> None:
    """Spent and reserved stay within every limit after every step, on all ancestors or on none."""
    ledger = Ledger(limits, seed)
    for step in steps:
        getattr(ledger, step)()
        ledger.check()
    ledger.end()


def grants(limit: int, calls: Sequence[tuple[int, int, int]], order: Sequence[int]) -> list[object]:
    """What calls of (need, floor, used) are granted if they settle in a given order."""
    account = Account(Budget(tokens=limit))
    tickets = [account.launch("a", need={"tokens": n}, floor={"tokens": f}) for n, f, _ in calls]
    while any(ticket.state != "closed" for ticket in tickets):
        for ticket in tickets:
            ticket.take_turn()
        for place in order:
            if tickets[place].state == "open":
                used = min(calls[place][2], tickets[place].granted["tokens"])
                tickets[place].settle({"tokens": used})
                break
    return [ticket.granted.get("tokens") for ticket in tickets]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(0, 40)), max_size=5),
)
def test_grants_do_not_depend_on_the_order_of_settling(
    limit: int, calls: list[tuple[int, int, int]]
) -> None:
    """They are a function of what earlier calls used."""
    calls = [(need, min(need, floor), used) for need, floor, used in calls]
    orders = list(permutations(range(len(calls))))

    assert len({tuple(map(str, grants(limit, calls, order))) for order in orders}) <= 1


@given(st.integers(0, 100), st.lists(st.integers(0, 30), max_size=6))
def test_a_call_is_granted_what_one_after_the_other_would_be(limit: int, uses: list[int]) -> None:
    """The reference: each call launched only once the one before has settled."""
    calls = [(30, 5, used) for used in uses]
    left, expected = limit, []
    for _, floor, used in calls:
        granted = min(30, left)
        expected.append(granted if granted >= floor else None)
        left -= min(used, granted) if granted >= floor else 0

    assert grants(limit, calls, range(len(calls))) == expected


@given(st.integers(0, 1000), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_shares_are_whole_fair_and_complete(amount: int, weights: list[int]) -> None:
    """They sum up to the amount and differ from the exact part by less than one."""
    parts = shares(amount, weights)
    total = sum(weights)

    assert sum(parts) == (amount if total else 0)
    for part, weight in zip(parts, weights, strict=True):
        exact = amount * weight / total if total else 0
        assert math.floor(exact) <= part <= math.ceil(exact)
        assert weight or not part


TOKENS = st.lists(st.integers(1, 2), max_size=5).map(tuple)


@given(st.lists(st.tuples(TOKENS, TOKENS, st.booleans()), max_size=8))
def test_every_distinct_prompt_token_is_paid_once(
    prompts: list[tuple[tuple[int, ...], tuple[int, ...], bool]],
) -> None:
    """Against a set of all prefixes; what a call generated separates what is appended to it."""
    tree, paid = PromptTree(), 0
    prefixes: set[tuple[object, ...]] = set()
    for number, (first, second, is_generated) in enumerate(prompts):
        branch = Branch(text="", token_ids=first)
        keys: list[tuple[object, ...]] = [("", *first[: i + 1]) for i in range(len(first))]
        middle: tuple[object, ...] = ("", *first)
        if is_generated:
            branch = Branch(parent=branch, text="", token_ids=(7, 7), call=f"c#{number}")
            middle = ("call", number)
        branch = Branch(parent=branch, text="", token_ids=second)
        keys += [(*middle, *second[: i + 1]) for i in range(len(second))]
        before = len(prefixes)
        prefixes.update(keys)

        assert tree.missing(branch) == tree.add(branch) == len(prefixes) - before
        assert tree.missing(branch) == tree.add(branch) == 0
        paid += len(prefixes) - before

    assert paid == len(prefixes)


def test_prompts_of_two_roles_share_nothing() -> None:
    """Each model reads its own prompt."""
    tree = PromptTree()
    tree.add(Branch(text="", token_ids=(1, 2, 3)))

    assert tree.missing(Branch(text="", token_ids=(1, 2, 3))) == 0
    assert tree.missing(Branch(text="", token_ids=(1, 2, 3), role="judge")) == 3


def test_a_division_gives_back_what_its_parties_leave() -> None:
    """And books what they spent, on every ancestor."""
    top = Account(Budget(tokens=100))
    account = Account(Budget(tokens=90, calls=7), top)

    async def use() -> None:
        division = await account.divide("d", [frozenset({"tokens"})] * 2 + [frozenset({"calls"})])
        assert [party.limit for party in division.accounts] == [
            Budget(tokens=45, calls=0),
            Budget(tokens=45, calls=0),
            Budget(tokens=0, calls=7),
        ]
        assert account.room("tokens") == 0
        division.accounts[0].launch("a", need={"tokens": 40}).settle({"tokens": 13})
        division.reclaim()
        division.reclaim()

    asyncio.run(use())

    assert top.spent["tokens"] == account.spent["tokens"] == 13
    assert account.room("tokens") == 77
    assert account.is_settled


def test_dividing_can_be_cancelled_while_it_waits() -> None:
    """It leaves no place in the line behind."""
    account = Account(Budget(tokens=10))

    async def give_up() -> None:
        running = account.launch("a", need={"tokens": 8})
        waiting = asyncio.ensure_future(account.divide("d", [frozenset({"tokens"})]))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert account.launch("b", need={"tokens": 2}).state == "open"
        running.cancel()

    asyncio.run(give_up())


def test_a_division_is_hurried_by_who_waits_for_what_it_holds() -> None:
    """Also by one that had been waiting behind it, and before its parties could be told."""
    account = Account(Budget(tokens=10))

    async def wait() -> list[str]:
        running = account.launch("a", need={"tokens": 10})
        dividing = asyncio.ensure_future(account.divide("d", [frozenset({"tokens"})]))
        await asyncio.sleep(0)
        behind = account.launch("b", need={"tokens": 8})
        waiting = asyncio.ensure_future(behind.admitted())
        running.settle({"tokens": 1})
        division = await dividing
        told: list[str] = []
        division.when_hurried(lambda: told.append("hurry"))
        division.reclaim()
        await waiting
        behind.cancel()
        return told

    assert asyncio.run(wait()) == ["hurry"]


def test_who_waits_is_asked_to_look_again_once_it_can_be_decided() -> None:
    """And a cancelled one lets the next move up."""
    account = Account(Budget(tokens=10))

    async def wait() -> list[str]:
        first = account.launch("a", need={"tokens": 8})
        second = account.launch("a", need={"tokens": 8})
        third = account.launch("a", need={"tokens": 2})
        waits = [asyncio.ensure_future(ticket.admitted()) for ticket in (second, third)]
        await asyncio.sleep(0)
        assert (second.state, third.state) == ("waiting", "waiting")
        second.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        return [first.state, second.state, third.state]

    assert asyncio.run(wait()) == ["open", "closed", "open"]


def test_a_refusal_says_what_was_short() -> None:
    """With the numbers that one needs to change the budget."""
    account = Account(Budget(tokens=9), Account(Budget(tokens=5_000_000)))
    ticket = account.launch("a", need={"tokens": 20}, floor={"tokens": 10})

    with pytest.raises(BudgetExceeded, match="needs at least 10 and 9 of 9 is left") as refusal:
        asyncio.run(ticket.admitted())
    assert (refusal.value.resource, refusal.value.needed) == ("tokens", 10)
    assert (refusal.value.remaining, refusal.value.limit) == (9, 9)


@pytest.mark.parametrize("failing", [0, 3])
def test_parallel_calls_reserve_before_they_spend(failing: int) -> None:
    """100 tokens, eight tasks of up to 30 that use 10, of which one raises: three at a time."""
    account = Account(Budget(tokens=100))
    in_flight, most = 0, 0

    async def task(number: int) -> None:
        nonlocal in_flight, most
        ticket = account.launch("a", need={"tokens": 30})
        await ticket.admitted()
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0)
        assert account.spent["tokens"] + account.reserved["tokens"] <= 100
        in_flight -= 1
        ticket.settle({"tokens": 10})
        if number == failing:
            raise OSError

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*map(task, range(8)), return_exceptions=True)

    assert [type(r) for r in asyncio.run(all_of_them())].count(OSError) == 1
    assert most == 3
    assert (account.spent["tokens"], account.reserved["tokens"]) == (80, 0)
    with pytest.raises(BudgetExceeded):
        asyncio.run(account.launch("a", need={"tokens": 101}).admitted())


def test_with_one_unit_left_one_of_many_parallel_calls_starts() -> None:
    """The others are refused; none is lost."""
    account = Account(Budget(calls=1))
    tickets = [account.launch("a", need={"calls": 1}) for _ in range(5)]
    assert [ticket.state for ticket in tickets] == ["open"] + ["waiting"] * 4
    tickets[0].settle({"calls": 1})
    for ticket in tickets:
        ticket.take_turn()

    assert [ticket.granted for ticket in tickets] == [{"calls": 1}, {}, {}, {}, {}]
    assert account.is_settled


def test_a_deep_tree_sums_at_its_root() -> None:
    """Whatever a scope spends, all scopes above have spent."""
    accounts = [Account(Budget(tokens=100))]
    for _ in range(20):
        accounts.append(Account(Budget(), accounts[-1]))
        accounts[-1].launch("a", need={"tokens": 3}).settle({"tokens": 3})

    assert accounts[0].spent["tokens"] == 60
    assert accounts[-1].room("tokens") == 40


def test_ten_thousand_waiting_calls_cost_linear_time() -> None:
    """Who waits is looked at when its turn comes, and never before."""
    account = Account(Budget(tokens=3))
    looked = 0
    verdict = Account._verdict

    def counting(self: Account, ticket: Ticket) -> object:
        nonlocal looked
        looked += 1
        return verdict(self, ticket)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Account, "_verdict", counting)
        tickets = [account.launch("a", need={"tokens": 2}) for _ in range(10_000)]
        for ticket in tickets:
            ticket.take_turn()
            ticket.settle({"tokens": 0})

    assert looked < 50_000
    assert account.is_settled
