"""A step's operations in Triton: which kernel runs, on which tiles, and with how many warps.

The tile that rows are multiplied in follows from how many there are. It changes no bit, as far as
the tensor cores' sum for an output does not depend on the width of the other operand; `place`
checks that on the device, and where it does not hold, one tile serves every number of rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
import triton

from ttc.engine.local.attention import CHUNK
from ttc.engine.local.cuda.kernels import attention, draw, product, rowwise
from ttc.engine.local.cuda.ops import Draws, Measures, Parts, Quantised, Rows, Turning
from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import Step
from ttc.engine.local.cuda.weights import (
    BLOCK,
    GROUP,
    Coded,
    Dense,
    Int8,
    Stacked,
    Weight,
)
from ttc.engine.local.cuda.work import TILES
from ttc.engine.local.plan import PAGE

__all__ = ["PRODUCT_TILES", "Launch", "ProductTile", "TritonOps", "launch"]


class Launch(Protocol):
    """Runs a kernel, or notes that it would be run."""

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        *arguments: Any,
        warps: int = 4,
        stages: int = 3,
        **constants: Any,
    ) -> None:
        """Launches a kernel on a grid of programs."""


class ProductTile(NamedTuple):
    """Outputs and rows of a product's program, and how it runs."""

    outputs: int
    rows: int
    warps: int
    stages: int
    serial: bool
    """Whether a program goes through all slices itself."""


PRODUCT_TILES = (
    ProductTile(64, 16, 4, 4, serial=False),
    ProductTile(64, 64, 4, 4, serial=False),
    ProductTile(128, 64, 8, 3, serial=True),
)
"""Each for as many rows as it has, the last one for more.

The last one has three sums of its tile in registers where codes are multiplied: 128 rows of it
would not fit, and spill.
"""

_COPY_WORDS = 1024
_GATE_COLUMNS = 1024


def launch(
    kernel: Any,
    grid: tuple[int, ...],
    *arguments: Any,
    warps: int = 4,
    stages: int = 3,
    **constants: Any,
) -> None:
    """Launches a kernel. Products and sums are never contracted: an expression is what it says."""
    kernel[grid](
        *arguments, **constants, num_warps=warps, num_stages=stages, enable_fp_fusion=False
    )


