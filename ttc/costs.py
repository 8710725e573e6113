"""What a model's work costs, as its sizes tell before anything runs: FLOPs and memory.

A multiplication and an addition are two operations. Counted are the products of the linear layers
and of attention, for tokens that are really computed: not what a cache saved, nor rows that a
kernel pads, nor norms and activations (under 1 % in all).

For a decoder with L layers, width d, h query heads and g key heads of size k, a gated feed-forward
width m and a vocabulary V:

    linear, each token computed      2 L (d h k + 2 d g k + h k d + 3 d m)
    head, each token drawn           2 d V
    attention, each position seen    4 L h k    (a token sees itself and all before it, or a window)
    memory, each token               2 L g k bytes-per-number

Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1, for the method of counting.
Differs: fewer key heads than query heads, the attention at its true length, and the head only where
a token is drawn. Twice the number of parameters, the usual rule, is off by more than a factor of
two for small models in long contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Costs", "decoder_costs"]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What an engine's model spends on each token."""

    flops_per_token: int
    """Linear layers, for each token that is computed."""
    flops_per_draw: int
    """The head, for each token that is drawn."""
    attention: tuple[tuple[int, int | None], ...]
    """FLOPs for each position that a token sees, with the window that it sees (`None`: all)."""
    kv_bytes_per_token: int = 0
    """Memory of keys and values."""

    def flops(self, *, start: int, count: int, draws: int) -> int:
        """FLOPs of computing `count` tokens after the first `start`, and of drawing `draws`."""
        seen = sum(flops * _seen(start, count, window) for flops, window in self.attention)
        return self.flops_per_token * count + self.flops_per_draw * draws + seen

    def worst_case(self, prompt_tokens: int, output_tokens: int) -> int:
        """FLOPs of a call of which nothing is cached; the last token drawn is never computed."""
        computed = prompt_tokens + max(0, output_tokens - 1)
        return self.flops(start=0, count=computed, draws=output_tokens)


def decoder_costs(
    *,
    windows: Sequence[int | None],
    hidden: int,
    queries: int,
    keys: int,
    feed_forward: int,
    vocab: int,
    kv_number_bytes: int = 2,
) -> Costs:
    """The costs of a dense decoder with gated feed-forward layers.

    Args:
        windows: for each layer how many positions a token sees; `None` is all.
        hidden: width of the residual stream.
        queries: width of all query heads together.
        keys: width of all key heads together, which is that of the value heads.
        feed_forward: width between the feed-forward layers.
        vocab: tokens.
        kv_number_bytes: bytes of one number of keys and values.
    """
    layer = 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * feed_forward
    layers = {window: windows.count(window) for window in dict.fromkeys(windows)}
    return Costs(
        flops_per_token=2 * len(windows) * layer,
        flops_per_draw=2 * hidden * vocab,
        attention=tuple((4 * n * queries, window) for window, n in layers.items()),
        kv_bytes_per_token=2 * len(windows) * keys * kv_number_bytes,
    )


def _seen(start: int, count: int, window: int | None) -> int:
    """Positions that `count` tokens see, if there are `start` before them."""
    end = start + count
    growing = count if window is None else max(0, min(end, window) - start)
    return growing * start + growing * (growing + 1) // 2 + (count - growing) * (window or 0)
