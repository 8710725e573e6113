"""Attention over pages, as a fold whose order a row's own positions fix.

A chunk of 64 positions gives a row a partial result (values, peak, mass) that depends on the row
and the chunk alone. `_joined` adds two partial results. Within a segment of 512 positions chunks
are joined from left to right, and segments are joined from left to right in the end. Where many
rows see the same chunks from a segment's beginning, one item of work folds them all and leaves one
state; what comes after rows have parted leaves a state for each chunk, and `merge` goes on from
there. Both use the same expression, and an empty partial result changes no bit of what it is
joined to. So it does not matter who shares an item, nor where a branch leaves its siblings.

Keys and values are the left operands of the tile products, as weights are in `product`: the
instruction is the same for one query and for 64.

Sources: split softmax, Milakov and Gimelshein 2018, arXiv 1805.02867; attention in tiles, Dao et
al. 2022, arXiv 2205.14135; shared prefixes, Juravsky et al. 2024, arXiv 2402.05099; trees, Yao et
al. 2024, arXiv 2404.00242; pages, Kwon et al. 2023, arXiv 2309.06180. Differs: a chunk's partial
result has a peak of its own, so that folding and merging are one operation to the bit.

Shapes: queries (R, heads, D), scaled by log2(e) / sqrt(D); pages (pages, kv heads, 16, D).
"""

import triton
import triton.language as tl

__all__ = ["copy_pages", "fold", "merge"]

LEAST = tl.constexpr(-1e30)
"""The peak of nothing: below any score, and finite, so that differences are numbers."""


@triton.jit
def _joined(values, peak, mass, other_values, other_peak, other_mass):
    """Two partial results as one. Shapes: values (D, n) or (D,), peak and mass (n,) or scalars."""
    top = tl.maximum(peak, other_peak)
    kept = tl.exp2(peak - top)
    added = tl.exp2(other_peak - top)
    return values * kept + other_values * added, top, mass * kept + other_mass * added


@triton.jit
def _weighed(queries, keys_ptr, scales_ptr, place, there, seen, d, head_dim, INT8: tl.constexpr):
    """The weights of a chunk's positions for each query, (CHUNK, TILE), their peaks and sums."""
    keys = tl.load(
        keys_ptr + place[:, None] * head_dim + d[None, :],
        mask=there[:, None] & (d < head_dim)[None, :],
        other=0,
    )
    scores = tl.dot(keys.to(queries.dtype), queries, input_precision="ieee")
    if INT8:
        scores *= tl.load(scales_ptr + place, mask=there, other=0.0)[:, None]
    scores = tl.where(seen, scores, LEAST)
    peaks = tl.max(scores, axis=0)
    weights = tl.where(seen, tl.exp2(scores - peaks[None, :]), 0.0)
    return weights, peaks, tl.sum(weights, axis=0)


@triton.jit
def _added(weights, values_ptr, scales_ptr, place, there, queries, d, head_dim, INT8: tl.constexpr):
    """The weighted sum of a chunk's values, (D, TILE); weights are rounded to the queries' type."""
    if INT8:
        weights *= tl.load(scales_ptr + place, mask=there, other=0.0)[:, None]
    values = tl.load(
        values_ptr + place[None, :] * head_dim + d[:, None],
        mask=there[None, :] & (d < head_dim)[:, None],
        other=0,
    )
    kind = queries.dtype
    return tl.dot(values.to(kind), weights.to(kind), input_precision="ieee")


