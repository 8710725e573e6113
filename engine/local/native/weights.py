"""Weights in the one format of the kernels, int8 in groups of 64, packed as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
import torch

from ttc.engine.local.files.loader import Rows
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.native.library import GROUP, PANEL, Kernels, LinearStruct

__all__ = ["Packer", "QuantisedLinear"]

_PIECE = 1 << 18  # values that are read at once: they stay in the processor's cache


class QuantisedLinear:
    """A weight as the kernels read it; it owns the memory that its structure points into."""

    def __init__(self, outputs: int, inputs: int, bias: torch.Tensor | None) -> None:
        padded = -(-outputs // PANEL) * PANEL
        columns = -(-inputs // GROUP) * GROUP
        # numpy's zeros come from calloc and take no time; 63 bytes let panels begin a cache line.
        memory = torch.from_numpy(np.zeros(padded * columns + 63, dtype=np.int8))
        start = -memory.data_ptr() % 64
        self.panels = memory[start : start + padded * columns]
        """int8 [padded / 16][columns / 4][16][4]"""
        self.scales = torch.zeros(padded // PANEL, columns // GROUP, PANEL)
        self._bias = None if bias is None else torch.nn.functional.pad(bias, (0, padded - outputs))
        self.struct = LinearStruct(
            panels=self.panels.data_ptr(),
            scales=self.scales.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            inputs=inputs,
            outputs=outputs,
        )


class Packer:
    """Reads matrices a few rows at a time and packs them, on as many threads as compute later."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def stacked(self, parts: Sequence[Rows], bias: torch.Tensor | None = None) -> QuantisedLinear:
        """Tensors of equal columns below one another, as one weight."""
        inputs = parts[0].shape[1]
        linear = QuantisedLinear(sum(part.shape[0] for part in parts), inputs, bias)
        at_once = max(1, _PIECE // inputs)
        pieces, first = [], 0
        for part in parts:
            for start in range(0, part.shape[0], at_once):
                stop = min(start + at_once, part.shape[0])
                pieces.append((part, slice(start, stop), first + start))
            first += part.shape[0]
        shares = [pieces[i :: self._threads] for i in range(self._threads)]
        for done in [self._pool.submit(self._pack, share, linear, at_once) for share in shares]:
            done.result()
        return linear

    def _pack(
        self, pieces: Sequence[tuple[Rows, slice, int]], linear: QuantisedLinear, at_once: int
    ) -> None:
        memory = np.empty((at_once, linear.struct.inputs), dtype=np.float32)
        for part, where, first_row in pieces:
            values = memory[: where.stop - where.start]
            if isinstance(part, Tensor):
                part.read_into(values, where)
            else:
                values[:] = part[where].float().numpy()
            self._kernels.pack(torch.from_numpy(values), first_row, linear.panels, linear.scales)
