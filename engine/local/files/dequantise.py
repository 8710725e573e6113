"""The block formats of GGUF tensors: bytes to float32.

A row is cut into blocks of 32 or 256 values with common scales. Source: ggml's ggml-quants.h and
ggml-quants.c; every result is equal to the reference's to the bit, so the order of operations is
theirs: scales are multiplied with one another first, a minimum is subtracted last.

Codes are unpacked eight at a time, in 64-bit words, and down the columns of a table of words: along
its short rows, the loop around a loop would cost more than the work. All of it is numpy, which
starts no threads of its own, so that several may work on a tensor at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

__all__ = ["FORMATS", "NAMES", "Coded", "Coding", "Format"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.uint64]
Blocks = npt.NDArray[np.void]
"""(blocks,) with a field for each part of a block."""

NAMES: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
"""What GGUF's tensor types are called, by number."""


@dataclass(frozen=True, kw_only=True)
class Coded:
    """Blocks of codes, taken apart: a value is (code - offset) * scale - minimum."""

    codes: Words
    """(blocks, block / 8): a code in each byte; below zero in two's complement."""
    scales: Floats
    """(groups, 1), in as many groups of equal size as there are scales."""
    minima: Floats | None = None
    """(groups, 1)"""


@dataclass(frozen=True, kw_only=True)
class Coding:
    """How the codes of a format are made."""

    bits: int
    group: int
    """Codes that share a scale."""
    split: Callable[[Blocks], Coded]
    offset: int = 0
    has_minima: bool = False

    def decode(self, blocks: Blocks, values: Floats) -> None:
        """Fills values, (blocks, block), from blocks."""
        coded = self.split(blocks)
        numbers = coded.codes.view(np.int8)
        if self.offset:
            np.subtract(numbers, np.int8(self.offset), out=numbers)
        values[:] = numbers.reshape(values.shape)
        groups = values.reshape(len(coded.scales), -1)
        groups *= coded.scales
        if coded.minima is not None:
            groups -= coded.minima


@dataclass(frozen=True)
class Format:
    """How a tensor's values are written."""

    name: str
    block: int
    """Values in a block."""
    parts: np.dtype[np.void]
    """The parts of a block."""
    how: Coding | Callable[[Blocks, Floats], None]
    """The codes that values are made of; or what fills plain values, (blocks, 1), from blocks."""

    @property
    def block_bytes(self) -> int:
        """Bytes in a block."""
        return self.parts.itemsize

    @property
    def coding(self) -> Coding | None:
        """How its codes are made; `None` of plain numbers."""
        return self.how if isinstance(self.how, Coding) else None

    def rows(self, raw: Bytes, values: Floats) -> None:
        """Fills whole rows, (rows, columns), in one piece, from (rows, row bytes)."""
        decode = self.how.decode if isinstance(self.how, Coding) else self.how
        with np.errstate(all="ignore"):  # a damaged scale may be infinite; the logits show it
            decode(self._blocks(raw), values.reshape(-1, self.block))

    def codes(self, raw: Bytes) -> Coded:
        """The codes of whole rows, (rows, row bytes), of a format that has some."""
        if self.coding is None:
            raise ValueError(f"{self.name} holds numbers, not codes")
        with np.errstate(all="ignore"):
            return self.coding.split(self._blocks(raw))

    def _blocks(self, raw: Bytes) -> Blocks:
        return np.ascontiguousarray(raw).reshape(-1).view(self.parts)


def _repeated(byte: int) -> np.uint64:
    """A word of eight equal bytes."""
    return np.uint64(byte * 0x0101010101010101)


def _scale(blocks: Blocks, part: str) -> Floats:
    """A float16 of each block, (blocks, 1)."""
    scales: Floats = blocks[part].astype(np.float32)[:, None]
    return scales


def _nibbles(packed: Words) -> Words:
    """The low halves of bytes, and after them the high ones. (n, words) to (n, 2 words)."""
    count, mask, shift = packed.shape[1], _repeated(15), np.uint64(4)
    codes = np.empty((len(packed), 2 * count), dtype=np.uint64)
    for word in range(count):
        column = packed[:, word]
        np.bitwise_and(column, mask, out=codes[:, word])
        upper = codes[:, count + word]
        np.right_shift(column, shift, out=upper)
        np.bitwise_and(upper, mask, out=upper)
    return codes


def _add_bits(codes: Words, packed: Words, *, bits: int) -> None:
    """Puts the bits of bytes above nibbles: of all bytes the lowest first, then the next ones.

    Args:
        codes: (n, words * 8 / bits), four bits in each byte.
        packed: (n, words)
        bits: how many bits each code gets.
    """
    count, mask = packed.shape[1], _repeated((1 << bits) - 1 << 4)
    for place in range(codes.shape[1]):
        shift = 4 - place // count * bits
        column = packed[:, place % count]
        column = column << np.uint64(shift) if shift > 0 else column >> np.uint64(-shift)
        np.bitwise_and(column, mask, out=column)
        target = codes[:, place]
        np.bitwise_or(target, column, out=target)


def _f32(blocks: Blocks, values: Floats) -> None:
    values[:, 0] = blocks["q"]


def _f16(blocks: Blocks, values: Floats) -> None:
    np.take(_HALVES, blocks["q"], out=values[:, 0], mode="clip")


def _bf16(blocks: Blocks, values: Floats) -> None:
    upper = blocks["q"].astype(np.uint32)
    np.left_shift(upper, np.uint32(16), out=values[:, 0].view(np.uint32))


