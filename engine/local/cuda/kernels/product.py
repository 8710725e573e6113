"""Products of a step's rows with a weight, whose bits do not depend on how many rows there are.

Two things make them so. The weight is the *left* operand of every tile product, and rows are the
right one: the long side of a weight fills the tensor cores' 64-row instruction at 1 row as at
1,000, so that few and many rows are multiplied by the same instruction, and not by `mma` here and
`wgmma` there. And columns are cut into slices that follow from the weight's shape alone; a slice
is summed from its first column to its last, slices are added from left to right. Few rows: each
slice is a program, for the sake of bandwidth, and whoever reads the products adds them up. Many
rows: a program goes through all slices itself, in the same order.

Source of fixed reduction orders: He et al. 2025, "Defeating nondeterminism in LLM inference"
(Thinking Machines Lab). Differs: their kernels use one tile for every number of rows.

Shapes: weight (N, K), rows (M, K), products (slices or 1, M, N) float32.
"""

import triton
import triton.language as tl

__all__ = ["multiply", "multiply_codes", "multiply_int8"]


@triton.jit
def _tile(num_outputs, num_rows, BN: tl.constexpr, BM: tl.constexpr):
    """The outputs and rows of a program. Those beyond the end are the last one again."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    return n, m, tl.minimum(n, num_outputs - 1), tl.minimum(m, num_rows - 1)


@triton.jit
def _store(out_ptr, n, m, num_outputs, num_rows, width, sums, SERIAL: tl.constexpr):
    """Stores a tile, transposed, in the place of its slice; a row of products is `width` wide."""
    m_at = m.to(tl.int64)
    if not SERIAL:
        m_at += tl.program_id(2) * num_rows
    inside = (n[:, None] < num_outputs) & (m[None, :] < num_rows)
    tl.store(out_ptr + m_at[None, :] * width + n[:, None], sums, mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def multiply(
    w_ptr,
    x_ptr,
    out_ptr,
    num_rows,
    width,
    num_outputs,
    columns,
    slice_columns,
    SLICES: tl.constexpr,
    SERIAL: tl.constexpr,
    EVEN: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    UP: tl.constexpr,
):
    """Weights and rows in one type. EVEN: columns are a multiple of BK, so nothing is masked."""
    n, m, n_in, m_in = _tile(num_outputs, num_rows, BN, BM)
    w_rows = w_ptr + n_in.to(tl.int64)[:, None] * columns
    x_rows = x_ptr + m_in.to(tl.int64)[None, :] * columns
    total = tl.zeros((BN, BM), tl.float32)
    first = 0
    if not SERIAL:
        first = tl.program_id(2)
    for step in range(SLICES if SERIAL else 1):
        start = (first + step) * slice_columns
        sums = tl.zeros((BN, BM), tl.float32)
        for at in range(start, tl.minimum(start + slice_columns, columns), BK):
            k = at + tl.arange(0, BK)
            if EVEN:
                w = tl.load(w_rows + k[None, :])
                x = tl.load(x_rows + k[:, None])
            else:
                w = tl.load(w_rows + k[None, :], mask=k[None, :] < columns, other=0.0)
                x = tl.load(x_rows + k[:, None], mask=k[:, None] < columns, other=0.0)
            if UP:  # the interpreter's product of bfloat16 is wrong, without a word
                w = w.to(tl.float32)
                x = x.to(tl.float32)
            sums = tl.dot(w, x, sums, input_precision="ieee")
        total += sums
    _store(out_ptr, n, m, num_outputs, num_rows, width, total, SERIAL)


@triton.jit(do_not_specialize=["num_rows"])
def multiply_int8(
    w_ptr,
    w_scales_ptr,
    x_ptr,
    x_scales_ptr,
    out_ptr,
    num_rows,
    width,
    num_outputs,
    groups,
    slice_groups,
    SLICES: tl.constexpr,
    SERIAL: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Codes with a scale for each GROUP columns, of a weight (groups, N) and of rows (M, groups).

    The sum of a group is an integer, and exact; groups are added in float32 from left to right.
    """
    n, m, n_in, m_in = _tile(num_outputs, num_rows, BN, BM)
    k = tl.arange(0, GROUP)
    w_rows = w_ptr + n_in.to(tl.int64)[:, None] * (groups * GROUP) + k[None, :]
    x_rows = x_ptr + m_in.to(tl.int64)[None, :] * (groups * GROUP) + k[:, None]
    total = tl.zeros((BN, BM), tl.float32)
    first = 0
    if not SERIAL:
        first = tl.program_id(2)
    for step in range(SLICES if SERIAL else 1):
        start = (first + step) * slice_groups
        sums = tl.zeros((BN, BM), tl.float32)
        for g in range(start, tl.minimum(start + slice_groups, groups)):
            w = tl.load(w_rows + g * GROUP)
            x = tl.load(x_rows + g * GROUP)
            w_scales = tl.load(w_scales_ptr + g * num_outputs + n_in)
            x_scales = tl.load(x_scales_ptr + m_in * groups + g)
            exact = tl.dot(w, x, out_dtype=tl.int32)
            sums += exact.to(tl.float32) * (w_scales[:, None] * x_scales[None, :])
        total += sums
    _store(out_ptr, n, m, num_outputs, num_rows, width, total, SERIAL)