class TritonOps:
    """Computes on a CUDA device, or in Triton's interpreter; see `ops.Ops`.

    Args:
        dtype: of rows, weights, keys and values.
        run: what launches kernels.
        product_tiles: which tiles products use.
        tiles: which tiles attention uses, of `work.TILES`.
        upcasts: whether bfloat16 is multiplied as float32, as the interpreter needs it.
    """

    captures = True

    def __init__(
        self,
        dtype: torch.dtype,
        *,
        run: Launch = launch,
        product_tiles: tuple[ProductTile, ...] = PRODUCT_TILES,
        tiles: tuple[int, ...] = TILES,
        upcasts: bool = False,
    ) -> None:
        self._dtype, self._run, self._up = dtype, run, upcasts
        self._product_tiles, self.tiles = product_tiles, tiles
        self.name = f"triton-{triton.__version__}/{len(product_tiles)}x{len(tiles)}"

    def norm(
        self, x: torch.Tensor, parts: Parts | None, weight: torch.Tensor, eps: float, int8: bool
    ) -> Rows:
        """Adds a product to the residual in place; its RMS norm."""
        num_rows, hidden = x.shape
        out, codes, scales, padded = self._room(num_rows, hidden, int8, x.device)
        sums = x if parts is None else parts.sums
        bias = None if parts is None else parts.bias
        self._run(
            rowwise.add_norm,
            (num_rows,),
            x,
            sums,
            x if bias is None else bias,
            weight,
            codes,
            scales,
            num_rows,
            hidden,
            padded,
            eps,
            SLICES=0 if parts is None else len(sums),
            BIAS=bias is not None,
            INT8=int8,
            BLOCK=_power(max(hidden, GROUP)),
            GROUP=GROUP,
        )
        return out

    def product(self, rows: Rows, weight: Stacked) -> Parts:
        """Rows times a weight."""
        width, columns = weight.shape
        some = rows.codes if isinstance(rows, Quantised) else rows
        tile = self._tile(len(some))
        slices = -(-columns // weight.slice_columns)
        out = torch.empty(1 if tile.serial else slices, len(some), width, device=some.device)
        first = 0
        for one in weight.weights:
            self._multiply(rows, one, out[..., first:], weight.slice_columns, tile)
            first += one.shape[0]
        return Parts(out, weight.bias)

    def _multiply(
        self, rows: Rows, weight: Weight, out: torch.Tensor, each: int, tile: ProductTile
    ) -> None:
        """Writes a product to the first columns of `out`, a part of (slices, R, width)."""
        outputs, columns = weight.shape
        sizes = out.shape[1], out.stride(1), outputs
        grid = (-(-outputs // tile.outputs), -(-out.shape[1] // tile.rows), len(out))
        common = {
            "SLICES": -(-columns // each),
            "SERIAL": tile.serial,
            "BN": tile.outputs,
            "BM": tile.rows,
            "warps": tile.warps,
            "stages": tile.stages,
        }
        if isinstance(rows, Quantised):
            assert isinstance(weight, Int8)
            arguments = (weight.codes, weight.scales, rows.codes, rows.scales, out)
            groups = len(weight.scales), each // GROUP
            self._run(
                product.multiply_int8, grid, *arguments, *sizes, *groups, **common, GROUP=GROUP
            )
        elif isinstance(weight, Coded):
            self._run(
                product.multiply_codes,
                grid,
                *(weight.codes, weight.scales),
                *(weight.scales if weight.minima is None else weight.minima, rows, out),
                *(*sizes, columns, each // BLOCK, weight.codes.shape[1]),
                BITS=4 if weight.bits == 4 else 8,
                OFFSET=weight.offset,
                HAS_MINIMA=weight.minima is not None,
                GROUP=weight.group,
                UP=self._up,
                **common,
            )
        else:
            assert isinstance(weight, Dense)
            self._run(
                product.multiply,
                grid,
                *(weight.values, rows, out, *sizes, columns, each),
                EVEN=columns % 64 == 0,
                BK=64,
                UP=self._up,
                **common,
            )

    def turn(self, parts: Parts, turning: Turning, step: Step, cache: Cache) -> torch.Tensor:
        """Turns queries and keys, and writes keys and values to pages; the queries."""
        num_rows, head_dim = parts.sums.shape[1], cache.keys.shape[-1]
        queries = torch.empty(
            num_rows, turning.heads, head_dim, dtype=self._dtype, device=parts.sums.device
        )
        int8 = cache.key_scales is not None
        self._run(
            rowwise.turn_and_write,
            (num_rows, turning.heads + 2 * turning.kv_heads),
            parts.sums,
            parts.sums if parts.bias is None else parts.bias,
            parts.sums if turning.norm is None else turning.norm,
            *(turning.cos, turning.sin, step.positions, step.writes, queries),
            *(cache.keys, cache.values, *_scales(cache)),
            *(num_rows, head_dim, turning.eps, turning.query_scale),
            HEADS=turning.heads,
            KV_HEADS=turning.kv_heads,
            SLICES=len(parts.sums),
            BIAS=parts.bias is not None,
            NORM=turning.norm is not None,
            ROTATED=turning.is_rotated,
            INT8=int8,
            HALF=_power(head_dim // 2),
            PAGE=PAGE,
            warps=1,
        )
        return queries

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, window: int | None
    ) -> torch.Tensor:
        """Attention: folds every item, and merges what rows have."""
        num_rows, heads, head_dim = queries.shape
        kv_heads, states, device = cache.keys.shape[1], len(step.opens), queries.device
        values = torch.empty(states, heads, head_dim, device=device)
        peaks, masses = torch.empty(2, states, heads, device=device).unbind()
        block = max(16, _power(head_dim))
        for tile, items, members in zip(TILES, step.items, step.members, strict=True):
            if tile not in self.tiles:
                continue
            self._run(
                attention.fold,
                (len(items), kv_heads),
                *(queries, cache.keys, cache.values, *_scales(cache), values, peaks, masses),
                *(items, members, step.table, head_dim, window or 0),
                HEADS=heads,
                KV_HEADS=kv_heads,
                TILE=tile,
                BLOCK_D=block,
                INT8=cache.key_scales is not None,
                UP=self._up,
                PAGE=PAGE,
                CHUNK=CHUNK,
                warps=4 if tile == TILES[0] else 8,
                stages=2,
            )
        out = torch.empty(num_rows, heads * head_dim, dtype=self._dtype, device=device)
        self._run(
            attention.merge,
            (num_rows, heads),
            *(values, peaks, masses, step.begins, step.opens, out, head_dim),
            HEADS=heads,
            BLOCK_D=block,
            warps=1,
        )
        return out

    def quantise(self, x: torch.Tensor) -> Quantised:
        """Rows as int8."""
        num_rows, width = x.shape
        _, codes, scales, padded = self._room(num_rows, width, True, x.device)
        block = _power(padded)
        self._run(
            rowwise.quantise, (num_rows,), x, codes, scales, width, padded, BLOCK=block, GROUP=GROUP
        )
        return Quantised(codes, scales)

    def gate(self, parts: Parts, int8: bool) -> Rows:
        """SiLU of a product's first half, times the second."""
        num_rows, width = parts.sums.shape[1], parts.sums.shape[2] // 2
        out, codes, scales, padded = self._room(num_rows, width, int8, parts.sums.device)
        block = min(_GATE_COLUMNS, _power(padded))
        self._run(
            rowwise.gate,
            (num_rows, -(-padded // block)),
            *(parts.sums, parts.sums if parts.bias is None else parts.bias, codes, scales),
            *(num_rows, width, padded),
            SLICES=len(parts.sums),
            BIAS=parts.bias is not None,
            INT8=int8,
            BLOCK=block,
            GROUP=GROUP,
        )
        return out

    def copy_pages(self, whole: torch.Tensor, pairs: torch.Tensor) -> None:
        """Copies pages of all layers."""
        words = whole[0, 0].numel() * whole.element_size() // 4
        self._run(
            attention.copy_pages,
            (len(pairs), whole.shape[0], -(-words // _COPY_WORDS)),
            *(whole.flatten(2).view(torch.int32), pairs, whole.shape[1], words),
            BLOCK=_COPY_WORDS,
        )

    def measure(self, logits: torch.Tensor) -> Measures:
        """Peak, mass and moments of rows."""
        num_rows, vocab = logits.shape
        slices = -(-vocab // draw.SLICE)
        each = torch.empty(num_rows, slices, 6, device=logits.device)
        found = torch.empty(num_rows, 5, device=logits.device)
        grid = (num_rows, slices)
        self._run(draw.measure_slices, grid, logits, each, vocab, slices, BLOCK=draw.SLICE)
        self._run(draw.merge_measures, (num_rows,), each, found, slices, BLOCK=_power(slices))
        return Measures(*found.unbind(1))

    def draw(
        self, logits: torch.Tensor, adjusted: torch.Tensor, peaks: torch.Tensor, draws: Draws
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws a token of each row."""
        num_rows, vocab = logits.shape
        device, slices = logits.device, -(-vocab // draw.SLICE)
        peaks = peaks.contiguous().clone()
        floors = torch.full_like(peaks, torch.finfo(torch.float32).max)
        masked = draws.allowed is not None
        allowed = draws.counts if draws.allowed is None else draws.allowed
        numbers, counts = draws.numbers, draws.counts
        if len(draws.special):
            self._run(
                draw.find_floors,
                (len(draws.special),),
                *(adjusted, allowed, draws.special, numbers, counts, peaks, floors, vocab),
                MASKED=masked,
                BLOCK=draw.SLICE,
                warps=8,
            )
        scores = torch.empty(num_rows, slices, device=device)
        tokens = torch.empty(num_rows, slices, dtype=torch.int32, device=device)
        token = torch.empty(num_rows, dtype=torch.int32, device=device)
        logit = torch.empty(num_rows, device=device)
        self._run(
            draw.race,
            (num_rows, slices),
            *(adjusted, allowed, numbers, counts, draws.keys, peaks, floors, scores, tokens),
            *(vocab, slices),
            MASKED=masked,
            BLOCK=draw.SLICE,
        )
        arguments = (scores, tokens, logits, token, logit, slices, vocab)
        self._run(draw.merge_races, (num_rows,), *arguments, BLOCK=_power(slices), warps=1)
        return token, logit

    def _tile(self, num_rows: int) -> ProductTile:
        for tile in self._product_tiles:
            if num_rows <= tile.rows:
                return tile
        return self._product_tiles[-1]

    def _room(
        self, num_rows: int, width: int, int8: bool, device: torch.device
    ) -> tuple[Rows, torch.Tensor, torch.Tensor, int]:
        """Where rows go: as they are passed on, memory for them and for scales, padded width."""
        padded = -(-width // GROUP) * GROUP
        if not int8:
            out = torch.empty(num_rows, width, dtype=self._dtype, device=device)
            return out, out, out, padded
        codes = torch.empty(num_rows, padded, dtype=torch.int8, device=device)
        scales = torch.empty(num_rows, padded // GROUP, device=device)
        return Quantised(codes, scales), codes, scales, padded


def _scales(cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
    """The scales of a layer's pages, and anything where there are none."""
    keys, values = cache.key_scales, cache.value_scales
    return cache.keys if keys is None else keys, cache.values if values is None else values


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()
