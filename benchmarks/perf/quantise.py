"""Writes float32 rows in any of GGUF's block formats.

gguf-py writes most of them; the formats of 256 values (Q4_K, Q5_K, Q6_K) it can only read, so they
are written here, as simply as they can be: scales from the extremes of a group, codes rounded.
llama.cpp searches for better scales, so its files are a little better, and equal in kind. Source of
the layouts: ggml's ggml-quants.h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Kind
from gguf.quants import quantize

__all__ = ["format_for", "quantised"]

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def format_for(columns: int, kind: Kind) -> Kind:
    """The format of rows: as asked, or Q8_0 where they are no whole number of its blocks."""
    return kind if columns % GGML_QUANT_SIZES[kind][0] == 0 else Kind.Q8_0


def quantised(values: Floats, kind: Kind) -> npt.NDArray[Any]:
    """Rows, (rows, columns), in a format; (rows, bytes of a row) for one of blocks."""
    if kind not in (Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
        plain: npt.NDArray[Any] = quantize(values, kind)
        return plain
    blocks = values.reshape(-1, 256).astype(np.float32)
    packed = _q6_k(blocks) if kind == Kind.Q6_K else _q45_k(blocks, 4 if kind == Kind.Q4_K else 5)
    return packed.reshape(len(values), -1)


def _over(values: Floats, scales: Floats) -> Floats:
    """Values over scales; zero where a scale is zero."""
    return np.divide(values, scales, out=np.zeros_like(values), where=scales != 0)


def _half(values: Floats) -> tuple[Bytes, Floats]:
    """Numbers (n, 1) as float16, in bytes and as what they became."""
    halves = values.astype(np.float16)
    return halves.view(np.uint8).reshape(len(values), 2), halves.astype(np.float32)


def _q45_k(blocks: Floats, bits: int) -> Bytes:
    """Groups of 32: code * scale - minimum, scales and minima in six bits. (n, 256)."""
    most = (1 << bits) - 1
    groups = blocks.reshape(-1, 8, 32)
    minima = np.maximum(-groups.min(-1), 0)  # (n, 8)
    scales = (groups.max(-1) + minima) / most
    d_bytes, d = _half(scales.max(-1, keepdims=True) / 63)
    m_bytes, m = _half(minima.max(-1, keepdims=True) / 63)
    s = np.clip(np.rint(_over(scales, np.broadcast_to(d, scales.shape))), 0, 63).astype(np.uint8)
    t = np.clip(np.rint(_over(minima, np.broadcast_to(m, minima.shape))), 0, 63).astype(np.uint8)
    step = np.broadcast_to((d * s)[..., None], groups.shape)
    codes = np.rint(_over(groups + (m * t)[..., None], step)).clip(0, most).astype(np.uint8)
    packed_scales = np.concatenate(
        [
            s[:, :4] | (s[:, 4:] >> 4) << 6,
            t[:, :4] | (t[:, 4:] >> 4) << 6,
            (s[:, 4:] & 15) | (t[:, 4:] & 15) << 4,
        ],
        axis=-1,
    )
    low = codes & 15
    nibbles = (low[:, ::2] | low[:, 1::2] << 4).reshape(-1, 128)
    parts = [d_bytes, m_bytes, packed_scales]
    if bits == 5:
        fifths = (codes >> 4) << np.arange(8, dtype=np.uint8)[:, None]  # (n, 8, 32)
        parts.append(np.bitwise_or.reduce(fifths, axis=1))
    return np.concatenate([*parts, nibbles], axis=-1)


def _q6_k(blocks: Floats) -> Bytes:
    """Groups of 16: (code - 32) * scale, scales in eight bits. (n, 256)."""
    groups = blocks.reshape(-1, 16, 16)
    scales = np.abs(groups).max(-1) / 31  # (n, 16)
    d_bytes, d = _half(scales.max(-1, keepdims=True) / 127)
    s = np.rint(_over(scales, np.broadcast_to(d, scales.shape))).clip(0, 127).astype(np.int8)
    step = np.broadcast_to((d * s)[..., None], groups.shape)
    codes = (np.rint(_over(groups, step)).clip(-32, 31) + 32).astype(np.uint8)
    halves = codes.reshape(-1, 2, 4, 32)  # four rows of 32 in each half
    low, high = halves & 15, halves >> 4
    nibbles = np.stack([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], axis=2)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    pairs = np.bitwise_or.reduce(high << shifts, axis=2)  # (n, 2, 32)
    return np.concatenate(
        [nibbles.reshape(-1, 128), pairs.reshape(-1, 64), s.view(np.uint8), d_bytes], axis=-1
    )
