"""Weights as the kernels read them: plain numbers, int8 in groups, or the codes of a file.

A product's columns are cut into slices that follow from the weight's shape alone (`slice_columns`).
The number of programs that fill a large card is a constant here and never asked of the device, or
another card would give other bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
import torch.nn.functional as F

from ttc.engine.local.files.loader import Loader, Rows
from ttc.engine.local.files.tensor import Tensor

__all__ = [
    "BLOCK",
    "GROUP",
    "Coded",
    "Dense",
    "Int8",
    "Packer",
    "Stacked",
    "Weight",
    "coded",
    "quantised",
    "slice_columns",
]

GROUP = 64
"""Columns of int8 weights and rows that share a scale."""
BLOCK = 128
"""Columns of a slice come in whole blocks."""

_PROGRAMS, _TILE, _LEAST, _MOST = 264, 64, 256, 8


def slice_columns(outputs: int, columns: int) -> int:
    """The columns of a slice: enough slices to fill a card, few enough to be worth adding up."""
    wanted = min(_MOST, max(1, _PROGRAMS // -(-outputs // _TILE)), max(1, columns // _LEAST))
    return -(-columns // (wanted * BLOCK)) * BLOCK


@dataclass(frozen=True, kw_only=True)
class Dense:
    """Plain numbers."""

    values: torch.Tensor
    """(N, K)"""

    @property
    def shape(self) -> tuple[int, int]:
        """N and K."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        return self.values.nbytes


@dataclass(frozen=True, kw_only=True)
class Int8:
    """A code for each number, and a scale for each `GROUP` of a row's columns."""

    codes: torch.Tensor
    """(N, K rounded up to whole groups) int8"""
    scales: torch.Tensor
    """(groups, N) float32"""
    shape: tuple[int, int]
    """N and K."""

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        return self.codes.nbytes + self.scales.nbytes


@dataclass(frozen=True, kw_only=True)
class Coded:
    """A file's codes: a weight is (code - offset) * scale + minimum."""

    codes: torch.Tensor
    """Of 4 bits (N, blocks, 64) uint8, see `kernels.product`; else (N, blocks, 128) int8."""
    scales: torch.Tensor
    """(N, blocks, BLOCK / group) float16"""
    minima: torch.Tensor | None
    """The same."""
    bits: int
    offset: int
    group: int
    shape: tuple[int, int]
    """N and K."""

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        minima = 0 if self.minima is None else self.minima.nbytes
        return self.codes.nbytes + self.scales.nbytes + minima

    def decoded(self, dtype: torch.dtype) -> torch.Tensor:
        """The weight, (N, K)."""
        codes = self.codes
        if self.bits == 4:
            codes = torch.cat([codes & 15, codes >> 4], dim=-1)
        numbers = (codes.int() - self.offset).float().view(*self.scales.shape, self.group)
        values = numbers * self.scales.float()[..., None]
        if self.minima is not None:
            values = values + self.minima.float()[..., None]
        return values.view(len(codes), -1)[:, : self.shape[1]].to(dtype)


Weight = Dense | Int8 | Coded


@dataclass(frozen=True, kw_only=True)
class Stacked:
    """Weights below one another, which the same rows are multiplied with, and a bias."""

    weights: tuple[Weight, ...]
    bias: torch.Tensor | None = None
    """(outputs of all,) float32"""

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs of all, and columns."""
        return sum(weight.shape[0] for weight in self.weights), self.weights[0].shape[1]

    @property
    def slice_columns(self) -> int:
        """The columns of a slice, which the shape of all tells."""
        return slice_columns(*self.shape)

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        return sum(weight.num_bytes for weight in self.weights)


def quantised(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as int8: codes, (rows, columns rounded up), and scales, (rows, groups).

    A row with a number that is not finite has a scale that is none.
    """
    groups = F.pad(x.float(), (0, -x.shape[1] % GROUP)).view(len(x), -1, GROUP)
    peaks = groups.abs().amax(-1)
    inverse = torch.where(peaks > 0, 127.0 / peaks, 0.0)
    codes = (groups * inverse[..., None]).round().nan_to_num().to(torch.int8)
    return codes.view(len(x), -1), peaks / 127.0 + (groups * 0.0).sum(-1)