def _q8_0(blocks: Blocks) -> Coded:
    codes = np.ascontiguousarray(blocks["q"]).view(np.uint64)
    return Coded(codes=codes, scales=_scale(blocks, "d"))


def _q4_0(blocks: Blocks) -> Coded:
    return Coded(codes=_nibbles(blocks["q"]), scales=_scale(blocks, "d"))


def _q4_1(blocks: Blocks) -> Coded:
    return replace(_q4_0(blocks), minima=-_scale(blocks, "m"))


def _fifth_bits(blocks: Blocks) -> Words:
    """Codes of five bits, whose highest ones stand together in four bytes. (blocks, 4)."""
    codes = _nibbles(blocks["q"])
    return np.bitwise_or(codes, np.take(_BITS, blocks["h"]), out=codes)


def _q5_0(blocks: Blocks) -> Coded:
    return Coded(codes=_fifth_bits(blocks), scales=_scale(blocks, "d"))


def _q5_1(blocks: Blocks) -> Coded:
    return replace(_q5_0(blocks), minima=-_scale(blocks, "m"))


def _six_bits(blocks: Blocks) -> tuple[Floats, Floats]:
    """Eight scales and eight minima in 12 bytes, times their own scales. (8 blocks, 1) each."""
    packed = blocks["s"].reshape(-1, 3, 4)
    low, middle, high = packed[:, 0], packed[:, 1], packed[:, 2]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 2) & 48)], axis=-1)
    minima = np.concatenate([middle & 63, (high >> 4) | ((middle >> 2) & 48)], axis=-1)
    return (
        (scales.astype(np.float32) * _scale(blocks, "d")).reshape(-1, 1),
        (minima.astype(np.float32) * _scale(blocks, "m")).reshape(-1, 1),
    )


def _q4_k(blocks: Blocks) -> Coded:
    scales, minima = _six_bits(blocks)
    codes = _nibbles(np.ascontiguousarray(blocks["q"]).reshape(-1, 4))
    return Coded(codes=codes, scales=scales, minima=minima)


def _q5_k(blocks: Blocks) -> Coded:
    scales, minima = _six_bits(blocks)
    codes = _nibbles(np.ascontiguousarray(blocks["q"]).reshape(-1, 4)).reshape(-1, 32)
    _add_bits(codes, blocks["h"], bits=1)
    return Coded(codes=codes, scales=scales, minima=minima)


def _q6_k(blocks: Blocks) -> Coded:
    codes = _nibbles(np.ascontiguousarray(blocks["q"]).reshape(-1, 8))
    _add_bits(codes, np.ascontiguousarray(blocks["h"]).reshape(-1, 4), bits=2)
    scales = blocks["s"].astype(np.float32) * _scale(blocks, "d")
    return Coded(codes=codes, scales=scales.reshape(-1, 1))


_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
"""Every float16: numpy converts one in four nanoseconds, and looks one up in one."""
_BITS = np.array(
    [sum((byte >> bit & 1) << 8 * bit + 4 for bit in range(8)) for byte in range(256)],
    dtype=np.uint64,
)
"""For each byte, the word that holds its bits, one in each byte, in the fifth place."""


def _parts(*fields: tuple[str, str, int]) -> np.dtype[np.void]:
    """The parts of a block: names, types and how many of each."""
    return np.dtype(
        [(name, type_, (count,)) if count > 1 else (name, type_) for name, type_, count in fields]
    )


_D, _M = ("d", "<f2", 1), ("m", "<f2", 1)
_SIX_BITS = ("s", "u1", 12)

FORMATS: Mapping[str, Format] = {
    format_.name: format_
    for format_ in (
        Format("F32", 1, _parts(("q", "<f4", 1)), _f32),
        Format("F16", 1, _parts(("q", "<u2", 1)), _f16),
        Format("BF16", 1, _parts(("q", "<u2", 1)), _bf16),
        Format("Q8_0", 32, _parts(_D, ("q", "i1", 32)), Coding(bits=8, group=32, split=_q8_0)),
        Format(
            "Q4_0",
            32,
            _parts(_D, ("q", "<u8", 2)),
            Coding(bits=4, group=32, split=_q4_0, offset=8),
        ),
        Format(
            "Q4_1",
            32,
            _parts(_D, _M, ("q", "<u8", 2)),
            Coding(bits=4, group=32, split=_q4_1, has_minima=True),
        ),
        Format(
            "Q5_0",
            32,
            _parts(_D, ("h", "u1", 4), ("q", "<u8", 2)),
            Coding(bits=5, group=32, split=_q5_0, offset=16),
        ),
        Format(
            "Q5_1",
            32,
            _parts(_D, _M, ("h", "u1", 4), ("q", "<u8", 2)),
            Coding(bits=5, group=32, split=_q5_1, has_minima=True),
        ),
        Format(
            "Q4_K",
            256,
            _parts(_D, _M, _SIX_BITS, ("q", "<u8", 16)),
            Coding(bits=4, group=32, split=_q4_k, has_minima=True),
        ),
        Format(
            "Q5_K",
            256,
            _parts(_D, _M, _SIX_BITS, ("h", "<u8", 4), ("q", "<u8", 16)),
            Coding(bits=5, group=32, split=_q5_k, has_minima=True),
        ),
        Format(
            "Q6_K",
            256,
            _parts(("q", "<u8", 16), ("h", "<u8", 8), ("s", "i1", 16), _D),
            Coding(bits=6, group=16, split=_q6_k, offset=32),
        ),
    )
}
"""The formats that are supported, by name."""
