"""What the kernels compute on, as ctypes sees it: the structures of `step.h`, field by field."""

from __future__ import annotations

from collections.abc import Sequence, Set
from ctypes import CDLL, POINTER, Structure, c_float, c_int32, c_void_p, cast

import numpy as np
import numpy.typing as npt
import torch

from ttc.engine.local.native.build import OPTIONS, load_libraries, load_library

__all__ = [
    "DRAW",
    "DRAWN",
    "GROUP",
    "INT8",
    "PANEL",
    "PART",
    "SEGMENT",
    "Kernels",
    "LayerStruct",
    "LinearStruct",
    "MatrixStruct",
    "ModelStruct",
    "RowsStruct",
    "StateStruct",
    "StepStruct",
]

GROUP, PART, PANEL, SEGMENT = 64, 16, 16, 256
"""Columns of activations that share a scale, and of which the sum is known; outputs that lie
together; and positions that attention folds one chunk after another. See `step.h`."""
INT8 = 0
"""The format of matrices that is our own."""


class MatrixStruct(Structure):
    """`struct matrix`."""

    _fields_ = (
        ("panels", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("outputs", c_int32),
        ("first", c_int32),
        ("format", c_int32),
    )


class LinearStruct(Structure):
    """`struct linear`."""

    _fields_ = (
        ("matrices", POINTER(MatrixStruct)),
        ("num_matrices", c_int32),
        ("outputs", c_int32),
    )


class RowsStruct(Structure):
    """`struct rows`."""

    _fields_ = (
        ("codes", c_void_p),
        ("scales", c_void_p),
        ("sums", c_void_p),
        ("columns", c_int32),
    )


class LayerStruct(Structure):
    """`struct layer`."""

    _fields_ = (
        ("qkv", LinearStruct),
        ("output", LinearStruct),
        ("gate_up", LinearStruct),
        ("down", LinearStruct),
        ("attention_norm", c_void_p),
        ("feed_forward_norm", c_void_p),
        ("qk_norm", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("key_scales", c_void_p),
        ("value_scales", c_void_p),
        ("is_rotated", c_int32),
        ("window", c_int32),
    )


class ModelStruct(Structure):
    """`struct model`."""

    _fields_ = (
        ("layers", POINTER(LayerStruct)),
        ("head", LinearStruct),
        ("norm", c_void_p),
        ("norm_eps", c_float),
        ("query_scale", c_float),
        ("num_layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("feed_forward", c_int32),
    )


class StateStruct(Structure):
    """`struct state`."""

    _fields_ = (
        ("values", c_void_p),
        ("peaks", c_void_p),
        ("masses", c_void_p),
    )


class StepStruct(Structure):
    """`struct step`."""

    _fields_ = (
        ("residual", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("readers", c_void_p),
        ("pages", c_void_p),
        ("wanted", c_void_p),
        ("logits", c_void_p),
        ("qkv", c_void_p),
        ("attended", c_void_p),
        ("gate_up", c_void_p),
        ("scratch", c_void_p),
        ("codes", RowsStruct),
        ("states", StateStruct),
        ("items", c_void_p),
        ("num_rows", c_int32),
        ("num_wanted", c_int32),
        ("num_segments", c_int32),
        ("num_items", c_int32),
    )


DRAW = np.dtype(
    [
        ("key", np.uint64),
        ("seen", np.uint64),
        ("counts", np.uint64),
        ("biased", np.uint64),
        ("biases", np.uint64),
        ("allowed", np.uint64),
        ("temperature", np.float32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("repetition", np.float32),
        ("presence", np.float32),
        ("frequency", np.float32),
        ("top_k", np.int32),
        ("num_top", np.int32),
        ("num_seen", np.int32),
        ("num_biased", np.int32),
        ("moments", np.int32),
    ],
    align=True,
)
"""`struct draw`."""
DRAWN = np.dtype(
    [
        ("logprob", np.float64),
        ("normaliser", np.float64),
        ("entropy", np.float64),
        ("certainty", np.float64),
        ("peak", np.float32),
        ("token", np.int32),
    ],
    align=True,
)
"""`struct drawn`."""


class Kernels:
    """The library's functions.

    Args:
        options: of the compiler; see `build`.

    Raises:
        EngineError: the library cannot be built.
    """

    def __init__(self, options: Sequence[str] = OPTIONS) -> None:
        self.options = tuple(options)
        library = load_library(options)
        self._pack, self._run_step = library.pack, library.run_step
        self._pack.argtypes = [c_void_p, c_int32, c_int32, c_int32, c_void_p, c_void_p]
        self.library = library
        self._formats: dict[int, CDLL] = {}
        self._run_step.argtypes = [POINTER(ModelStruct), POINTER(StepStruct)]
        self._measure_rows, self._sample = library.measure_rows, library.sample
        self._measure_rows.argtypes = [c_void_p, c_int32, c_int32, c_void_p]
        self._sample.argtypes = [c_void_p, c_int32, c_int32, *[c_void_p] * 4, c_int32]
        self._scratch = torch.empty(0, 0)
        for function in (self._pack, self._run_step, self._measure_rows):
            function.restype = None
        self._sample.restype = None

    def pack(
        self, weight: torch.Tensor, first_row: int, panels: torch.Tensor, scales: torch.Tensor
    ) -> None:
        """Quantises rows of a weight, (n, inputs) float32, into panels and scales."""
        rows, inputs = weight.shape
        self._pack(weight.data_ptr(), rows, inputs, first_row, panels.data_ptr(), scales.data_ptr())

    def load_formats(self, kinds: Set[int]) -> None:
        """Loads the kernels of formats of files, which the step finds from then on."""
        missing = sorted(kinds - {INT8, *self._formats})
        if not missing:
            return
        found = load_libraries([(*self.options, f"-DFORMAT={kind}") for kind in missing], "blocks")
        for kind, blocks in zip(missing, found, strict=True):
            blocks.pack_blocks.argtypes = [*[c_void_p] * 3, *[c_int32] * 3, c_void_p]
            blocks.pack_blocks.restype, blocks.bytes_of_block.restype = None, c_int32
            multipliers = (c_void_p * (1 + max(kinds))).in_dll(self.library, "multiply_codes")
            multipliers[kind] = cast(blocks.multiply_blocks, c_void_p).value
            self._formats[kind] = blocks

    def pack_blocks(
        self,
        kind: int,
        coded: tuple[
            npt.NDArray[np.uint8], npt.NDArray[np.float16], npt.NDArray[np.float16] | None
        ],
        first_row: int,
        panels: torch.Tensor,
    ) -> None:
        """Moves rows of codes (n, inputs), scales and minima (n, groups) into panels."""
        codes, scales, minima = coded
        self._formats[kind].pack_blocks(
            codes.ctypes.data,
            scales.ctypes.data,
            None if minima is None else minima.ctypes.data,
            *codes.shape,
            first_row,
            panels.data_ptr(),
        )

    def block_bytes(self, kind: int) -> int:
        """Bytes of GROUP columns of PANEL outputs in a format of `step.h`."""
        return GROUP * PANEL if kind == INT8 else int(self._formats[kind].bytes_of_block())

    def run_step(self, model: ModelStruct, step: StepStruct) -> None:
        """Computes a step; see `step.c`."""
        self._run_step(model, step)

    def measure(self, logits: torch.Tensor) -> npt.NDArray[np.void]:
        """Of `DRAWN` the peaks and normalisers of rows (n, vocab)."""
        found = np.zeros(len(logits), DRAWN)
        self._measure_rows(logits.data_ptr(), *logits.shape, found.ctypes.data)
        return found

    def sample(
        self, logits: torch.Tensor, draws: npt.NDArray[np.void]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.float32]]:
        """A token for each row, as `DRAW` says; and the greatest logits, (n, most asked for)."""
        found = np.zeros(len(logits), DRAWN)
        most = int(draws["num_top"].max())
        top = np.empty((len(logits), most), dtype=np.float32)
        room = torch.get_num_threads(), logits.shape[1]
        if self._scratch.shape != room:  # kept: fresh memory would cost more than the draw
            self._scratch = torch.empty(room)
        self._sample(
            logits.data_ptr(),
            *logits.shape,
            *(
                draws.ctypes.data,
                found.ctypes.data,
                self._scratch.data_ptr(),
                top.ctypes.data,
                most,
            ),
        )
        return found, top
