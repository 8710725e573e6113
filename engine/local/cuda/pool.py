"""The memory of keys and values on the device: pages of 16 positions, as numbers or int8 codes.

A page's bytes are a function of its own tokens and those before them. With int8 every head of a
position has a scale of its own, so writing a position never touches the codes of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ttc.engine.local.config import ModelConfig
from ttc.engine.local.kv import KVPool
from ttc.engine.local.plan import PAGE

__all__ = ["Cache", "DevicePool"]


class Cache(NamedTuple):
    """The pages of one layer."""

    keys: torch.Tensor
    """(pages, key heads, PAGE, D)"""
    values: torch.Tensor
    """The same."""
    key_scales: torch.Tensor | None
    """(pages, key heads, PAGE) float32, where numbers are int8 codes."""
    value_scales: torch.Tensor | None
    """The same."""


class DevicePool(KVPool):
    """Keys and values of every layer.

    Args:
        config: the model.
        num_pages: pages of each layer.
        dtype: of the numbers; int8 codes have scales.
        device: where they lie.
        copy: copies pages, (n, 2) of from and to, of which none is both, in every layer.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_pages: int,
        dtype: torch.dtype,
        device: torch.device,
        copy: Callable[[torch.Tensor, torch.Tensor], None],
    ) -> None:
        shape = config.num_layers, num_pages, config.num_kv_heads, PAGE
        self._device, self._copy = device, copy

        def zeros(*more: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros((*shape, *more), dtype=dtype, device=device)

        self._whole = [zeros(config.head_dim, dtype=dtype) for _ in range(2)]
        if dtype == torch.int8:
            self._whole += [zeros(dtype=torch.float32) for _ in range(2)]
        self.keys, self.values = (list(whole.unbind()) for whole in self._whole[:2])
        scales = [list(whole.unbind()) for whole in self._whole[2:]]
        self.layers = [
            Cache(keys, values, *(s[i] for s in scales))
            if scales
            else Cache(keys, values, None, None)
            for i, (keys, values) in enumerate(zip(self.keys, self.values, strict=True))
        ]
        """Those of each layer."""

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole pages, (from, to); all are read before one is written."""
        if not pairs:
            return
        on_device = torch.tensor(pairs, dtype=torch.int32).to(self._device)
        if {source for source, _ in pairs}.isdisjoint(target for _, target in pairs):
            for whole in self._whole:
                self._copy(whole, on_device)
            return
        sources, targets = on_device.long().unbind(1)
        for whole in self._whole:
            whole.index_copy_(1, targets, whole.index_select(1, sources))
