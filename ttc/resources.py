"""What a budget limits: the names, and the whole numbers in which the ledger counts them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["LOGICAL", "MEASURED", "RESERVED", "UNITS", "in_units", "shares"]

LOGICAL = ("tokens", "calls", "verifier_calls")
"""The resources whose use depends on the work alone."""

RESERVED = (*LOGICAL, "flops", "cost_usd")
"""The resources whose worst case is known before a call, and that are reserved."""

MEASURED = ("kv_byte_seconds", "sandbox_seconds")
"""The resources that are known only afterwards; a limit on one acts when it is reached."""

UNITS = {"cost_usd": 10**12}
"""Parts of a resource's unit in which the ledger counts, where those are not whole."""


def in_units(resource: str, amount: int) -> float:
    """An amount of the ledger, in the unit of a budget."""
    return amount / UNITS[resource] if resource in UNITS else amount


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