@triton.jit
def _decoded(
    codes,
    scales_ptr,
    minima_ptr,
    OFFSET: tl.constexpr,
    HAS_MINIMA: tl.constexpr,
    BN: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Weights (BN, WIDTH) float32 of codes; scales and minima begin at pointers (BN, groups)."""
    numbers = tl.reshape((codes.to(tl.int32) - OFFSET).to(tl.float32), (BN, WIDTH // GROUP, GROUP))
    values = numbers * tl.load(scales_ptr).to(tl.float32)[:, :, None]
    if HAS_MINIMA:
        values += tl.load(minima_ptr).to(tl.float32)[:, :, None]
    return tl.reshape(values, (BN, WIDTH))


@triton.jit(do_not_specialize=["num_rows"])
def multiply_codes(
    w_ptr,
    scales_ptr,
    minima_ptr,
    x_ptr,
    out_ptr,
    num_rows,
    width,
    num_outputs,
    columns,
    slice_blocks,
    blocks,
    BITS: tl.constexpr,
    OFFSET: tl.constexpr,
    HAS_MINIMA: tl.constexpr,
    GROUP: tl.constexpr,
    SLICES: tl.constexpr,
    SERIAL: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    UP: tl.constexpr,
):
    """A file's codes of 4 bits, or of up to 8, with rows of their decoded weights' type.

    A block is 128 columns of a weight. Of 4 bits, its byte j holds the code of column j below that
    of column j + 64, so that one load frees two tiles of 64 columns by a mask and a shift, without
    any exchange between threads. Decoded weights are rounded to the type of the rows and summed
    in the order of `multiply`: the result has the bits of its product with the decoded weight.
    """
    WIDTH: tl.constexpr = 64
    EACH: tl.constexpr = WIDTH // GROUP
    n, m, n_in, m_in = _tile(num_outputs, num_rows, BN, BM)
    n_at = n_in.to(tl.int64)
    x_rows = x_ptr + m_in.to(tl.int64)[None, :] * columns
    j = tl.arange(0, WIDTH)
    group = tl.arange(0, EACH)
    total = tl.zeros((BN, BM), tl.float32)
    first = 0
    if not SERIAL:
        first = tl.program_id(2)
    for step in range(SLICES if SERIAL else 1):
        start = (first + step) * slice_blocks
        sums = tl.zeros((BN, BM), tl.float32)
        for block in range(start, tl.minimum(start + slice_blocks, blocks)):
            packed = tl.zeros((BN, WIDTH), tl.uint8)
            if BITS == 4:
                packed = tl.load(w_ptr + (n_at[:, None] * blocks + block) * WIDTH + j[None, :])
            for half in tl.static_range(2):
                if BITS == 4:
                    codes = (packed >> (4 * half)) & 15
                else:
                    at = (n_at[:, None] * blocks + block) * (2 * WIDTH) + half * WIDTH
                    codes = tl.load(w_ptr + at + j[None, :])
                at = (n_at[:, None] * blocks + block) * (2 * EACH) + half * EACH + group[None, :]
                w = _decoded(
                    codes, scales_ptr + at, minima_ptr + at, OFFSET, HAS_MINIMA, BN, WIDTH, GROUP
                )
                k = block * (2 * WIDTH) + half * WIDTH + j
                x = tl.load(x_rows + k[:, None], mask=k[:, None] < columns, other=0.0)
                if UP:
                    x = x.to(tl.float32)
                else:
                    w = w.to(x_ptr.dtype.element_ty)
                sums = tl.dot(w, x, sums, input_precision="ieee")
        total += sums
    _store(out_ptr, n, m, num_outputs, num_rows, width, total, SERIAL)
