"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864) and the ways to stretch them.

Pair i of a head of size D turns by position * frequency_i, with frequency_i = base^(-2 i / D). To
stretch a model beyond the context that it was trained on, its frequencies are changed:

- `Linear` divides them all (Chen et al. 2023, arXiv 2306.15595).
- `Dynamic` raises the base with the length of the text (u/emozilla 2023, "dynamic NTK").
- `Yarn` divides the slow ones and lets the fast ones be (Peng et al. 2023, arXiv 2309.00071).
- `Llama3` does the same by wavelengths (Llama 3.1, meta-llama/llama-models, `apply_scaling`).
- `Divided` divides each by a number of its own, which the model's file holds.

`rotation` computes them. Knows no torch: a model's description is read while torch is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Divided", "Dynamic", "Linear", "Llama3", "Rope", "Scaling", "Yarn", "yarn_magnitude"]


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
