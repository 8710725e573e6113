"""What more work will cost before it runs: time by the cost curve, the rest by counting."""

from __future__ import annotations

from dataclasses import dataclass

from ttc.engine.local.curve import Curve, Error, Load
from ttc.engine.local.meter import Meter

__all__ = ["Price", "price_of"]

_PIECE = 256  # prompt tokens that are thought to be computed in one step


@dataclass(frozen=True, kw_only=True)
class Price:
    """What more branches add to the steps that they run in."""

    milliseconds: float
    """By which steps become longer, all together."""
    bytes_read: int
    """From memory: keys and values, and the weights where nothing else reads them."""
    kv_bytes: int
    """Memory that is taken when the branches have their length."""
    flops: int
    error: Error | None
    """How good the curve's predictions of whole steps were; `None` before the first step."""


def price_of(
    curve: Curve,
    meter: Meter,
    *,
    context: int,
    branches: int,
    tokens: int,
    uncached: int,
    beside: int,
) -> Price:
    """See `LocalEngine.price`.

    Raises:
        ValueError: a number makes no sense.
    """
    if min(context, tokens) < 1 or branches < 1 or beside < 0 or not 0 <= uncached <= context:
        raise ValueError(
            f"context ({context}), tokens ({tokens}) and branches ({branches}) are at least 1, "
            f"beside ({beside}) at least 0 and uncached ({uncached}) a part of context"
        )
    costs = meter.costs
    rows, mean = beside + branches, context + (tokens + 1) / 2
    without = curve(Load(rows=beside, draws=beside, seen=0))
    longer = curve(Load(rows=rows, draws=rows, seen=round(branches * mean))) - without
    seconds = tokens * longer
    for start in range(context - uncached, context, _PIECE):
        count = min(_PIECE, context - start)
        seen = count * start + count * (count + 1) // 2
        seconds += curve(Load(rows=beside + count, draws=beside, seen=seen)) - without
    weights = 0 if beside else meter.weight_bytes(draws=1)
    prefix = 0 if beside else context
    kv_tokens = tokens * prefix + branches * tokens * (tokens + 1) // 2
    return Price(
        milliseconds=max(seconds, 0.0) * 1000,
        bytes_read=tokens * weights + kv_tokens * costs.kv_bytes_per_token,
        kv_bytes=(branches * tokens + uncached) * costs.kv_bytes_per_token,
        flops=branches * costs.flops(start=context, count=tokens, draws=tokens)
        + costs.flops(start=context - uncached, count=uncached, draws=0),
        error=curve.error,
    )
