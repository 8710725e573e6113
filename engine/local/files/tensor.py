"""A tensor that lies in a file, and is read a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ttc.engine.local.files.dequantise import Coded, Format

if TYPE_CHECKING:
    import torch

__all__ = ["Tensor"]


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor in its file."""

    shape: tuple[int, ...]
    """As PyTorch has it: rows first, the contiguous dimension last."""
    format: Format
    raw: npt.NDArray[np.uint8]
    """(rows, bytes of a row), mapped. A vector is a column."""
    places: npt.NDArray[np.int64] | None = None
    """For each row, where it lies, unless all lie in order."""

    def __getitem__(self, where: slice | torch.Tensor) -> torch.Tensor:
        """Some of its rows, dequantised to float32."""
        from torch import from_numpy  # not needed to read a header, and it takes a second

        some = where if isinstance(where, slice) else where.numpy()
        raw = self._raw(some)
        values = np.empty((len(raw), *self.shape[1:]), dtype=np.float32)
        self.format.rows(raw, values)
        return from_numpy(values)

    def read_into(self, target: npt.NDArray[np.float32], where: slice) -> None:
        """Some of its rows, dequantised to float32 where they are wanted."""
        self.format.rows(self._raw(where), target)

    def codes(self, where: slice) -> Coded:
        """The codes of some of its rows, of a format that has some."""
        return self.format.codes(self._raw(where))

    def first(self, count: int) -> Tensor:
        """Its first rows."""
        if self.places is None:
            return replace(self, shape=(count, *self.shape[1:]), raw=self.raw[:count])
        return replace(self, shape=(count, *self.shape[1:]), places=self.places[:count])

    def _raw(self, some: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        return self.raw[some if self.places is None else self.places[some]]
