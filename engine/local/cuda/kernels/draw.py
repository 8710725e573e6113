"""Measures rows of logits, and draws a token of each with noise of (key, token) alone.

The draw is Gumbel-max (Gumbel 1954; Maddison et al. 2014, arXiv 1411.0030), written as a race: with
E = -ln(1 - u), the greatest of logit - ln E wins. u is a hash, small where it wins, and a float32
holds small numbers well, which -ln(-ln u) near u = 1 does not. A vocabulary is cut into slices of
4,096 tokens, so that one row fills many processors; a slice is summed by one program, and slices
are put together in their order, so what a row gives depends on no other row.

The filters top_k, top_p and min_p are one number: the greatest distance from the peak that is kept.
It is found without sorting. Distances are at least 0, so their bits are ordered as they are, and
31 halvings of the range of bits find the least distance within which there are k tokens, or the
share p of all mass. What ties with the last one kept is kept.

Shapes: logits (R, V) float32. `allowed`: a bit for each token, the lowest first, 32 to a number.
"""

import triton
import triton.language as tl

__all__ = ["SLICE", "find_floors", "measure_slices", "merge_measures", "merge_races", "race"]

SLICE = 4096
"""Tokens of a slice. It decides bits."""

INFINITY = tl.constexpr(float("inf"))
FINITE = tl.constexpr(0x7F7FFFFF)
"""The bits of the greatest float32."""


@triton.jit
def measure_slices(logits_ptr, out_ptr, vocab, slices, BLOCK: tl.constexpr):
    """Measures a slice, in six numbers.

    Peak; the sums of w = exp(d), w d and d, where d is a logit less the peak; how many tokens there
    are (-inf is none); and how many logits are no numbers.
    """
    row = tl.program_id(0)
    s = tl.program_id(1)
    at = s * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row.to(tl.int64) * vocab + at, mask=at < vocab, other=-INFINITY)
    bad = (x != x) | (x == INFINITY)
    x = tl.where(bad, 0.0, x)
    real = x > -INFINITY
    peak = tl.max(x, axis=0)
    d = tl.where(real, x - peak, 0.0)
    w = tl.where(real, tl.exp(d), 0.0)
    to = out_ptr + (row * slices + s) * 6
    tl.store(to, peak)
    tl.store(to + 1, tl.sum(w, axis=0))
    tl.store(to + 2, tl.sum(w * d, axis=0))
    tl.store(to + 3, tl.sum(d, axis=0))
    tl.store(to + 4, tl.sum(real.to(tl.float32), axis=0))
    tl.store(to + 5, tl.sum(bad.to(tl.float32), axis=0))


@triton.jit
def merge_measures(slices_ptr, out_ptr, slices, BLOCK: tl.constexpr):
    """The same of a whole row; its peak is NaN where a logit is no number, or none is a token."""
    row = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    there = s < slices
    at = slices_ptr + (row * slices + s) * 6
    peaks = tl.load(at, mask=there, other=-INFINITY)
    count = tl.load(at + 4, mask=there, other=0.0)
    bad = tl.sum(tl.load(at + 5, mask=there, other=0.0), axis=0)
    peak = tl.max(peaks, axis=0)
    shift = tl.where(count > 0, peaks - peak, 0.0)
    scale = tl.where(count > 0, tl.exp(shift), 0.0)
    w = tl.load(at + 1, mask=there, other=0.0)
    wd = tl.load(at + 2, mask=there, other=0.0)
    d = tl.load(at + 3, mask=there, other=0.0)
    total = tl.sum(count, axis=0)
    to = out_ptr + row * 5
    tl.store(to, tl.where((bad > 0) | (total == 0), float("nan"), peak))
    tl.store(to + 1, tl.sum(w * scale, axis=0))
    tl.store(to + 2, tl.sum((wd + shift * w) * scale, axis=0))
    tl.store(to + 3, tl.sum(d + shift * count, axis=0))
    tl.store(to + 4, total)


