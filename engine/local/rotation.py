"""What positions turn queries and keys by: the frequencies that `rope` describes, in tables.

All functions work in float64; the tables are rounded to float32 at the end.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ttc.engine.local.rope import Divided, Dynamic, Linear, Llama3, Rope, Yarn

__all__ = ["Rotation", "Turn", "frequencies"]

_PIECE = 1024  # positions that a table grows by; it decides nothing


def frequencies(rope: Rope, head_dim: int, positions: torch.Tensor) -> torch.Tensor:
    """The frequencies at positions.

    Args:
        rope: base and scaling.
        head_dim: D.
        positions: (n,)

    Returns:
        (n, D / 2), or (1, D / 2) where all positions have the same.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim  # (D / 2,)
    plain = rope.base ** -exponents[None]
    match rope.scaling:
        case None:
            return plain
        case Linear(factor=factor):
            return plain / factor
        case Divided(divisors=divisors):
            return plain / torch.tensor(divisors, dtype=torch.float64)
        case Yarn():
            return _mixed_by_turns(rope.scaling, rope.base, plain)
        case Llama3():
            return _mixed_by_waves(rope.scaling, plain)
        case Dynamic(factor=factor, original_context=original):
            lengths = (positions.double() + 1).clamp(min=original)[:, None]
            growth = factor * lengths / original - (factor - 1)
            bases = rope.base * growth ** (head_dim / (head_dim - 2))
            return bases**-exponents


def _mixed_by_turns(yarn: Yarn, base: float, plain: torch.Tensor) -> torch.Tensor:
    """YaRN's "NTK by parts" (section 3.2). (1, D / 2) to the same."""
    head_dim = 2 * plain.shape[1]

    def pair_that_turns(times: float) -> float:
        return (
            head_dim
            * math.log(yarn.original_context / (times * 2 * math.pi))
            / (2 * math.log(base))
        )

    low, high = pair_that_turns(yarn.beta_fast), pair_that_turns(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = torch.arange(head_dim // 2, dtype=torch.float64) - low
    slow = (ramp / (high - low or 0.001)).clamp(0, 1)
    return plain / yarn.factor * slow + plain * (1 - slow)


def _mixed_by_waves(scaling: Llama3, plain: torch.Tensor) -> torch.Tensor:
    """Llama 3.1's scaling. (1, D / 2) to the same."""
    waves = scaling.original_context * plain / (2 * math.pi)  # in the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    fast = ((waves - low) / (high - low)).clamp(0, 1)
    return plain / scaling.factor * (1 - fast) + plain * fast


class Turn(NamedTuple):
    """Cosines and sines; of rows, (rows, 1, D / 2) each, where it is called."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """Turns heads, (rows, heads, D), whose first half pairs with the second."""
        first, second = heads.chunk(2, dim=-1)
        return torch.cat(
            [first * self.cos - second * self.sin, second * self.cos + first * self.sin], dim=-1
        )


class Rotation:
    """Tables of cosines and sines, which grow with the positions that are asked for.

    They grow by whole pieces, each computed for itself, so a position's numbers do not depend on
    which ones were asked for before.
    """

    def __init__(self, rope: Rope, head_dim: int) -> None:
        self._rope, self._head_dim = rope, head_dim
        self._scale = rope.scaling.attention_factor if isinstance(rope.scaling, Yarn) else 1.0
        self._cos = self._sin = torch.empty(0, head_dim // 2)  # (positions, D / 2)

    def __call__(self, positions: torch.Tensor) -> Turn:
        """The turn of rows at positions, (rows,)."""
        cos, sin = self.tables(int(positions.max()) + 1)
        return Turn(cos[positions][:, None], sin[positions][:, None])

    def tables(self, length: int) -> Turn:
        """The cosines and sines of at least the first `length` positions, (positions, D / 2)."""
        if length > len(self._cos):
            self._grow(max(length, 2 * len(self._cos)))
        return Turn(self._cos, self._sin)

    def _grow(self, length: int) -> None:
        cosines, sines = [self._cos], [self._sin]
        for start in range(len(self._cos), length, _PIECE):
            positions = torch.arange(start, start + _PIECE)
            angles = positions.double()[:, None] * frequencies(
                self._rope, self._head_dim, positions
            )
            cosines.append((angles.cos() * self._scale).float())
            sines.append((angles.sin() * self._scale).float())
        self._cos, self._sin = torch.cat(cosines), torch.cat(sines)
