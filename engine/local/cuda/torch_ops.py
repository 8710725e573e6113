"""A step's operations in PyTorch: the reference of every kernel, and the path without Triton.

Rows go through matrix products in tiles of one fixed size, and each row's attention is a product of
its own, so a row's bits do not depend on its company, as far as the library's result for a row does
not depend on where in a tile of a fixed shape it stands; tests and `place` check it where it runs.
Products are float32 whatever the type of what is multiplied, which is rounded before.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ttc.engine.local.attention import CHUNK
from ttc.engine.local.cuda.ops import Draws, Measures, Parts, Quantised, Rows, Turning
from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import Step
from ttc.engine.local.cuda.weights import GROUP, Coded, Int8, Stacked, Weight
from ttc.engine.local.cuda.weights import quantised as quantised_rows
from ttc.engine.local.cuda.work import SEGMENT, TILES
from ttc.engine.local.plan import PAGE

__all__ = ["TorchOps"]

_TILE_ROWS = 16
_LEAST = -1e30
_MIX = (0x9E3779B1, 0x7FEB352D, 0x846CA68B)
_WORD = 0xFFFFFFFF


class TorchOps:
    """Computes where its tensors lie; see `ops.Ops`.

    Args:
        dtype: of rows, weights, keys and values.
    """

    captures = False
    tiles: tuple[int, ...] = TILES

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self.name = f"torch/{_TILE_ROWS}"

    def norm(
        self, x: torch.Tensor, parts: Parts | None, weight: torch.Tensor, eps: float, int8: bool
    ) -> Rows:
        """Adds a product to the residual in place; its RMS norm."""
        if parts is not None:
            x += _total(parts)
        normed = x * (1.0 / (x.square().sum(-1, keepdim=True) / x.shape[1] + eps).sqrt()) * weight
        return self._rows(normed, int8)

    def product(self, rows: Rows, weight: Stacked) -> Parts:
        """Rows times a weight, in one slice."""
        each = weight.slice_columns
        products = [self._product(rows, one, each) for one in weight.weights]
        return Parts(torch.cat(products, dim=-1)[None], weight.bias)

    def _product(self, rows: Rows, weight: Weight, slice_columns: int) -> torch.Tensor:
        if isinstance(weight, Int8):
            assert isinstance(rows, Quantised)
            return _int8_product(rows, weight, slice_columns // GROUP)
        assert isinstance(rows, torch.Tensor)
        values = weight.decoded(self._dtype) if isinstance(weight, Coded) else weight.values
        return _tiled(rows, values)

    def turn(self, parts: Parts, turning: Turning, step: Step, cache: Cache) -> torch.Tensor:
        """Turns queries and keys, and writes keys and values to pages; the queries."""
        heads, both = turning.heads, turning.heads + turning.kv_heads
        x = _total(parts)
        x = x.view(len(x), both + turning.kv_heads, -1)
        turned = x[:, :both]
        if turning.norm is not None:
            scale = 1.0 / (turned.square().mean(-1, keepdim=True) + turning.eps).sqrt()
            turned = turned * scale * turning.norm
        if turning.is_rotated:
            at = step.positions.long()
            cos, sin = turning.cos[at][:, None], turning.sin[at][:, None]
            a, b = turned.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        self._write(turned[:, heads:], x[:, both:], step, cache)
        return (turned[:, :heads] * turning.query_scale).to(self._dtype)

    def _write(self, keys: torch.Tensor, values: torch.Tensor, step: Step, cache: Cache) -> None:
        real = step.writes >= 0
        pages, slots = step.writes[real].long(), step.positions[real].long() % PAGE
        pairs = ((keys, cache.keys, cache.key_scales), (values, cache.values, cache.value_scales))
        for numbers, to, scales_to in pairs:
            if scales_to is None:
                to[pages, :, slots] = numbers[real].to(to.dtype)
                continue
            codes, scales = _head_codes(numbers[real])
            to[pages, :, slots], scales_to[pages, :, slots] = codes, scales

    def attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, window: int | None
    ) -> torch.Tensor:
        """Attention: chunks and segments of each row, joined from left to right."""
        out = [
            self._attend(queries, cache, step, slice(start, start + _TILE_ROWS), window)
            for start in range(0, len(queries), _TILE_ROWS)
        ]
        return torch.cat(out)

    def _attend(
        self, queries: torch.Tensor, cache: Cache, step: Step, rows: slice, window: int | None
    ) -> torch.Tensor:
        some = queries[rows].float()
        num_rows, heads, dim = some.shape
        some = F.pad(some, (0, 0, 0, 0, 0, _TILE_ROWS - num_rows))
        positions = F.pad(step.positions[rows].long(), (0, _TILE_ROWS - num_rows), value=-1)
        tables = F.pad(step.tables[rows].long(), (0, _TILE_ROWS - num_rows))
        kv_heads = cache.keys.shape[1]
        grouped = some.view(_TILE_ROWS * kv_heads, heads // kv_heads, dim)
        whole = part = _nothing(grouped)
        for first in range(0, step.length, CHUNK):
            if first % SEGMENT == 0:
                whole, part = _joined(whole, part), _nothing(grouped)
            columns = first + torch.arange(CHUNK, device=queries.device)
            seen = columns <= positions[:, None]
            if window is not None:
                seen &= columns > positions[:, None] - window
            at = (tables[:, None] + columns // PAGE).clamp(max=len(step.table) - 1)
            pages = torch.where(columns <= positions[:, None], step.table[at].long(), 0)
            keys, values = (_gathered(cache, which, pages, columns % PAGE) for which in (0, 1))
            part = _joined(part, self._chunk(grouped, keys, values, seen))
        sums, _, mass = _joined(whole, part)
        out = sums / torch.where(mass == 0, 1.0, mass)
        return out.view(_TILE_ROWS, heads * dim)[:num_rows].to(self._dtype)

    def _chunk(
        self,
        queries: torch.Tensor,
        keys: tuple[torch.Tensor, torch.Tensor | None],
        values: tuple[torch.Tensor, torch.Tensor | None],
        seen: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A chunk's partial results: (n, G, D), and twice (n, G, 1); n is tile rows times K."""
        numbers, scales = keys
        seen = seen[:, None, None].expand(-1, len(queries) // _TILE_ROWS, 1, -1)
        seen = seen.reshape(len(queries), 1, CHUNK)
        scores = torch.bmm(queries, numbers.transpose(1, 2))
        if scales is not None:
            scores = scores * scales[:, None]
        scores = torch.where(seen, scores, _LEAST)
        peaks = scores.amax(-1, keepdim=True)
        weights = torch.where(seen, torch.exp2(scores - peaks), 0.0)
        masses = weights.sum(-1, keepdim=True)
        numbers, scales = values
        if scales is not None:
            weights = weights * scales[:, None]
        # What is not seen is zero, whatever lies there: 0 times a NaN would be a NaN.
        numbers = torch.where(seen.any(1)[..., None], numbers, 0.0)
        return torch.bmm(weights.to(self._dtype).float(), numbers), peaks, masses

    def quantise(self, x: torch.Tensor) -> Quantised:
        """Rows as int8."""
        return Quantised(*quantised_rows(x))

    def gate(self, parts: Parts, int8: bool) -> Rows:
        """SiLU of a product's first half, times the second."""
        left, right = _total(parts).chunk(2, dim=-1)
        return self._rows(left / (1.0 + torch.exp(-left)) * right, int8)

    def copy_pages(self, whole: torch.Tensor, pairs: torch.Tensor) -> None:
        """Copies pages of all layers."""
        sources, targets = pairs.long().unbind(1)
        whole.index_copy_(1, targets, whole.index_select(1, sources))

    def measure(self, logits: torch.Tensor) -> Measures:
        """Peak, mass and moments of rows."""
        peaks = logits.amax(-1)
        bad = ~torch.isfinite(peaks) | logits.isnan().any(-1)
        safe = torch.where(bad[:, None], 0.0, logits)
        real = safe > -torch.inf
        d = torch.where(real, safe - safe.amax(-1, keepdim=True), 0.0)
        w = torch.where(real, d.exp(), 0.0)
        return Measures(
            torch.where(bad, torch.nan, peaks),
            *(each.sum(-1) for each in (w, w * d, d, real.float())),
        )

    def draw(
        self, logits: torch.Tensor, adjusted: torch.Tensor, peaks: torch.Tensor, draws: Draws
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draws a token of each row."""
        kept = (adjusted > -torch.inf) & _allowed(draws, adjusted.shape[1])
        inverse = draws.numbers[:, :1]
        greedy = inverse == 0
        peaks = peaks.clone()
        special = draws.special.long()
        peaks[special] = torch.where(kept, adjusted, -torch.inf)[special].amax(-1)
        scale = torch.where(greedy, 1.0, inverse)
        d = torch.where(kept, (peaks[:, None] - adjusted) * scale, torch.inf)
        floors = torch.full_like(peaks, torch.finfo(torch.float32).max)
        for row in special.tolist():
            floors[row] = _floor(d[row], draws.numbers[row], int(draws.counts[row, 0]))
        noise = torch.where(greedy, 0.0, _noise(draws.keys, adjusted.shape[1]))
        inside = (d <= floors[:, None]) & (d < torch.inf)
        scores = torch.where(inside, -d - noise, -torch.inf)
        tokens = torch.where(scores.amax(-1) > -torch.inf, scores.argmax(-1), -1)
        found = logits.gather(1, tokens.clamp(min=0)[:, None])[:, 0]
        return tokens.int(), found

    def _rows(self, x: torch.Tensor, int8: bool) -> Rows:
        return self.quantise(x) if int8 else x.to(self._dtype)


State = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _nothing(queries: torch.Tensor) -> State:
    """A partial result of no position."""
    shape = (*queries.shape[:2], 1)
    zeros = torch.zeros(shape, device=queries.device)
    return torch.zeros_like(queries), zeros + _LEAST, zeros


def _joined(one: State, other: State) -> State:
    """Two partial results as one: values, peaks, masses."""
    peaks = torch.maximum(one[1], other[1])
    kept, added = torch.exp2(one[1] - peaks), torch.exp2(other[1] - peaks)
    return one[0] * kept + other[0] * added, peaks, one[2] * kept + other[2] * added


def _gathered(
    cache: Cache, which: int, pages: torch.Tensor, slots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A chunk of each row: (rows * K, CHUNK, D) and the scales, (rows * K, CHUNK)."""
    numbers, scales = (
        (cache.values, cache.value_scales) if which else (cache.keys, cache.key_scales)
    )
    numbers = numbers[pages, :, slots].float().transpose(1, 2).flatten(0, 1)
    if scales is None:
        return numbers, None
    return numbers, scales[pages, :, slots].transpose(1, 2).flatten(0, 1)


def _total(parts: Parts) -> torch.Tensor:
    total, *others = parts.sums.unbind()
    for other in others:
        total = total + other
    return total if parts.bias is None else total + parts.bias


def _tiled(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(R, N) float32, by products of one shape."""
    padded = F.pad(rows, (0, 0, 0, -len(rows) % _TILE_ROWS))
    wide = weight.float()
    tiles = [F.linear(tile.float(), wide) for tile in torch.split(padded, _TILE_ROWS)]
    return torch.cat(tiles)[: len(rows)]


def _int8_product(rows: Quantised, weight: Int8, each: int) -> torch.Tensor:
    """Groups are exact in float32 in any order: 64 products below 2^14 stay below 2^24.

    Groups and slices, of `each` groups, are added in the order of the kernel.
    """
    total = torch.zeros(len(rows.codes), weight.shape[0], device=rows.codes.device)
    for start in range(0, rows.scales.shape[1], each):
        sums = torch.zeros_like(total)
        for g in range(start, min(start + each, rows.scales.shape[1])):
            at = slice(g * GROUP, (g + 1) * GROUP)
            exact = F.linear(rows.codes[:, at].float(), weight.codes[:, at].float())
            sums += exact * (weight.scales[g] * rows.scales[:, g, None])
        total += sums
    return total


def _head_codes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Heads as int8, and a scale for each: (n, K, D) and (n, K)."""
    peaks = x.abs().amax(-1)
    inverse = torch.where(peaks > 0, 127.0 / peaks, 0.0)
    codes = (x * inverse[..., None]).round().nan_to_num().to(torch.int8)
    return codes, peaks / 127.0 + (x * 0.0).sum(-1)


def _allowed(draws: Draws, vocab: int) -> torch.Tensor:
    """Which tokens may be drawn, (R, V)."""
    places = draws.counts[:, 1].long()
    token = torch.arange(vocab, device=places.device)
    if draws.allowed is None:
        return torch.ones(len(places), vocab, dtype=torch.bool, device=places.device)
    words = draws.allowed[(places.clamp(min=0)[:, None] + token // 32)]
    return ((words >> (token % 32)) & 1 == 1) | (places[:, None] < 0)


def _floor(d: torch.Tensor, numbers: torch.Tensor, top_k: int) -> torch.Tensor:
    """The greatest distance that is kept; what ties with the last one is kept."""
    kept = d[d < torch.inf].sort().values
    floor = torch.full_like(d[0], torch.finfo(torch.float32).max)
    if 0 < top_k <= len(kept):
        floor = kept[top_k - 1]
    if numbers[1] < 1 and len(kept):
        within = kept[kept <= floor]
        mass = (-within).exp().double().cumsum(0)
        reached = mass >= numbers[1].double() * mass[-1]
        floor = within[int(reached.int().argmax())]
    return torch.minimum(floor, numbers[2])


def _noise(keys: torch.Tensor, vocab: int) -> torch.Tensor:
    """Ln E for every row and token; see `kernels.draw`."""
    low, high = (keys.long() & _WORD).unbind(1)
    token = torch.arange(vocab, device=keys.device)
    x = (token * _MIX[0] + low[:, None]) & _WORD
    x = x ^ (x >> 16)
    x = (x * _MIX[1]) & _WORD
    x = x ^ (x >> 15) ^ high[:, None]
    x = (x * _MIX[2]) & _WORD
    x = x ^ (x >> 16)
    u = ((x.float() + 0.5) * 2.0**-32).clamp(max=0.99999994)
    series = u * (1 + u * (0.5 + u * (0.33333334 + u * (0.25 + u * 0.2))))
    return torch.where(u < 2.0**-6, series, -torch.log(1 - u)).log()