def coded(part: Tensor) -> Coded:
    """A tensor of a file with its codes, put where the kernel takes them from."""
    coding = part.format.coding
    assert coding is not None
    rows, columns = part.shape
    found = part.codes(slice(0, rows))
    codes = found.codes.view(np.int8).reshape(rows, -1)
    padded = -(-columns // BLOCK) * BLOCK
    # Codes of padding have a scale and a minimum of 0, whatever they are.
    codes = np.pad(codes, ((0, 0), (0, padded - columns)))
    groups = ((0, 0), (0, padded // coding.group - columns // coding.group))
    with np.errstate(all="ignore"):  # what is too large becomes infinite, and the logits show it
        scales = np.pad(found.scales.astype(np.float16).reshape(rows, -1), groups)
        minima = (
            None
            if found.minima is None
            else np.pad((-found.minima).astype(np.float16).reshape(rows, -1), groups)
        )
    if coding.bits == 4:
        half = BLOCK // 2
        nibbles = codes.view(np.uint8).reshape(rows, -1, BLOCK)
        packed = torch.from_numpy(nibbles[..., :half] | (nibbles[..., half:] << 4))
    else:
        packed = torch.from_numpy(codes).view(rows, -1, BLOCK)
    shape = rows, padded // BLOCK, BLOCK // coding.group
    return Coded(
        codes=packed,
        scales=torch.from_numpy(scales).view(shape),
        minima=None if minima is None else torch.from_numpy(minima).view(shape),
        bits=coding.bits,
        offset=coding.offset,
        group=coding.group,
        shape=(rows, columns),
    )


class Packer:
    """Reads weights from wherever they lie and brings them to a device.

    Args:
        kind: `int8`, or `file` for the codes of a file; else plain numbers.
        dtype: of plain numbers.
        device: where they go.
    """

    def __init__(self, kind: str, dtype: torch.dtype, device: torch.device) -> None:
        self._kind, self._dtype, self._device = kind, dtype, device
        self._loader = Loader(torch.float32 if kind == "int8" else dtype)
        self.formats: set[str] = set()
        """Of the tensors whose codes were kept, what they are called."""
        self.num_weights = self.num_bytes = 0
        """Of all that was packed, scales included."""

    def __enter__(self) -> Packer:
        self._loader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._loader.__exit__(*error)

    def stacked(self, parts: Sequence[Rows], bias: torch.Tensor | None = None) -> Stacked:
        """Tensors of equal columns below one another, those of one kind as one weight."""
        weights: list[Weight] = []
        for has_codes, run in groupby(parts, self._keeps):
            if has_codes:
                weights += [self._coded(part) for part in run if isinstance(part, Tensor)]
            else:
                weights.append(self._plain(list(run)))
        self.num_weights += sum(part.shape[0] * part.shape[1] for part in parts)
        self.num_bytes += sum(weight.num_bytes for weight in weights)
        return Stacked(
            weights=tuple(weights), bias=None if bias is None else bias.float().to(self._device)
        )

    def _keeps(self, part: Rows) -> bool:
        return self._kind == "file" and isinstance(part, Tensor) and part.format.coding is not None

    def _coded(self, part: Tensor) -> Coded:
        self.formats.add(part.format.name)
        weight = coded(part)
        return Coded(
            codes=weight.codes.to(self._device),
            scales=weight.scales.to(self._device),
            minima=None if weight.minima is None else weight.minima.to(self._device),
            bits=weight.bits,
            offset=weight.offset,
            group=weight.group,
            shape=weight.shape,
        )

    def _plain(self, parts: Sequence[Rows]) -> Dense | Int8:
        whole = self._loader.stacked(parts)
        if self._kind != "int8":
            # The loader uses its memory again, so what stays on the host is a copy.
            return Dense(values=whole.to(self._device, copy=True))
        codes, scales = quantised(whole)
        return Int8(
            codes=codes.to(self._device),
            scales=scales.T.contiguous().to(self._device),
            shape=(whole.shape[0], whole.shape[1]),
        )
