"""How tensors come into memory from wherever they lie: a few rows at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self

import torch

from ttc.engine.local.files.tensor import Tensor

__all__ = ["Loader", "Rows", "Weights", "vector"]

_PIECE = 1 << 18  # values that are read at once: they stay in the processor's cache
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


def vector(rows: Rows) -> torch.Tensor:
    """A whole small tensor, in float32."""
    return rows[:].clone()


class Loader:
    """Puts matrices together in memory, one after another in the same place.

    Fresh memory costs more than what is written to it, so it is used again, and the matrix before
    must be done with: whoever keeps one makes a copy. As many threads read as PyTorch computes
    with, each one by itself: what one does takes a tenth of a millisecond, too short for threads to
    wait for each other.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(self._threads)  # it starts a thread when it needs one

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def stacked(self, parts: Sequence[Rows]) -> torch.Tensor:
        """Tensors of equal columns below one another, (rows of all, columns)."""
        columns = parts[0].shape[1]
        whole = self._take(sum(part.shape[0] for part in parts), columns)
        at_once = max(1, _PIECE // columns)
        pieces: list[tuple[Rows, slice, torch.Tensor]] = []
        first = 0
        for part in parts:
            target = whole[first : first + part.shape[0]]
            first += part.shape[0]
            for start in range(0, part.shape[0], at_once):
                piece = slice(start, start + at_once)
                pieces.append((part, piece, target[piece]))
        others = [
            self._pool.submit(_read, pieces[i :: self._threads]) for i in range(1, self._threads)
        ]
        _read(pieces[:: self._threads])
        for other in others:
            other.result()
        return whole

    def _take(self, rows: int, columns: int) -> torch.Tensor:
        num_bytes = rows * columns * self._dtype.itemsize
        if num_bytes > len(self._memory):
            self._memory = torch.empty(0, dtype=torch.uint8)  # first give the old one back
            self._memory = torch.empty(num_bytes, dtype=torch.uint8)
        return self._memory[:num_bytes].view(self._dtype).view(rows, columns)


@torch.inference_mode()  # as the thread that asks may be, and memory made there needs it
def _read(pieces: Sequence[tuple[Rows, slice, torch.Tensor]]) -> None:
    for part, where, target in pieces:
        if isinstance(part, Tensor) and target.dtype == torch.float32:
            part.read_into(target.numpy(), where)
            continue
        values = part[where]
        rows = max(1, _SERIAL // values.shape[1])
        for some, place in zip(torch.split(values, rows), torch.split(target, rows), strict=True):
            place.copy_(some)