@triton.jit
def _distances(logits_ptr, allowed_ptr, at, vocab, mask_at, peak, inverse, MASKED: tl.constexpr):
    """How far tokens are below the peak, over the temperature; infinitely where not allowed."""
    x = tl.load(logits_ptr + at, mask=at < vocab, other=-INFINITY)
    kept = x > -INFINITY
    if MASKED:
        end = tl.where(mask_at < 0, 0, vocab)  # a row without a mask reads none, and gets ones
        words = tl.load(allowed_ptr + mask_at + at // 32, mask=at < end, other=-1)
        kept = kept & (((words >> (at % 32)) & 1) == 1)
    return tl.where(kept, (peak - x) * inverse, INFINITY)


@triton.jit
def _within(logits_ptr, allowed_ptr, vocab, mask_at, peak, inverse, bits, MASKED, BLOCK):
    """How many tokens are not farther than some bits say, and their mass."""
    count = 0
    mass = 0.0
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = _distances(logits_ptr, allowed_ptr, at, vocab, mask_at, peak, inverse, MASKED)
        kept = d.to(tl.int32, bitcast=True) <= bits
        count += tl.sum(kept.to(tl.int32), axis=0)
        mass += tl.sum(tl.where(kept, tl.exp(-d), 0.0), axis=0)
    return count, mass


@triton.jit
def _least(
    logits_ptr,
    allowed_ptr,
    vocab,
    mask_at,
    peak,
    inverse,
    high,
    wanted,
    COUNTS: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The bits of the least distance, up to `high`, within which there is what is wanted.

    That is a number of tokens (COUNTS), or a mass. Where there is less, it is `high` itself.
    """
    low = tl.zeros((), tl.int32)
    for _ in range(31):
        middle = low + (high - low) // 2
        count, mass = _within(
            logits_ptr, allowed_ptr, vocab, mask_at, peak, inverse, middle, MASKED, BLOCK
        )
        enough = (count >= wanted) if COUNTS else (mass >= wanted)
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, tl.minimum(middle + 1, high))
    return high


@triton.jit
def find_floors(
    logits_ptr,
    allowed_ptr,
    rows_ptr,
    numbers_ptr,
    counts_ptr,
    peaks_ptr,
    floors_ptr,
    vocab,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One of the rows that have a filter, or whose logits are adjusted: its peak and its floor.

    `numbers`: for each row 1 / temperature, top_p, and min_p as a distance. `counts`: for each row
    top_k (0 keeps all), and where its bits begin in `allowed` (-1 allows all).
    """
    row = tl.load(rows_ptr + tl.program_id(0)).to(tl.int64)
    logits = logits_ptr + row * vocab
    inverse = tl.load(numbers_ptr + row * 3)
    top_p = tl.load(numbers_ptr + row * 3 + 1)
    top_k = tl.load(counts_ptr + row * 2)
    mask_at = tl.load(counts_ptr + row * 2 + 1)
    nearest = INFINITY
    for start in range(0, vocab, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = _distances(logits, allowed_ptr, at, vocab, mask_at, 0.0, 1.0, MASKED)
        nearest = tl.minimum(nearest, tl.min(d, axis=0))
    peak = -nearest
    floor = tl.full((), FINITE, tl.int32)
    if top_k > 0:
        floor = _least(
            logits, allowed_ptr, vocab, mask_at, peak, inverse, floor, top_k, True, MASKED, BLOCK
        )
    if top_p < 1.0:
        _, mass = _within(logits, allowed_ptr, vocab, mask_at, peak, inverse, floor, MASKED, BLOCK)
        share = top_p * mass
        floor = _least(
            logits, allowed_ptr, vocab, mask_at, peak, inverse, floor, share, False, MASKED, BLOCK
        )
    distance = tl.minimum(floor.to(tl.float32, bitcast=True), tl.load(numbers_ptr + row * 3 + 2))
    tl.store(peaks_ptr + row, peak)
    tl.store(floors_ptr + row, distance)


@triton.jit
def _noise(token, low, high):
    """Ln E, with E exponential: a hash of a row's key and a token.

    Mixes by multiplications and shifts (constants: Wellons's hash-prospector, `lowbias32`), the
    key's halves before and between them.
    """
    x = token.to(tl.uint32) * 0x9E3779B1 + low
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15) ^ high
    x = x * 0x846CA68B
    x = x ^ (x >> 16)
    u = tl.minimum((x.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
    # -ln(1 - u): where u is small, 1 - u would lose it, and a series is exact to float32.
    series = u * (1.0 + u * (0.5 + u * (0.33333334 + u * (0.25 + u * 0.2))))
    return tl.log(tl.where(u < 0.015625, series, -tl.log(1.0 - u)))


@triton.jit
def race(
    logits_ptr,
    allowed_ptr,
    numbers_ptr,
    counts_ptr,
    keys_ptr,
    peaks_ptr,
    floors_ptr,
    scores_ptr,
    tokens_ptr,
    vocab,
    slices,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The winner of a slice, the lowest token of equals; a row with 1 / temperature 0 is greedy."""
    row = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1)
    at = s * BLOCK + tl.arange(0, BLOCK)
    inverse = tl.load(numbers_ptr + row * 3)
    mask_at = tl.load(counts_ptr + row * 2 + 1)
    scale = tl.where(inverse == 0.0, 1.0, inverse)
    peak = tl.load(peaks_ptr + row)
    logits = logits_ptr + row * vocab
    d = _distances(logits, allowed_ptr, at, vocab, mask_at, peak, scale, MASKED)
    low = tl.load(keys_ptr + row * 2).to(tl.uint32, bitcast=True)
    high = tl.load(keys_ptr + row * 2 + 1).to(tl.uint32, bitcast=True)
    noise = tl.where(inverse == 0.0, 0.0, _noise(at, low, high))
    kept = (d <= tl.load(floors_ptr + row)) & (d < INFINITY)
    scores = tl.where(kept, -d - noise, -INFINITY)
    tl.store(scores_ptr + row * slices + s, tl.max(scores, axis=0))
    tl.store(tokens_ptr + row * slices + s, s * BLOCK + tl.argmax(scores, axis=0))


@triton.jit
def merge_races(
    scores_ptr, tokens_ptr, logits_ptr, token_ptr, logit_ptr, slices, vocab, BLOCK: tl.constexpr
):
    """The winner of a row, -1 where no token can be drawn, and its logit in the model's own row."""
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BLOCK)
    scores = tl.load(scores_ptr + row * slices + s, mask=s < slices, other=-INFINITY)
    token = tl.load(tokens_ptr + row * slices + tl.argmax(scores, axis=0))
    token = tl.where(tl.max(scores, axis=0) > -INFINITY, token, -1)
    tl.store(token_ptr + row, token)
    tl.store(logit_ptr + row, tl.load(logits_ptr + row * vocab + tl.maximum(token, 0)))
