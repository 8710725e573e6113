"""What a ledger remembers of who drew on it side by side."""

import asyncio

from ttc import Budget
from ttc.budget import Account, Ticket


def drew(account: Account, *paths: str) -> list[Ticket]:
    """Calls of these nodes, all open."""
    return [account.launch(path, need={"tokens": 10}) for path in paths]


def test_once_all_who_drew_side_by_side_rest_nothing_is_owed_to_timing() -> None:
    """Their verifiers ask below them."""
    account = Account(Budget(tokens=100))
    tickets = drew(account, "0.sample", "1.verify/0")
    for ticket in tickets:
        ticket.settle({"tokens": 5})

    assert account.contention.resources == {"tokens"}
    account.rest(("0.sample", "1.verify"))
    assert account.contention.resources == set()
    assert not account.is_untouched


def test_what_others_drew_is_remembered() -> None:
    """They may draw again."""
    account = Account(Budget(tokens=100))
    for ticket in drew(account, "0.sample", "1.verify/0", "1.verifying"):
        ticket.settle({"tokens": 5})

    account.rest(("0.sample", "1.verify"))

    assert account.contention.resources == {"tokens"}


def test_while_a_call_is_open_nobody_rests() -> None:
    """Whatever they say."""
    account = Account(Budget(tokens=100))
    first, second = drew(account, "0.search", "0.search/1")
    first.settle({"tokens": 5})

    account.rest(("0.search",))
    assert account.contention.resources == {"tokens"}
    second.settle({"tokens": 5})
    account.rest(("0.search",))

    assert account.contention.resources == set()


def test_a_part_of_a_divided_budget_forgets_nothing() -> None:
    """What it remembers is what the parts beside it drew, too."""
    account = Account(Budget(tokens=100))
    party = frozenset({"tokens"})
    division = asyncio.run(account.divide("0.pool", [party, party]))
    one, _ = division.accounts
    for ticket in drew(one, "0.pool/0.search", "0.pool/0.search/1"):
        ticket.settle({"tokens": 5})

    one.rest(("0.pool/0.search",))

    assert account.contention.resources == {"tokens"}
