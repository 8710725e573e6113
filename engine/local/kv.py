"""The memory of keys and values: one pool of pages for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ttc.costs import Costs
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.plan import PAGE

__all__ = ["KVPool", "kv_costs"]

_LINE = 64  # bytes; vectors of the kernels are loaded from multiples of their own size


def kv_costs(config: ModelConfig, dtype: torch.dtype) -> Costs:
    """What a model spends on each token, with keys and values of a type; codes have scales."""
    costs = config.costs(kv_number_bytes=dtype.itemsize)
    if dtype != torch.int8:
        return costs
    scales = 2 * config.num_layers * config.num_kv_heads * torch.float32.itemsize
    return replace(costs, kv_bytes_per_token=costs.kv_bytes_per_token + scales)


class KVPool:
    """Keys and values of every layer, in pages of `PAGE` positions.

    Zero-filled: in PyTorch hidden positions have a weight of exactly 0, and 0 times an
    uninitialised infinity or NaN would spoil the sum.

    Args:
        config: the model.
        num_pages: pages of each layer.
        dtype: float32, as PyTorch multiplies them, or bfloat16 or int8 codes, as the kernels do;
            see `pages.h` and `kv_codes.h`.
    """

    def __init__(
        self, config: ModelConfig, num_pages: int, dtype: torch.dtype = torch.float32
    ) -> None:
        size = config.head_dim
        key_page: tuple[int, ...]
        value_page: tuple[int, ...]
        if dtype == torch.float32:
            key_page, value_page = (size, PAGE), (PAGE, size)
        elif dtype == torch.int8:
            key_page = value_page = (size // 4, PAGE, 4)
        else:
            key_page, value_page = (size // 2, PAGE, 2), (PAGE // 2, size, 2)
        pages = num_pages, config.num_kv_heads
        self.keys = [_zeros((*pages, *key_page), dtype) for _ in range(config.num_layers)]
        """For each layer (pages, key heads, head size, PAGE), or (…, head size / 2, PAGE, 2), or of
        codes (…, head size / 4, PAGE, 4)."""
        self.values = [_zeros((*pages, *value_page), dtype) for _ in range(config.num_layers)]
        """For each layer (pages, key heads, PAGE, head size), or (…, PAGE / 2, head size, 2), or of
        codes as many bytes as keys have."""
        scaled = range(config.num_layers if dtype == torch.int8 else 0)
        self.key_scales = [_zeros((*pages, PAGE), torch.float32) for _ in scaled]
        """For each layer of codes (pages, key heads, PAGE)."""
        self.value_scales = [_zeros((*pages, PAGE), torch.float32) for _ in scaled]
        """The same."""

    @staticmethod
    def page_bytes(costs: Costs) -> int:
        """Bytes of one page over all layers, of a model with these costs."""
        return costs.kv_bytes_per_token * PAGE

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages, (from, to); all are read before one is written."""
        if not pairs:
            return
        sources = torch.tensor([source for source, _ in pairs])
        targets = torch.tensor([target for _, target in pairs])
        for pool in (*self.keys, *self.values, *self.key_scales, *self.value_scales):
            pool.index_copy_(0, targets, pool.index_select(0, sources))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take no memory until they are written: numpy's come from calloc."""
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = torch.from_numpy(np.zeros(num_bytes + _LINE - 1, dtype=np.uint8))
    start = -memory.data_ptr() % _LINE
    return memory[start : start + num_bytes].view(dtype).view(shape)
