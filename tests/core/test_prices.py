"""Prices: read from a user's file, dated, exact, and demanded by a limit on dollars."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ttc
from tests.core.lab import QUESTION
from ttc import Budget, PriceError
from ttc.prices import Price, Prices, prices_file
from ttc.strategies import SelfConsistency
from ttc.testing import FakeEngine

TABLE = """
[[price]]
model = "fake"
date = 2026-01-01
input = 2.0
output = 8.0

[[price]]
model = "fake"
date = 2026-06-01
input = 1.0
cached_input = 0.1
output = 4.0
"""


def price(**changes: object) -> Price:
    """A price that a test changes."""
    given = {"model": "m", "date": date(2026, 1, 1), "input": 1, "output": 2, **changes}
    return Price(**given)  # type: ignore[arg-type]


def test_the_latest_price_that_has_begun_holds(tmp_path: Path) -> None:
    """A price of the future does not, and a model that is not listed has none."""
    path = tmp_path / "prices.toml"
    path.write_text(TABLE)
    prices = Prices.read(path)
    first, second = prices.of("fake", on=date(2026, 5, 31)), prices.of("fake", on=date(2026, 6, 1))

    assert first is not None
    assert first.input == 2
    assert second is not None
    assert second.cached_input == Decimal("0.1")
    assert prices.of("fake", on=date(2025, 12, 31)) is None
    assert prices.of("other", on=date(2026, 6, 1)) is None


def test_dollars_are_reckoned_exactly() -> None:
    """0.15 dollars for a million tokens are 150,000 trillionths for one."""
    cheap = price(input=Decimal("0.15"), cached_input=Decimal("0.075"), output=Decimal("0.6"))

    assert cheap.picodollars(input_tokens=10, cached=0, output_tokens=0) == 1_500_000
    assert cheap.picodollars(input_tokens=10, cached=4, output_tokens=3) == 900_000 + 300_000 + (
        3 * 600_000
    )
    assert cheap.picodollars(input_tokens=10, cached=None, output_tokens=0) == 1_500_000
    assert price(input=Decimal("1e-9")).picodollars(input_tokens=1, cached=0, output_tokens=0) == 1


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99), st.integers(0, 5))
def test_no_call_costs_more_than_its_worst_case(
    given: int, hit: int, out: int, cached: int
) -> None:
    """Even where cached tokens are the dearer ones."""
    paid = price(cached_input=cached)
    real = paid.picodollars(input_tokens=given, cached=min(hit, given), output_tokens=out)

    assert real <= paid.worst_case(given, out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[price]", "cannot be read"),
        ("[fake]\ninput = 1", "'fake' is unknown; write \\[\\[price"),
        ("price = 3", "write \\[\\[price\\]\\], with two brackets"),
        (TABLE.replace("output", "ouput"), "in the price of fake, 'ouput' is unknown"),
        (TABLE.replace("output = 8.0", ""), "in the price of fake, output is missing"),
        (TABLE.replace("8.0", "-8.0"), "the price of fake: output is at least 0, not -8.0"),
        (TABLE.replace("8.0", "inf"), "output is at least 0, not Infinity"),
        (TABLE.replace("8.0", "'8'"), "output is a number, not '8'"),
        (TABLE.replace("2026-01-01", "2026"), "date is a day, not 2026"),
    ],
)
def test_a_wrong_table_says_what_is_wrong(text: str, message: str, tmp_path: Path) -> None:
    """With the model, and the value."""
    path = tmp_path / "prices.toml"
    path.write_text(text)

    with pytest.raises(PriceError, match=message):
        Prices.read(path)


def test_the_users_table_is_read_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It lies beside the settings; the outcome holds the price, and with it its date."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    prices_file().parent.mkdir()
    prices_file().write_text(TABLE)
    outcome = ttc.solve(QUESTION, SelfConsistency(n=2), model=FakeEngine("It is 4."), seed=0)

    assert outcome.prices["policy"].date in (date(2026, 1, 1), date(2026, 6, 1))
    assert outcome.usage.cost_usd


def test_a_limit_on_dollars_needs_the_price_of_every_model() -> None:
    """The run is refused before anything is spent; without the limit its cost is unknown."""
    engine, graph = FakeEngine("It is 4."), SelfConsistency(n=2)
    with pytest.raises(PriceError, match="'fake' of the role 'policy' has no price"):
        ttc.solve(QUESTION, graph, model=engine, budget=Budget(cost_usd=1))
    with pytest.raises(PriceError, match="has no price"):
        ttc.solve_many([QUESTION], graph, model=engine, per_problem=Budget(cost_usd=1))
    assert engine.calls == 0

    assert ttc.solve(QUESTION, graph, model=engine).usage.cost_usd is None


@pytest.mark.parametrize("limit", ["flops", "kv_byte_seconds"])
def test_a_limit_on_what_an_engine_does_not_tell_is_refused(limit: str) -> None:
    """It would never act."""
    engine = FakeEngine("It is 4.")
    engine.costs = None
    budget = Budget(**{limit: 10**9})
    with pytest.raises(PriceError, match=f"leave the limit of\\s+{limit} out"):
        ttc.solve(QUESTION, SelfConsistency(n=2), model=engine, budget=budget)

    assert engine.calls == 0
