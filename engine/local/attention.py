"""Attention over cached pages, the same to the bit for a row in any batch.

Positions fall into absolute chunks of 64, each in up to four pages of the cache, wherever these
lie. A row's query meets each of its chunks at the full constant width, later positions hidden; a
chunk's partial result (values, peak, mass) depends on the row and the chunk alone; the partial
results of a row are added from left to right. So it does not matter which rows share a matrix
product, whether a prefix is shared, or whether a position was computed in a long prefill or alone.
(Split softmax: Milakov and Gimelshein 2018, arXiv 1805.02867; over shared prefixes: Juravsky et al.
2024, arXiv 2402.05099.)

Products come in tiles: a chunk that many rows read is multiplied with 16 rows at a time; a chunk of
one row's own is a tile of that row's heads, padded to the number of matrix rows from which the
library's product is row-invariant.

Shapes: rows R, query heads H, key heads K, queries per key head G = H / K, head size D, tiles n.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ttc.engine.local.plan import PAGE, Span
from ttc.safe_text import safe_logger

__all__ = ["CHUNK", "Attention"]

logger = safe_logger(__name__)

CHUNK = 64
"""Positions of a partial result. It decides bits."""

_TILE_ROWS = 16
_SHARED_FROM = 4  # rows of one chunk from which a shared tile, with some of it empty, is cheaper
_PAGES = CHUNK // PAGE
_PAD_MULTIPLES = (4, 8, 16)

_Chunk = tuple[int, tuple[int, ...]]  # its number and its pages
_Tile = tuple[_Chunk, list[int]]  # and the rows that meet it


@dataclass(frozen=True, kw_only=True)
class _Tiles:
    """Chunks and the rows that meet them. The row after the last is a blank that fills tiles up."""

    rows_each: int
    pages: torch.Tensor
    """(n * 4,) of a chunk that has fewer than four, the last one again."""
    rows: torch.Tensor
    """(n * rows_each,)"""
    cells: torch.Tensor
    """(n * rows_each,) where the partial results go: chunk * (R + 1) + row."""
    mask: torch.Tensor
    """(n, 1, rows_each, 1, CHUNK) -inf at positions that the row does not see, else 0."""

    def select(self, pool: torch.Tensor, positions: int) -> torch.Tensor:
        """The tiles' chunks out of a pool, whose dimension `positions` is that of a page."""
        pages = pool.index_select(0, self.pages).view(-1, _PAGES, *pool.shape[1:])
        return pages.movedim(1, positions).flatten(positions, positions + 1)


