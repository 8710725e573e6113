"""What is computed row by row between two products: norms, rotations, gates, codes of int8.

Each kernel first adds up the slices of the product that it reads, from left to right, and the bias.
"""

import triton
import triton.language as tl

__all__ = ["add_norm", "gate", "quantise", "turn_and_write"]


@triton.jit
def _nearest(x):
    """The nearest integer, of equals the even one, for |x| below 2^22.

    Added to 1.5 * 2^23, a float32 has no bits left for fractions, and the sum is rounded so.
    """
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _total(
    parts_ptr, stride, at, mask, bias_ptr, bias_at, SLICES: tl.constexpr, BIAS: tl.constexpr
):
    """The sum of slices, in their order, and the bias."""
    total = tl.load(parts_ptr + at, mask=mask, other=0.0)
    for s in tl.static_range(1, SLICES):
        total += tl.load(parts_ptr + s * stride + at, mask=mask, other=0.0)
    if BIAS:
        total += tl.load(bias_ptr + bias_at, mask=mask, other=0.0)
    return total


@triton.jit
def _store_codes(
    values, codes_ptr, scales_ptr, row, padded, BLOCK: tl.constexpr, GROUP: tl.constexpr
):
    """Stores values (BLOCK,), zero beyond their end, as int8 with a scale for each GROUP."""
    G: tl.constexpr = BLOCK // GROUP
    groups = tl.reshape(values, (G, GROUP))
    peaks = tl.max(tl.abs(groups), axis=1)
    # A number that is not finite shows in the scale, whatever the maximum makes of it.
    faults = tl.sum(groups * 0.0, axis=1)
    inverse = tl.where(peaks > 0.0, 127.0 / tl.where(peaks > 0.0, peaks, 1.0), 0.0)
    codes = _nearest(groups * inverse[:, None])
    columns = tl.arange(0, G)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    tl.store(codes_ptr + row * padded + columns, codes.to(tl.int8), mask=columns < padded)
    g = tl.arange(0, G)
    tl.store(
        scales_ptr + row * (padded // GROUP) + g, peaks / 127.0 + faults, mask=g < padded // GROUP
    )


@triton.jit(do_not_specialize=["num_rows"])
def add_norm(
    x_ptr,
    parts_ptr,
    bias_ptr,
    weight_ptr,
    out_ptr,
    scales_ptr,
    num_rows,
    hidden,
    padded,
    eps,
    SLICES: tl.constexpr,
    BIAS: tl.constexpr,
    INT8: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Adds a product to the residual, unless SLICES is 0, and normalises what that gives.

    RMS norm: Zhang and Sennrich 2019, arXiv 1910.07467.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < hidden
    x = tl.load(x_ptr + row * hidden + at, mask=inside, other=0.0)
    if SLICES > 0:
        stride = num_rows.to(tl.int64) * hidden
        x += _total(parts_ptr, stride, row * hidden + at, inside, bias_ptr, at, SLICES, BIAS)
        tl.store(x_ptr + row * hidden + at, x, mask=inside)
    inverse = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / hidden + eps)
    y = x * inverse * tl.load(weight_ptr + at, mask=inside, other=0.0)
    if INT8:
        _store_codes(y, out_ptr, scales_ptr, row, padded, BLOCK, GROUP)
    else:
        tl.store(out_ptr + row * hidden + at, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def gate(
    parts_ptr,
    bias_ptr,
    out_ptr,
    scales_ptr,
    num_rows,
    width,
    padded,
    SLICES: tl.constexpr,
    BIAS: tl.constexpr,
    INT8: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """SiLU of the first half of a product's columns, times the second half."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    stride = num_rows.to(tl.int64) * (2 * width)
    first = row * (2 * width) + at
    left = _total(parts_ptr, stride, first, inside, bias_ptr, at, SLICES, BIAS)
    right = _total(parts_ptr, stride, first + width, inside, bias_ptr, at + width, SLICES, BIAS)
    y = left / (1.0 + tl.exp(-left)) * right
    if INT8:
        # A block of columns is a row of its own for the helper, up to the padded width.
        begin = tl.program_id(1) * BLOCK
        codes = out_ptr + row * padded + begin
        scales = scales_ptr + row * (padded // GROUP) + begin // GROUP
        _store_codes(y, codes, scales, 0, padded - begin, BLOCK, GROUP)
    else:
        tl.store(out_ptr + row * width + at, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def quantise(x_ptr, codes_ptr, scales_ptr, width, padded, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Rows as int8, with a scale for each GROUP columns."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0).to(tl.float32)
    _store_codes(x, codes_ptr, scales_ptr, row, padded, BLOCK, GROUP)


@triton.jit(do_not_specialize=["num_rows"])
def turn_and_write(
    parts_ptr,
    bias_ptr,
    norm_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    pages_ptr,
    queries_ptr,
    keys_ptr,
    values_ptr,
    key_scales_ptr,
    value_scales_ptr,
    num_rows,
    head_dim,
    eps,
    query_scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    SLICES: tl.constexpr,
    BIAS: tl.constexpr,
    NORM: tl.constexpr,
    ROTATED: tl.constexpr,
    INT8: tl.constexpr,
    HALF: tl.constexpr,
    PAGE: tl.constexpr,
):
    """One head of one row: its norm, its rotation, and for keys and values their place in a page.

    The halves of a head turn with one another (RoPE: Su et al. 2021, arXiv 2104.09864). Queries
    are scaled, so that attention takes powers of two of plain products. A row without a page (-1)
    is padding, and writes nothing. With INT8 a head of a position becomes codes and one scale.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half = head_dim // 2
    i = tl.arange(0, HALF)
    inside = i < half
    width = (HEADS + 2 * KV_HEADS) * head_dim
    stride = num_rows.to(tl.int64) * width
    at = head * head_dim + i
    place = row * width + at
    a = _total(parts_ptr, stride, place, inside, bias_ptr, at, SLICES, BIAS)
    b = _total(parts_ptr, stride, place + half, inside, bias_ptr, at + half, SLICES, BIAS)
    position = tl.load(positions_ptr + row)
    page = tl.load(pages_ptr + row).to(tl.int64)
    if head < HEADS + KV_HEADS:
        if NORM:
            squares = tl.sum(a * a, axis=0) + tl.sum(b * b, axis=0)
            inverse = 1.0 / tl.sqrt(squares / head_dim + eps)
            a = a * inverse * tl.load(norm_ptr + at, mask=inside, other=0.0)
            b = b * inverse * tl.load(norm_ptr + at + half, mask=inside, other=0.0)
        if ROTATED:
            angle = position.to(tl.int64) * half + i
            cos = tl.load(cos_ptr + angle, mask=inside, other=0.0)
            sin = tl.load(sin_ptr + angle, mask=inside, other=0.0)
            turned = a * cos - b * sin
            b = b * cos + a * sin
            a = turned
    if head < HEADS:
        to = queries_ptr + (row * HEADS + head) * head_dim + i
        _write(to, half, a * query_scale, b * query_scale, inside)
    elif page >= 0:
        is_key = head < HEADS + KV_HEADS
        kv_head = tl.where(is_key, head - HEADS, head - HEADS - KV_HEADS)
        slot = (page * KV_HEADS + kv_head) * PAGE + position % PAGE
        if INT8:
            a, b, scale = _codes(a, b)
            if is_key:
                tl.store(key_scales_ptr + slot, scale)
            else:
                tl.store(value_scales_ptr + slot, scale)
        if is_key:
            _write(keys_ptr + slot * head_dim + i, half, a, b, inside)
        else:
            _write(values_ptr + slot * head_dim + i, half, a, b, inside)


@triton.jit
def _codes(a, b):
    """The halves of a head as codes, and their scale, which shows what is not finite."""
    peak = tl.maximum(tl.max(tl.abs(a), axis=0), tl.max(tl.abs(b), axis=0))
    fault = tl.sum(a * 0.0, axis=0) + tl.sum(b * 0.0, axis=0)
    inverse = tl.where(peak > 0.0, 127.0 / tl.where(peak > 0.0, peak, 1.0), 0.0)
    return _nearest(a * inverse), _nearest(b * inverse), peak / 127.0 + fault


@triton.jit
def _write(to, half, a, b, inside):
    """Stores the halves of a head in the type of their page."""
    tl.store(to, a.to(to.dtype.element_ty), mask=inside)
    tl.store(to + half, b.to(to.dtype.element_ty), mask=inside)
