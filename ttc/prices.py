"""What tokens cost in dollars: dated prices, out of a file of the user's own.

The file is `prices.toml` in the user's configuration folder, beside `config.toml`. Each entry names
a model as its engine does, the day from which the price holds, and dollars for a million tokens:

    [[price]]
    model = "large-model"
    date = 2026-05-01
    input = 1.25
    cached_input = 0.125    # as `input`, where it is left out
    output = 10.0

Of several entries for one model the latest that has begun holds. ttc brings no prices along: they
change, and a wrong one would be worse than none. A model without a price has an unknown cost, and a
run with a limit on dollars refuses to start with it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any

from ttc.errors import PriceError
from ttc.ports import Engine
from ttc.types import Budget

__all__ = ["Price", "Prices", "check_limits", "prices_file"]

_PICO = 10**12  # in a dollar; a whole number of them adds up without a rounding error


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a model's tokens cost from one day on."""

    model: str
    """The model's name, as its engine tells it."""
    date: datetime.date
    """The day from which it holds."""
    input: Decimal
    """Dollars for a million prompt tokens."""
    cached_input: Decimal | None = None
    """Likewise for prompt tokens that the engine had in its cache; `None` is as `input`."""
    output: Decimal
    """Likewise for output tokens."""

    def __post_init__(self) -> None:
        for name in ("input", "cached_input", "output"):
            value = getattr(self, name)
            if name == "cached_input" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                raise PriceError(f"the price of {self.model}: {name} is a number, not {value!r}")
            exact = Decimal(str(value))
            if not exact.is_finite() or exact < 0:
                raise PriceError(f"the price of {self.model}: {name} is at least 0, not {value}")
            object.__setattr__(self, name, exact)
        if type(self.date) is not datetime.date:
            raise PriceError(f"the price of {self.model}: date is a day, not {self.date!r}")

    def picodollars(self, *, input_tokens: int, cached: int | None, output_tokens: int) -> int:
        """What a call costs, in whole trillionths of a dollar, rounded up.

        Args:
            input_tokens: prompt tokens, those of the cache included.
            cached: those that were in the cache; unknown ones are paid in full.
            output_tokens: what was generated.
        """
        known = cached or 0
        hit = self.input if self.cached_input is None else self.cached_input
        millions = (input_tokens - known) * self.input + known * hit + output_tokens * self.output
        return int((millions * (_PICO // 10**6)).to_integral_value(ROUND_CEILING))

    def worst_case(self, input_tokens: int, output_tokens: int) -> int:
        """The most that a call can cost, whatever its cache holds."""
        return max(
            self.picodollars(input_tokens=input_tokens, cached=cached, output_tokens=output_tokens)
            for cached in (0, input_tokens)
        )


class Prices:
    """A table of prices; of several for one model the latest that has begun holds."""

    def __init__(self, prices: Iterable[Price] = ()) -> None:
        self._prices = tuple(prices)

    def __iter__(self) -> Iterator[Price]:
        return iter(self._prices)

    @classmethod
    def read(cls, path: Path) -> Prices:
        """The prices of a file.

        Raises:
            PriceError: the file cannot be read, or an entry is wrong.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PriceError(f"{path} cannot be read: {error}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str) -> Prices:
        """The prices of a text.

        Raises:
            PriceError: it is no TOML, or an entry is wrong; names the source.
        """
        import tomllib

        try:
            content = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            raise PriceError(f"{source} cannot be read: {error}") from error
        if unknown := sorted(set(content) - {"price"}):
            raise PriceError(f"{source}: {unknown[0]!r} is unknown; write [[price]] for each entry")
        entries = content.get("price", [])
        if not isinstance(entries, list):
            raise PriceError(f"{source}: write [[price]], with two brackets, for each entry")
        return cls(_entry(source, entry) for entry in entries)

    @classmethod
    def of_the_user(cls) -> Prices:
        """The prices of the user's file; none where there is no file."""
        path = prices_file()
        return cls.read(path) if path.exists() else cls()

    def of(self, model: str, *, on: datetime.date) -> Price | None:
        """The price of a model on a day, or `None` where nobody has said."""
        begun = [price for price in self._prices if price.model == model and price.date <= on]
        return max(begun, key=lambda price: price.date, default=None)


def prices_file() -> Path:
    """Where the user's prices lie, or would lie."""
    from ttc.config import config_file  # reads folders of the user: not at import

    return config_file().with_name("prices.toml")


def check_limits(
    budget: Budget, engines: Mapping[str, Engine], prices: Mapping[str, Price]
) -> None:
    """Refuses a limit on what nobody can tell: it would never act.

    Raises:
        PriceError: a role's model has no price, or its engine does not tell what it spends.
    """
    for role, engine in engines.items():
        costs, what = engine.costs, f"the model {engine.name!r} of the role {role!r}"
        if budget.cost_usd is not None and role not in prices:
            raise PriceError(
                f"{what} has no price, so cost_usd cannot be limited; add one to {prices_file()}, "
                "or leave the limit out"
            )
        if budget.flops is not None and costs is None:
            raise PriceError(
                f"{what} has an engine that tells no FLOPs; leave the limit of flops out"
            )
        if budget.kv_byte_seconds is not None and (costs is None or not costs.kv_bytes_per_token):
            raise PriceError(
                f"{what} has an engine that does not measure its memory; leave the limit of "
                "kv_byte_seconds out"
            )


def _entry(source: str, entry: Mapping[str, Any]) -> Price:
    known = {f.name for f in fields(Price)}
    needed = known - {"cached_input"}
    wrong = sorted(set(entry) - known)
    missing = sorted(needed - set(entry))
    if wrong or missing:
        fault = f"{wrong[0]!r} is unknown" if wrong else f"{missing[0]} is missing"
        raise PriceError(f"{source}: in the price of {entry.get('model', 'a model')}, {fault}")
    return Price(**entry)