class Attention:
    """One step's attention: planned once, and run for every layer.

    Args:
        spans: what is computed; its rows lie one after another in this order.
        num_kv_heads: K.
        group: G.
        head_dim: D.
        group_rows: matrix rows of an unshared tile, at least G; see `probe`.
        window: how many positions a row sees, its own the last; `None` for all of them.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        *,
        num_kv_heads: int,
        group: int,
        head_dim: int,
        group_rows: int,
        window: int | None = None,
    ) -> None:
        self._kv_heads, self._group, self._head_dim = num_kv_heads, group, head_dim
        self._group_rows = group_rows
        self._window = window
        positions = [position for span in spans for position in span.positions]
        self.positions = torch.tensor(positions)
        """(R,) the absolute position of each row."""
        pages = torch.tensor([s.pages[p // PAGE] for s in spans for p in s.positions])
        heads = pages[:, None] * num_kv_heads + torch.arange(num_kv_heads)  # (R, K)
        slots = self.positions[:, None] % PAGE
        self._value_rows = (heads * PAGE + slots).flatten()
        dims = heads[..., None] * head_dim + torch.arange(head_dim)  # (R, K, D)
        self._key_cells = (dims * PAGE + slots[..., None]).flatten()
        self._num_rows = len(positions)
        self._num_chunks = max(positions) // CHUNK + 1
        self._tiles = list(self._plan(spans, positions))
        cells = self._num_chunks * (self._num_rows + 1)
        self._padded = torch.zeros(self._num_rows + 1, num_kv_heads, group_rows, head_dim)
        # A row's cells beyond its last chunk stay as they are here, and add exact zeros.
        self._sums = torch.zeros(cells, num_kv_heads * group, head_dim + 1)  # values, then the mass
        self._peaks = torch.full((cells, num_kv_heads * group, 1), -torch.inf)

    def _plan(self, spans: Sequence[Span], positions: Sequence[int]) -> Iterator[_Tiles]:
        readers: dict[_Chunk, list[int]] = defaultdict(list)
        first_row = 0
        for span in spans:
            pages = span.pages[: span.positions[-1] // PAGE + 1]
            for chunk in range(span.positions[-1] // CHUNK + 1):
                skipped = max(0, chunk * CHUNK - span.start)  # rows that come before the chunk
                end = span.count
                if self._window is not None:  # rows whose window begins after the chunk
                    end = min(end, (chunk + 1) * CHUNK + self._window - 1 - span.start)
                if skipped < end:
                    its_pages = tuple(pages[chunk * _PAGES : (chunk + 1) * _PAGES])
                    readers[chunk, its_pages].extend(range(first_row + skipped, first_row + end))
            first_row += span.count
        own = [
            (key, [row])
            for key, rows in readers.items()
            if len(rows) < _SHARED_FROM
            for row in rows
        ]
        shared = [
            (key, rows[start : start + _TILE_ROWS])
            for key, rows in readers.items()
            if len(rows) >= _SHARED_FROM
            for start in range(0, len(rows), _TILE_ROWS)
        ]
        if own:
            yield self._tensors(own, 1, positions)
        if shared:
            yield self._tensors(shared, _TILE_ROWS, positions)

    def _tensors(self, tiles: Sequence[_Tile], width: int, positions: Sequence[int]) -> _Tiles:
        blank = self._num_rows
        pages = [(*pages, *[pages[-1]] * (_PAGES - len(pages))) for (_, pages), _ in tiles]
        rows = torch.tensor([rows + [blank] * (width - len(rows)) for _, rows in tiles])
        chunks = torch.tensor([chunk for (chunk, _), _ in tiles])  # (n,)
        ends = torch.tensor([*positions, (self._num_chunks + 1) * CHUNK])[rows]  # a blank sees all
        columns = chunks[:, None] * CHUNK + torch.arange(CHUNK)  # (n, CHUNK)
        mask = torch.zeros(len(tiles), width, CHUNK)
        mask.masked_fill_(columns[:, None, :] > ends[:, :, None], -torch.inf)
        if self._window is not None:
            firsts = ends.masked_fill(rows == blank, 0) - self._window
            mask.masked_fill_(columns[:, None, :] <= firsts[:, :, None], -torch.inf)
        return _Tiles(
            rows_each=width,
            pages=torch.tensor(pages).flatten(),
            rows=rows.flatten(),
            cells=(chunks[:, None] * (blank + 1) + rows).flatten(),
            mask=mask[:, None, :, None, :],
        )

    def write(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        to_keys: torch.Tensor,
        to_values: torch.Tensor,
    ) -> None:
        """Stores the step's own keys and values, (R, K, D), in one layer's pages."""
        to_keys.view(-1).scatter_(0, self._key_cells, keys.reshape(-1))
        to_values.view(-1, self._head_dim).index_copy_(
            0, self._value_rows, values.reshape(-1, self._head_dim)
        )

    def __call__(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """Attends in one layer.

        Args:
            queries: (R, H, D), scaled.
            keys: (pages, K, D, PAGE), those of this step written, unwritten ones finite.
            values: (pages, K, PAGE, D).

        Returns:
            (R, H * D)
        """
        grouped = queries.view(-1, self._kv_heads, self._group, self._head_dim)
        self._padded[:-1, :, : self._group] = grouped
        for tiles in self._tiles:
            self._multiply(tiles, keys, values)
        return self._merge()

    def _multiply(self, tiles: _Tiles, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Computes the partial results of tiles."""
        kv_heads, head_dim, width = self._kv_heads, self._head_dim, tiles.rows_each
        each = self._group_rows if width == 1 else self._group
        num_tiles = len(tiles.pages) // _PAGES
        queries = self._padded[:, :, :each].index_select(0, tiles.rows)
        queries = queries.view(num_tiles, width, kv_heads, each, head_dim).transpose(1, 2)
        batch = num_tiles * kv_heads
        scores = torch.bmm(
            queries.reshape(batch, width * each, head_dim),
            tiles.select(keys, 3).reshape(batch, head_dim, CHUNK),
        )
        scores.view(num_tiles, kv_heads, width, each, CHUNK).add_(tiles.mask)
        peaks = scores.amax(-1, keepdim=True)
        scores.sub_(peaks).exp_()
        partial = torch.bmm(scores, tiles.select(values, 2).reshape(batch, CHUNK, head_dim))
        sums = torch.cat([partial, scores.sum(-1, keepdim=True)], dim=-1)
        for target, result in ((self._sums, sums), (self._peaks, peaks)):
            shaped = result.view(num_tiles, kv_heads, width, each, -1)[:, :, :, : self._group]
            flat = shaped.transpose(1, 2).reshape(len(tiles.cells), *target.shape[1:])
            target.index_copy_(0, tiles.cells, flat)

    def _merge(self) -> torch.Tensor:
        """Adds each row's partial results, from left to right. (R, H * D)."""
        shape = (self._num_chunks, self._num_rows + 1, self._kv_heads * self._group, -1)
        peaks = self._peaks.view(shape)[:, :-1]
        weights = (peaks - peaks.amax(0)).exp_()  # a row's own chunk is never empty: no -inf - -inf
        total, *others = (self._sums.view(shape)[:, :-1] * weights).unbind()
        for weighted in others:
            total += weighted
        return (total[..., :-1] / total[..., -1:]).view(self._num_rows, -1)

    @staticmethod
    def probe(*, num_kv_heads: int, group: int, head_dim: int) -> int:
        """The matrix rows of an unshared tile from which results do not depend on tiling here.

        Falls back, with a warning, to unshared tiles as large as shared ones.
        """
        sizes = {"num_kv_heads": num_kv_heads, "group": group, "head_dim": head_dim}
        for multiple in _PAD_MULTIPLES:
            group_rows = -(-group // multiple) * multiple
            if _is_tiling_invariant(sizes, group_rows):
                return group_rows
        logger.warning(
            "no small attention tile is row-invariant for %s here; every tile takes %d rows, which "
            "is slow",
            sizes,
            _TILE_ROWS,
        )
        return group * _TILE_ROWS


def _is_tiling_invariant(sizes: dict[str, int], group_rows: int) -> bool:
    """Whether rows come out the same alone, in a few and in many, on chunks shared or not."""
    num_rows, start = 21, 2 * CHUNK - 5
    generator = torch.Generator().manual_seed(0)
    heads, head_dim = sizes["num_kv_heads"], sizes["head_dim"]
    keys = torch.randn(3 * _PAGES, heads, head_dim, PAGE, generator=generator)
    values = torch.randn(3 * _PAGES, heads, PAGE, head_dim, generator=generator)
    queries = torch.randn(num_rows, heads * sizes["group"], head_dim, generator=generator)

    def attend(*spans: tuple[int, int]) -> torch.Tensor:
        plan = [Span(pages=range(3 * _PAGES), start=start + first, count=n) for first, n in spans]
        rows = torch.cat([queries[first : first + n] for first, n in spans])
        return Attention(plan, group_rows=group_rows, **sizes)(rows, keys, values)

    together = attend((0, num_rows))
    return all(
        torch.equal(together[row], attend((row, 1), *company)[0])
        for row in (0, 4, 5, 13, num_rows - 1)
        for company in ((), ((0, 1), (7, 1)), ((1, 9),))
    )
