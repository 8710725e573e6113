"""Linear layers whose every output row depends on its own input row alone, to the bit.

Matrix libraries choose their kernel, and with it the order of summation, by the number of rows; a
sequence's logits would then depend on its neighbours in the batch. So kernels are probed when a
model is loaded, for each weight shape, on the processor and with the threads that will run them,
and the first one that passes is taken. Seen with torch 2.13 on AVX2: oneDNN's float32 kernel for
reordered weights passes at every number of rows and is twice as fast as MKL's behind `F.linear`,
which passes where rows come in multiples of 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F

from ttc.safe_text import safe_logger

__all__ = ["Kernel", "Linear", "LinearFactory", "onednn", "padded", "tiled"]

logger = safe_logger(__name__)

_TILE_ROWS = 16
_PROBE_ROWS = (1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 17, 24, 33, 65, 130)
_PROBE_ROWS_OF_LARGE_WEIGHTS = (1, 4, 17, 72)
_LARGE_WEIGHT = 1 << 24  # elements: a vocabulary's head, where each probe takes milliseconds


class Linear(Protocol):
    """Multiplies float32 rows with a weight: (rows, inputs) to (rows, outputs)."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The products, in float32."""


Kernel = Callable[[torch.Tensor], Linear]
"""Makes a layer of its weight, (outputs, inputs), of which it keeps a copy."""


def onednn(weight: torch.Tensor) -> Linear:
    """oneDNN, with the weight reordered once into the blocks that its kernels read."""
    reordered = torch.ops.mkldnn._reorder_linear_weight(weight, _TILE_ROWS)
    multiply = torch.ops.mkldnn._linear_pointwise
    dtype = weight.dtype

    def linear(x: torch.Tensor) -> torch.Tensor:
        product: torch.Tensor = multiply(x.to(dtype), reordered, None, "none", [], "")
        return product.float()

    return linear


def padded(multiple: int) -> Kernel:
    """`F.linear`, with zero rows added up to a multiple."""

    def kernel(weight: torch.Tensor) -> Linear:
        weight = weight.clone()

        def linear(x: torch.Tensor) -> torch.Tensor:
            rows = x.shape[0]
            x = F.pad(x.to(weight.dtype), (0, 0, 0, -rows % multiple))
            return F.linear(x, weight)[:rows].float()

        return linear

    return kernel


def tiled(weight: torch.Tensor) -> Linear:
    """`F.linear` on tiles of one fixed size: invariant whatever the library does, and slow."""
    weight = weight.clone()

    def linear(x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        x = F.pad(x.to(weight.dtype), (0, 0, 0, -rows % _TILE_ROWS))
        products = [F.linear(tile, weight) for tile in torch.split(x, _TILE_ROWS)]
        return torch.cat(products)[:rows].float()

    return linear


_KERNELS: dict[str, Kernel] = {
    "onednn": onednn,
    "linear/4": padded(4),
    "linear/8": padded(8),
    "linear/16": padded(16),
}


class LinearFactory:
    """Makes linear layers, probing each new shape once."""

    def __init__(self, dtype: torch.dtype, kernels: dict[str, Kernel] | None = None) -> None:
        self._dtype = dtype
        self._kernels = _KERNELS if kernels is None else kernels
        self._chosen: dict[torch.Size, tuple[str, Kernel]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels in use; they decide the bits of a result."""
        return tuple(sorted({name for name, _ in self._chosen.values()}))

    def __call__(self, weight: torch.Tensor) -> Linear:
        """A layer of a float32 weight, (outputs, inputs), computed in the factory's type."""
        weight = weight.to(self._dtype)
        if weight.shape not in self._chosen:
            return self._choose(weight)
        _, kernel = self._chosen[weight.shape]
        return kernel(weight)

    def _choose(self, weight: torch.Tensor) -> Linear:
        """The first layer of a shape, by the kernel that all others of that shape will have."""
        for name, kernel in self._kernels.items():
            try:
                layer = kernel(weight)
                if _is_row_invariant(layer, weight):
                    self._chosen[weight.shape] = name, kernel
                    return layer
            except (AttributeError, RuntimeError):  # a build or processor without this kernel
                logger.debug("no kernel %s for %s", name, weight.dtype, exc_info=True)
        logger.warning(
            "no matrix kernel is row-invariant for a %s weight of shape %s here; "
            "falling back to fixed tiles of %d rows, which is slow",
            weight.dtype,
            tuple(weight.shape),
            _TILE_ROWS,
        )
        self._chosen[weight.shape] = "tiles", tiled
        return tiled(weight)


def _is_row_invariant(linear: Linear, weight: torch.Tensor) -> bool:
    """Whether rows come out the same in any company. Random inputs, the same at every load."""
    *counts, most = _PROBE_ROWS if weight.numel() < _LARGE_WEIGHT else _PROBE_ROWS_OF_LARGE_WEIGHTS
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(most, weight.shape[1], generator=generator)
    together = linear(x)
    return all(
        torch.equal(linear(x[start : start + count]), together[start : start + count])
        for start, count in zip(itertools.cycle((0, 5, 2)), counts, strict=False)
    )
