"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) and the ways to stretch them.

Pair i of a head of size D turns by position * frequency_i, with frequency_i = base^(-2 i / D). To
stretch a model beyond the context that it was trained on, its frequencies are changed:

- `Linear` divides them all (Chen et al. 2023, arXiv 2306.15595).
- `Dynamic` raises the base with the length of the text (u/emozilla 2023, "dynamic NTK").
- `Yarn` divides the slow ones and lets the fast ones be (Peng et al. 2023, arXiv 2309.00071).
- `Llama3` does the same by wavelengths (Llama 3.1, meta-llama/llama-models, `apply_scaling`).
- `Divided` divides each by a number of its own, which the model's file holds.

All functions work in float64; the tables are rounded to float32 at the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

__all__ = [
    "Divided",
    "Dynamic",
    "Linear",
    "Llama3",
    "Rope",
    "Rotation",
    "Turn",
    "Yarn",
    "frequencies",
    "yarn_magnitude",
]

_PIECE = 1024  # positions that a table grows by; it decides nothing


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Every frequency over `factor`."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """A base that grows with the length, from the original context on.

    The length that counts for a position is the text up to it, as if tokens came one at a time:
    what a position's key is cannot depend on what comes later, or on how a prompt is cut.
    """

    factor: float
    original_context: int


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """Slow frequencies over `factor`, fast ones as they are, and a mix in between.

    A pair is slow where it turns less than `beta_slow` times in the original context, and fast
    where it turns more than `beta_fast` times.
    """

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    """Whether the bounds of the mix are rounded to whole pairs."""
    attention_factor: float = 1.0
    """What queries and keys are multiplied by; see `yarn_magnitude`."""


@dataclass(frozen=True, kw_only=True)
class Llama3:
    """Frequencies over `factor` where the original context holds few waves, a mix in between."""

    factor: float
    original_context: int
    low_freq_factor: float
    high_freq_factor: float


@dataclass(frozen=True, kw_only=True)
class Divided:
    """Each frequency over a number of its own."""

    divisors: tuple[float, ...]
    """One for each pair."""


Scaling = Linear | Dynamic | Yarn | Llama3 | Divided


@dataclass(frozen=True, kw_only=True)
class Rope:
    """How positions turn queries and keys."""

    base: float = 10_000.0
    scaling: Scaling | None = None


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """The attention factor that the paper recommends, 0.1 ln(factor) + 1 (equation 22)."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1.0 else 1.0


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
    """The cosines and sines of rows, (rows, 1, D / 2) each."""

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
        if (needed := int(positions.max()) + 1) > len(self._cos):
            self._grow(max(needed, 2 * len(self._cos)))
        return Turn(self._cos[positions][:, None], self._sin[positions][:, None])

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
