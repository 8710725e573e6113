"""What one call's requests cost: at worst, beforehand, and as it was measured, afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ttc.budget import in_units
from ttc.frozen import changed
from ttc.ports import Engine, Generation, Reading
from ttc.prices import Price
from ttc.safe_text import safe_logger
from ttc.types import UNMEASURED, Usage

__all__ = ["Meter"]

_log = safe_logger(__name__)


class Meter:
    """Counts the FLOPs and the dollars of one call, which may be several requests."""

    def __init__(self, engine: Engine, price: Price | None) -> None:
        self._engine, self._price = engine, price
        self._flops: int | None = 0
        self._dollars = 0  # in the ledger's parts

    @property
    def is_known(self) -> bool:
        """Whether anybody knows what its tokens cost, before it is run."""
        return self._engine.costs is not None or self._price is not None

    def worst_case(self, requests: Iterable[tuple[int, int]]) -> dict[str, int]:
        """The most that requests of (prompt tokens, output tokens) can cost: nothing is cached."""
        costs, price, sizes = self._engine.costs, self._price, tuple(requests)
        worst = {}
        if costs is not None:
            worst["flops"] = sum(costs.worst_case(given, most) for given, most in sizes)
        if price is not None:
            worst["cost_usd"] = sum(price.worst_case(given, most) for given, most in sizes)
        return worst

    def read(self, generation: Generation | Reading, *, sent: int, output_tokens: int) -> Usage:
        """The physical lines of a request that has ended.

        Args:
            generation: the request.
            sent: its prompt tokens, in case that the engine does not tell how many they were.
            output_tokens: what it generated.
        """
        measured = self._told(generation)
        is_told = measured.input_tokens or measured.cached_input_tokens is not None
        input_tokens = measured.input_tokens if is_told else sent
        known = self._flops is not None and measured.flops is not None
        self._flops = (self._flops or 0) + (measured.flops or 0) if known else None
        cost: float | None = None
        if self._price is not None:
            parts = self._price.picodollars(
                input_tokens=input_tokens,
                cached=measured.cached_input_tokens,
                output_tokens=output_tokens,
            )
            self._dollars += parts
            cost = in_units("cost_usd", parts)
        return changed(
            measured, input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost
        )

    def booked(self, granted: Mapping[str, int]) -> dict[str, int]:
        """What the ledger books of it: at most what was granted, which is what is unknown, too."""
        used = {"flops": self._flops, "cost_usd": self._dollars}
        return {
            resource: most if (amount := used[resource]) is None else min(amount, most)
            for resource, most in granted.items()
            if resource in used
        }

    def _told(self, generation: Generation | Reading) -> Usage:
        try:
            return generation.usage
        except Exception:  # noqa: BLE001 - whatever an engine raises, the call must be settled
            _log.exception("%s could not tell what a call used", self._engine.name)
            return UNMEASURED
