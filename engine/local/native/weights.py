"""Weights as the kernels read them: int8 in groups of 64, or a file's codes; packed when read.

A file's codes are kept as they are, with their scale and minimum for each group in float16: those
of blocks of 32 to the bit, those of blocks of 256, which are products, rounded to 11 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from ttc.engine.local.files.dequantise import Coded, Coding
from ttc.engine.local.files.loader import Rows
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.native.library import GROUP, INT8, PANEL, Kernels, LinearStruct, MatrixStruct

__all__ = ["Packer", "QuantisedLinear"]

_PIECE = 1 << 18  # values that are read at once: they stay in the processor's cache
_KINDS = {
    (4, 32, False): 1,
    (4, 32, True): 2,
    (5, 32, False): 3,
    (5, 32, True): 4,
    (6, 16, False): 5,
    (8, 32, False): 6,
}
"""The formats of `step.h`, by bits, columns of a group, and whether there are minima."""


class QuantisedMatrix:
    """Rows of a weight that are written alike, and the memory that they lie in."""

    def __init__(self, outputs: int, inputs: int, kind: int, block_bytes: int) -> None:
        panels, groups = -(-outputs // PANEL), -(-inputs // GROUP)
        size = panels * groups * block_bytes
        # numpy's zeros come from calloc and take no time; 63 bytes let panels begin a cache line.
        memory = torch.from_numpy(np.zeros(size + 63, dtype=np.int8))
        start = -memory.data_ptr() % 64
        self.inputs, self.outputs, self.kind = inputs, outputs, kind
        self.panels = memory[start : start + size]
        """See `struct matrix`."""
        self.scales = torch.zeros(panels, groups, PANEL) if kind == INT8 else None
        self._bias: torch.Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """What it takes, its scales included."""
        return self.panels.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def struct(self, first: int, bias: torch.Tensor | None) -> MatrixStruct:
        """The structure that points here, of outputs from `first` on."""
        if bias is not None:
            own = bias[first : first + self.outputs]
            self._bias = torch.nn.functional.pad(own, (0, -self.outputs % PANEL))
        return MatrixStruct(
            panels=self.panels.data_ptr(),
            scales=None if self.scales is None else self.scales.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            outputs=self.outputs,
            first=first,
            format=self.kind,
        )


class QuantisedLinear:
    """A weight as the kernels read it; it owns the memory that its structure points into."""

    def __init__(self, matrices: Sequence[QuantisedMatrix], bias: torch.Tensor | None) -> None:
        self.matrices = matrices
        structs, first = (MatrixStruct * len(matrices))(), 0
        for i, matrix in enumerate(matrices):
            structs[i] = matrix.struct(first, bias)
            first += matrix.outputs
        self._structs = structs
        self.struct = LinearStruct(matrices=structs, num_matrices=len(matrices), outputs=first)


class Packer:
    """Reads matrices a few rows at a time and packs them, on as many threads as compute later.

    Args:
        kernels: the compiled kernels.
        keeps_codes: whether codes stay as a file has them. Numbers without codes become int8.
    """

    def __init__(self, kernels: Kernels, *, keeps_codes: bool = False) -> None:
        self._kernels, self._keeps_codes = kernels, keeps_codes
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads)
        self.formats: set[str] = set()
        """Of the tensors whose codes were kept, what they are called; `int8` stands for others."""
        self.num_weights = self.num_bytes = 0
        """Of all that was packed, with its scales."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def prepare(self, parts: Iterable[Rows]) -> None:
        """Loads the kernels of all these tensors' formats: they are built side by side."""
        self._kernels.load_formats({self._kind(part) for part in parts})

    def stacked(self, parts: Sequence[Rows], bias: torch.Tensor | None = None) -> QuantisedLinear:
        """Tensors of equal columns below one another, as one weight."""
        self.prepare(parts)
        runs = [(kind, list(run)) for kind, run in groupby(parts, self._kind)]
        self.formats |= {self._name(part) for part in parts}
        return QuantisedLinear([self._matrix(kind, run) for kind, run in runs], bias)

    def _coding(self, part: Rows) -> Coding | None:
        """How codes that are kept as they are are made."""
        return part.format.coding if isinstance(part, Tensor) and self._keeps_codes else None

    def _kind(self, part: Rows) -> int:
        coding = self._coding(part)
        return _KINDS[coding.bits, coding.group, coding.has_minima] if coding else INT8

    def _name(self, part: Rows) -> str:
        return part.format.name if isinstance(part, Tensor) and self._coding(part) else "int8"

    def _matrix(self, kind: int, parts: Sequence[Rows]) -> QuantisedMatrix:
        inputs = parts[0].shape[1]
        outputs = sum(part.shape[0] for part in parts)
        matrix = QuantisedMatrix(outputs, inputs, kind, self._kernels.block_bytes(kind))
        self.num_weights += outputs * inputs
        self.num_bytes += matrix.num_bytes
        at_once = max(1, _PIECE // inputs)
        pieces, first = [], 0
        for part in parts:
            for start in range(0, part.shape[0], at_once):
                stop = min(start + at_once, part.shape[0])
                pieces.append((part, slice(start, stop), first + start))
            first += part.shape[0]
        shares = [pieces[i :: self._threads] for i in range(self._threads)]
        pack = self._pack if kind == INT8 else self._move
        for done in [self._pool.submit(pack, share, matrix, at_once) for share in shares]:
            done.result()
        return matrix

    def _pack(
        self, pieces: Sequence[tuple[Rows, slice, int]], matrix: QuantisedMatrix, at_once: int
    ) -> None:
        assert matrix.scales is not None
        memory = np.empty((at_once, matrix.inputs), dtype=np.float32)
        for part, where, first_row in pieces:
            values = memory[: where.stop - where.start]
            if isinstance(part, Tensor):
                part.read_into(values, where)
            else:
                values[:] = part[where].float().numpy()
            self._kernels.pack(torch.from_numpy(values), first_row, matrix.panels, matrix.scales)

    def _move(
        self, pieces: Sequence[tuple[Rows, slice, int]], matrix: QuantisedMatrix, _: int
    ) -> None:
        """Packs codes as they are."""
        for part, where, first_row in pieces:
            assert isinstance(part, Tensor)
            coded = part.codes(where)
            codes = coded.codes.view(np.uint8).reshape(-1, matrix.inputs)
            scales, minima = _halves(coded)
            self._kernels.pack_blocks(
                matrix.kind, (codes, scales, minima), first_row, matrix.panels
            )


def _halves(coded: Coded) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.float16] | None]:
    """Scales, and minima as what is added, in float16."""
    with np.errstate(all="ignore"):  # what is too large becomes infinite, and the logits show it
        scales = coded.scales.astype(np.float16)
        return scales, None if coded.minima is None else (-coded.minima).astype(np.float16)