@triton.jit
def fold(
    queries_ptr,
    keys_ptr,
    values_ptr,
    key_scales_ptr,
    value_scales_ptr,
    out_ptr,
    peaks_ptr,
    masses_ptr,
    items_ptr,
    members_ptr,
    table_ptr,
    head_dim,
    window,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK_D: tl.constexpr,
    INT8: tl.constexpr,
    UP: tl.constexpr,
    PAGE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """One item of work, and one key head.

    An item: its first member, how many there are, where the table of their pages begins, its first
    chunk, how many chunks, and whether they are folded. A member: a row, its position (the last
    one that it sees), and where its states go. Without members an item is padding.
    """
    GROUP: tl.constexpr = HEADS // KV_HEADS
    item = items_ptr + tl.program_id(0) * 6
    head = tl.program_id(1)
    count = tl.load(item + 1)
    if count > 0:
        table = table_ptr + tl.load(item + 2)
        first_chunk = tl.load(item + 3)
        chunks = tl.load(item + 4)
        folds = tl.load(item + 5)
        q = tl.arange(0, TILE)
        live = q // GROUP < count
        member = members_ptr + (tl.load(item) + q // GROUP) * 3
        row = tl.load(member, mask=live, other=0).to(tl.int64)
        position = tl.load(member + 1, mask=live, other=-1)
        slot = tl.load(member + 2, mask=live, other=0).to(tl.int64)
        query_head = head * GROUP + q % GROUP
        d = tl.arange(0, BLOCK_D)
        at = (row * HEADS + query_head) * head_dim
        both = (d < head_dim)[:, None] & live[None, :]
        queries = tl.load(queries_ptr + at[None, :] + d[:, None], mask=both, other=0.0)
        if UP:
            queries = queries.to(tl.float32)
        last = tl.max(position, axis=0)
        values = tl.zeros((BLOCK_D, TILE), tl.float32)
        peak = tl.full((TILE,), LEAST, tl.float32)
        mass = tl.zeros((TILE,), tl.float32)
        for c in range(chunks):
            column = (first_chunk + c) * CHUNK + tl.arange(0, CHUNK)
            # Positions that no member sees are not read, whatever lies there.
            there = column <= last
            page = tl.load(table + column // PAGE, mask=there, other=0).to(tl.int64)
            place = (page * KV_HEADS + head) * PAGE + column % PAGE
            seen = column[:, None] <= position[None, :]
            seen = seen & ((window == 0) | (column[:, None] > position[None, :] - window))
            weights, top, total = _weighed(
                queries, keys_ptr, key_scales_ptr, place, there, seen, d, head_dim, INT8
            )
            partial = _added(
                weights, values_ptr, value_scales_ptr, place, there, queries, d, head_dim, INT8
            )
            if folds == 0:
                values = tl.zeros((BLOCK_D, TILE), tl.float32)
                peak = tl.full((TILE,), LEAST, tl.float32)
                mass = tl.zeros((TILE,), tl.float32)
            values, peak, mass = _joined(values, peak, mass, partial, top, total)
            if (folds == 0) | (c + 1 == chunks):
                state = (slot + tl.where(folds == 0, c, 0)) * HEADS + query_head
                tl.store(out_ptr + state[None, :] * head_dim + d[:, None], values, mask=both)
                tl.store(peaks_ptr + state, peak, mask=live)
                tl.store(masses_ptr + state, mass, mask=live)


@triton.jit
def merge(
    states_ptr,
    peaks_ptr,
    masses_ptr,
    begins_ptr,
    opens_ptr,
    out_ptr,
    head_dim,
    HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One head of one row: joins its states, those from `begins[row]` to `begins[row + 1]`.

    `opens` tells which states begin a segment. A row that saw nothing gets zeros.
    """
    row = tl.program_id(0)
    head = tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    inside = d < head_dim
    whole = tl.zeros((BLOCK_D,), tl.float32)
    whole_peak = LEAST + tl.sum(whole, axis=0)  # scalars that are float32 from the start
    whole_mass = tl.sum(whole, axis=0)
    part, part_peak, part_mass = whole, whole_peak, whole_mass
    first = tl.load(begins_ptr + row)
    for i in range(tl.load(begins_ptr + row + 1) - first):
        slot = first.to(tl.int64) + i
        opens = tl.load(opens_ptr + slot) != 0
        values, peak, mass = _joined(whole, whole_peak, whole_mass, part, part_peak, part_mass)
        whole = tl.where(opens, values, whole)
        whole_peak = tl.where(opens, peak, whole_peak)
        whole_mass = tl.where(opens, mass, whole_mass)
        part = tl.where(opens, 0.0, part)
        part_peak = tl.where(opens, LEAST, part_peak)
        part_mass = tl.where(opens, 0.0, part_mass)
        state = slot * HEADS + head
        values = tl.load(states_ptr + state * head_dim + d, mask=inside, other=0.0)
        part, part_peak, part_mass = _joined(
            part,
            part_peak,
            part_mass,
            values,
            tl.load(peaks_ptr + state),
            tl.load(masses_ptr + state),
        )
    whole, whole_peak, whole_mass = _joined(
        whole, whole_peak, whole_mass, part, part_peak, part_mass
    )
    out = whole / tl.where(whole_mass == 0.0, 1.0, whole_mass)  # a NaN stays one
    to = out_ptr + (row.to(tl.int64) * HEADS + head) * head_dim + d
    tl.store(to, out.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def copy_pages(pool_ptr, pairs_ptr, pages_each, words, BLOCK: tl.constexpr):
    """Copies pages (from, to) of every layer: words of 4 bytes, 4 of them at once."""
    pair = pairs_ptr + tl.program_id(0) * 2
    layer = tl.program_id(1).to(tl.int64) * pages_each
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    source = pool_ptr + (layer + tl.load(pair)) * words
    target = pool_ptr + (layer + tl.load(pair + 1)) * words
    tl.store(target + at, tl.load(source + at, mask=at < words, other=0), mask=at < words)
