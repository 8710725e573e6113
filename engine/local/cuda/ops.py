"""What a step on a device is made of. `torch_ops` and `triton_ops` compute it.

Every result of a row depends on that row, and on the pages that it sees, alone: to the bit.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch

from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import Step
from ttc.engine.local.cuda.weights import Stacked

__all__ = ["Draws", "Measures", "Ops", "Parts", "Quantised", "Rows", "Turning"]


class Quantised(NamedTuple):
    """Rows as int8, with a scale for each group of columns."""

    codes: torch.Tensor
    """(R, K rounded up to whole groups)"""
    scales: torch.Tensor
    """(R, groups) float32"""


Rows = torch.Tensor | Quantised
"""What a weight is multiplied with."""


class Parts(NamedTuple):
    """A product that is yet to be added up: slices from left to right, and then the bias."""

    sums: torch.Tensor
    """(slices, R, N) float32"""
    bias: torch.Tensor | None
    """(N,) float32"""


class Turning(NamedTuple):
    """How a layer turns its queries and keys."""

    norm: torch.Tensor | None
    """(H + K, D) of each head, before it is turned."""
    cos: torch.Tensor
    """(positions, D / 2) float32"""
    sin: torch.Tensor
    """The same."""
    is_rotated: bool
    eps: float
    query_scale: float
    heads: int
    kv_heads: int


class Measures(NamedTuple):
    """What is known of rows of logits; d is a logit less the row's peak. All (R,) float32."""

    peaks: torch.Tensor
    """NaN where a logit is no number, or none is a token."""
    masses: torch.Tensor
    """The sums of exp(d)."""
    moments: torch.Tensor
    """The sums of exp(d) d."""
    distances: torch.Tensor
    """The sums of d."""
    counts: torch.Tensor
    """How many tokens there are: logits above -inf."""


class Draws(NamedTuple):
    """How a token of each row is drawn."""

    numbers: torch.Tensor
    """(R, 3) float32: 1 / temperature (0 is greedy), top_p, and min_p as a distance -ln p."""
    counts: torch.Tensor
    """(R, 2) int32: top_k (0 keeps all), and where its bits begin in `allowed` (-1: it has none).
    """
    keys: torch.Tensor
    """(R, 2) int32: the lower and the upper half of the noise's key."""
    special: torch.Tensor
    """(n,) int32: the rows with a filter, or whose logits are not the model's own."""
    allowed: torch.Tensor | None
    """int32: a bit for each token, the lowest first, 32 to a number."""


class Ops(Protocol):
    """Computes on one device."""

    name: str
    """What decides the bits besides the device."""
    captures: bool
    """Whether a step can be captured as a CUDA graph."""
    tiles: tuple[int, ...]
    """Which of `work.TILES` attention uses."""

    def norm(
        self, x: torch.Tensor, parts: Parts | None, weight: torch.Tensor, eps: float, int8: bool
    ) -> Rows:
        """Adds a product to the residual x, (R, hidden) float32, in place; its RMS norm."""

    def product(self, rows: Rows, weight: Stacked) -> Parts:
        """Rows times a weight."""

    def turn(self, parts: Parts, turning: Turning, step: Step, cache: Cache) -> torch.Tensor:
        """Turns queries and keys, and writes keys and values to pages; the queries, (R, H, D)."""

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, window: int | None
    ) -> torch.Tensor:
        """Attention, (R, H * D) in the type of the queries."""

    def quantise(self, x: torch.Tensor) -> Quantised:
        """Rows as int8."""

    def gate(self, parts: Parts, int8: bool) -> Rows:
        """SiLU of a product's first half, times the second."""

    def copy_pages(self, whole: torch.Tensor, pairs: torch.Tensor) -> None:
        """Copies pages (from, to), (n, 2) int32, of all layers, (layers, pages, ...)."""

    def measure(self, logits: torch.Tensor) -> Measures:
        """Peak, mass and moments of rows."""

    def draw(
        self, logits: torch.Tensor, adjusted: torch.Tensor, peaks: torch.Tensor, draws: Draws
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws a token of each row.

        Args:
            logits: (R, V) float32, the model's own.
            adjusted: what is drawn from; the same unless there are penalties or a bias.
            peaks: (R,) of `logits`.
            draws: how.

        Returns:
            (R,) int32 tokens, -1 where none can be drawn, and (R,) their logits in `logits`
        """
