"""Tensors that lie in files, and how they come into memory: a few rows at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from ttc.engine.local.dequantise import Format

__all__ = ["Rows", "Staging", "Tensor", "Weights", "stacked"]

_PIECE = 1 << 17  # values that are read at once: their temporaries stay in the processor's cache
_SERIAL = 1 << 15  # values up to which PyTorch uses one thread


class Rows(Protocol):
    """A tensor of which rows can be read, as float32; every `torch.Tensor` is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""

    def __getitem__(self, where: slice | torch.Tensor) -> torch.Tensor:
        """Some of its rows."""


Weights = Mapping[str, Rows]
"""A model's tensors by name."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor in its file."""

    shape: tuple[int, ...]
    """As PyTorch has it: rows first, the contiguous dimension last."""
    format: Format
    raw: npt.NDArray[np.uint8]
    """(rows, bytes of a row), mapped. A vector is a column."""

    def __getitem__(self, where: slice | torch.Tensor) -> torch.Tensor:
        """Some of its rows, dequantised to float32."""
        raw = self.raw[where if isinstance(where, slice) else where.numpy()]
        return torch.from_numpy(self.format.rows(raw)).view(len(raw), *self.shape[1:])


class Staging:
    """Memory in which one matrix after another is put together.

    Fresh memory costs more than what is written to it, so it is used again, and the matrix before
    must be done with: whoever keeps one makes a copy.
    """

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor."""
        num_bytes = math.prod(shape) * dtype.itemsize
        if num_bytes > len(self._memory):
            self._memory = torch.empty(0, dtype=torch.uint8)  # first give the old one back
            self._memory = torch.empty(num_bytes, dtype=torch.uint8)
        return self._memory[:num_bytes].view(dtype).view(shape)


def stacked(
    parts: Sequence[Rows], dtype: torch.dtype, staging: Staging | None = None
) -> torch.Tensor:
    """Tensors below one another, read a few rows at a time into one piece of memory.

    As many threads read as PyTorch computes with, each one by itself: what one does takes a tenth
    of a millisecond, too short for threads to wait for each other.

    Args:
        parts: the tensors, of equal columns.
        dtype: float32 or a narrower type to round to.
        staging: where to put them; memory of their own by default.
    """
    columns = tuple(parts[0].shape[1:])
    staging = Staging() if staging is None else staging
    whole = staging.take((sum(part.shape[0] for part in parts), *columns), dtype)
    at_once = max(1, _PIECE // math.prod(columns))
    jobs: list[tuple[Rows, slice, torch.Tensor]] = []
    first = 0
    for part in parts:
        target = whole[first : first + part.shape[0]]
        first += part.shape[0]
        for start in range(0, part.shape[0], at_once):
            piece = slice(start, start + at_once)
            jobs.append((part, piece, target[piece]))
    if len(jobs) <= len(parts):
        for job in jobs:
            _read(*job)
        return whole
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for done in [pool.submit(_read, *job) for job in jobs]:
            done.result()
    return whole


def _read(part: Rows, piece: slice, target: torch.Tensor) -> None:
    values = part[piece]
    if target.dtype == torch.float32:
        target.numpy()[...] = values.numpy()
        return
    rows = max(1, _SERIAL // math.prod(values.shape[1:]))
    for some, place in zip(torch.split(values, rows), torch.split(target, rows), strict=True):
        place.copy_(some)
