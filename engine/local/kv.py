"""The memory of keys and values: one pool of pages for each layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ttc.engine.local.attention import PAGE
from ttc.engine.local.config import ModelConfig

__all__ = ["KVPool"]


class KVPool:
    """Keys and values of every layer, in pages of `PAGE` positions.

    Zero-filled: hidden positions have a weight of exactly 0, and 0 times an uninitialised infinity
    or NaN would spoil the sum.
    """

    def __init__(self, config: ModelConfig, num_pages: int) -> None:
        heads, size = config.num_kv_heads, config.head_dim
        self.keys = [_zeros(num_pages, heads, size, PAGE) for _ in range(config.num_layers)]
        """For each layer (pages, key heads, head size, PAGE)."""
        self.values = [_zeros(num_pages, heads, PAGE, size) for _ in range(config.num_layers)]
        """For each layer (pages, key heads, PAGE, head size)."""

    @staticmethod
    def page_bytes(config: ModelConfig) -> int:
        """Bytes of one page over all layers."""
        return 2 * config.num_layers * config.num_kv_heads * config.head_dim * PAGE * 4

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages, (from, to); all are read before one is written."""
        if not pairs:
            return
        sources = torch.tensor([source for source, _ in pairs])
        targets = torch.tensor([target for _, target in pairs])
        for pool in (*self.keys, *self.values):
            pool.index_copy_(0, targets, pool.index_select(0, sources))


def _zeros(*shape: int) -> torch.Tensor:
    """Zeros that take no memory until they are written: numpy's come from calloc."""
    return torch.from_numpy(np.zeros(shape, dtype=np.float32))
