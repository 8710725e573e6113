"""Rebase: share a fixed width among the trajectories of a layer by their scores.

Source: Wu et al. 2024 (arXiv 2408.00724), section 3.2, REBASE: W_i = round(B softmax(R / T)_i) with
T = 0.2, where B is what is left of the width once finished solutions have been taken off.
Differs: widths are rounded by the largest remainder, so that they add up to B; `rounding="ceil"`
rounds up from the greatest score on until B is used up, as the release does. A score that is
unknown counts as the lowest that is known.
Cost: at most `width` steps for each of at most `max_steps` layers, and as many scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.strategies.tree.layers import Layers, LayerState
from ttc.strategies.tree.search import TreeSearch

__all__ = ["Rebase", "RewardBalance", "balanced_widths"]

Rounding = Literal["largest_remainder", "ceil"]


def balanced_widths(
    values: Sequence[float | None],
    width: int,
    *,
    temperature: float = 0.2,
    rounding: Rounding = "largest_remainder",
    copies: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """How many ways each of some nodes is extended; ties go to the one launched earlier.

    Args:
        values: their scores.
        width: what is shared.
        temperature: of the softmax.
        rounding: how shares become whole numbers.
        copies: how many equal nodes each of them stands for.
    """
    known = [value for value in values if value is not None]
    low = min(known, default=0.0)
    top = max(known, default=0.0)
    copies = copies or [1] * len(values)
    weights = [
        count * math.exp(((low if value is None else value) - top) / temperature)
        for value, count in zip(values, copies, strict=True)
    ]
    total = math.fsum(weights)
    shares = [width * weight / total for weight in weights]
    if rounding == "ceil":
        return _ceilings(shares, width)
    widths = [math.floor(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (widths[i] - shares[i], i))
    for place in by_remainder[: width - sum(widths)]:
        widths[place] += 1
    return tuple(widths)


def _ceilings(shares: Sequence[float], width: int) -> tuple[int, ...]:
    widths, left = [0] * len(shares), width
    for place in sorted(range(len(shares)), key=lambda i: (-shares[i], i)):
        widths[place] = min(math.ceil(shares[place]), left)
        left -= widths[place]
    return tuple(widths)


@dataclass(frozen=True, kw_only=True)
class RewardBalance(Layers):
    """Shares the width among the nodes of a layer."""

    width: int
    temperature: float = 0.2
    rounding: Rounding = "largest_remainder"

    def first(self) -> int:
        """The whole width."""
        return self.width

    def spread(self, state: LayerState) -> LayerState:
        """Extends each node by its share; one that gets none is dropped."""
        tree = state.tree
        left = self.width - len(tree.given)
        if left <= 0:
            return replace(state, tree=tree.close(), queue=())
        widths = balanced_widths(
            [tree[id].value for id in state.layer],
            left,
            temperature=self.temperature,
            rounding=self.rounding,
            copies=[tree[id].multiplicity for id in state.layer],
        )
        shares = dict(zip(state.layer, widths, strict=True))
        tree = tree.drop(*(id for id, share in shares.items() if not share))
        queue = tuple(id for id, share in shares.items() for _ in range(share))
        return replace(state, tree=tree, queue=queue)


@dataclass(frozen=True)
class Rebase(TreeSearch):
    """Extends each trajectory in as many ways as its score deserves among its layer."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("width",)

    width: int = field(default=16, kw_only=True)
    """Steps of a layer; a finished solution takes one off."""
    balance_temperature: float = field(default=0.2, kw_only=True)
    """Of the softmax over scores: low ones give all to the best."""
    rounding: Rounding = field(default="largest_remainder", kw_only=True)
    """How shares become whole numbers; `ceil` is what the release does."""

    @property
    def most_expansions(self) -> int:
        """Every layer in full."""
        return self.width * self.max_steps

    @property
    def most_given(self) -> int:
        """It ends once there are as many as the width."""
        return self.width

    def faults(self, given: Flow) -> list[str]:
        """The softmax's temperature, and the rounding."""
        faults = super().faults(given)
        if not 0 < self.balance_temperature < math.inf:
            faults.append(
                f"balance_temperature is finite and above 0, not {self.balance_temperature!r}"
            )
        if self.rounding not in get_args(Rounding):
            faults.append(f"rounding is largest_remainder or ceil, not {self.rounding!r}")
        return faults

    def policy(self, scope: Scope) -> RewardBalance:
        """What decides."""
        return RewardBalance(
            width=self.width, temperature=self.balance_temperature, rounding=self.rounding
        )
