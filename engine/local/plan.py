"""What a step reads: its rows, the pages that they see, and how much of that they share.

Sequences are sorted by their pages, so those with a common beginning lie together, and how many
pages each shares with the one before says which rows a page can be multiplied with at once. The
distinct tokens of a step are those that a sequence does not share with the one before: the sorted
list is the tree of sequences, walked depth first. Knows no tensors and no models.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ttc.costs import Costs

__all__ = ["PAGE", "READER", "Plan", "Reads", "Span"]

PAGE = 16
"""Positions in a page of keys and values. It decides no bits."""

READER = np.dtype([(name, np.int32) for name in ("row", "position", "table", "shared")])
"""`struct reader` of the kernels: a row, its position, where its pages begin in `Plan.pages`, and
how many of them it has in common with the reader before."""
_ALL = 1 << 30  # pages that a row has in common with the one before in its own sequence
_NUMBER = array("i").itemsize


class Span(NamedTuple):
    """Consecutive positions of one sequence that are computed in one step."""

    pages: Sequence[int]
    """The sequence's pages: page p holds positions PAGE p to PAGE p + PAGE - 1; up to the last one
    at least. An `array("i")` is read fastest."""
    start: int
    """The first position."""
    count: int  # type: ignore[assignment]  # the method of tuples is of no use here

    @property
    def positions(self) -> range:
        """All positions of the span."""
        return range(self.start, self.start + self.count)


class Reads(NamedTuple):
    """What a step's attention reads."""

    rows: int
    """Tokens that are computed."""
    path_tokens: int
    """Tokens of every sequence up to the last that is computed, of each sequence counted anew."""
    node_tokens: int
    """The same tokens, those in common pages counted once."""
    pairs: int
    """Positions that rows see, added up; a window is not taken off."""
    kv_bytes: int
    """Bytes of the keys and values of `node_tokens`, in all layers; in layers with a window those
    of the pages that it shows."""

    @property
    def sharing(self) -> float:
        """The sharing factor: how many times less is read than without sharing; at least 1."""
        return self.path_tokens / self.node_tokens


class Plan:
    """A step.

    Args:
        spans: what it computes, at least one; their rows lie one after another in this order.

    Raises:
        ValueError: a span has too few pages for its positions.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        starts = np.array([span.start for span in spans], dtype=np.int32)
        counts = np.array([span.count for span in spans], dtype=np.int32)
        ends = starts + counts
        keys = [_key(*each) for each in zip(spans, ends.tolist(), range(len(spans)), strict=True)]
        # Bytes compare as fast as memory is read. Any order does that keeps beginnings together.
        keys.sort()
        order = [place for _, _, place in keys]
        width = max(len(pages) for pages, _, _ in keys)
        table = b"".join([pages.ljust(width, b"\xff") for pages, _, _ in keys])
        self.pages = np.frombuffer(table, np.int32).reshape(len(spans), -1)
        """(spans, most pages of one), in the order of the readers; -1 where there are no more."""
        self._starts, self._ends = starts[order], ends[order]
        self._num_pages = -(-self._ends // PAGE)
        self._shared = _shared(self.pages, self._num_pages)
        self.num_rows, self.length = int(counts.sum()), int(ends.max())
        """Tokens that are computed, and those of the longest sequence."""
        firsts = (counts.cumsum() - counts)[order]
        self.readers = self._readers(firsts, counts[order])
        """(rows,) of `READER`, sorted by their pages."""

    def _readers(
        self, firsts: npt.NDArray[np.int32], counts: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.void]:
        readers = np.empty(self.num_rows, READER)
        tables = np.arange(0, self.pages.size, self.pages.shape[1])
        if len(counts) == self.num_rows:
            readers["row"], readers["position"] = firsts, self._starts
            readers["table"], readers["shared"] = tables, self._shared
            return readers
        begins = counts.cumsum() - counts
        within = np.arange(self.num_rows) - np.repeat(begins, counts)
        readers["row"] = np.repeat(firsts, counts) + within
        readers["position"] = np.repeat(self._starts, counts) + within
        readers["table"] = np.repeat(tables, counts)
        readers["shared"] = _ALL
        readers["shared"][begins] = self._shared
        return readers

    def reads(self, costs: Costs) -> Reads:
        """What its attention reads, of a model with these costs."""
        before = np.minimum(self._shared * PAGE, np.concatenate([[0], self._ends[:-1]]))
        nodes = int(np.maximum(self._ends - before, 0).sum())
        flops = sum(flops for flops, _ in costs.attention)
        seen = sum(f * self._seen(window, nodes) for f, window in costs.attention)
        return Reads(
            rows=self.num_rows,
            path_tokens=int(self._ends.sum()),
            node_tokens=nodes,
            pairs=int(self.readers["position"].sum(dtype=np.int64)) + self.num_rows,
            kv_bytes=costs.kv_bytes_per_token * seen // flops,
        )

    def _seen(self, window: int | None, nodes: int) -> int:
        """Distinct tokens that layers of a window read."""
        if window is None:
            return nodes
        firsts = np.maximum(self._starts + 1 - window, 0) // PAGE
        column = np.arange(self.pages.shape[1])
        shown = (column >= firsts[:, None]) & (column < self._num_pages[:, None])
        return min(nodes, len(np.unique(self.pages[shown])) * PAGE)


def _key(span: Span, end: int, place: int) -> tuple[bytes, int, int]:
    """By what a span is sorted: its pages up to its last position, as bytes; its end; its place."""
    pages = span.pages if isinstance(span.pages, array) else array("i", span.pages)
    needed = -(-end // PAGE)
    if len(pages) < needed:
        raise ValueError(f"{end} positions need {needed} pages, and the span has {len(pages)}")
    return pages.tobytes()[: needed * _NUMBER], end, place


def _shared(
    pages: npt.NDArray[np.int32], num_pages: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """How many pages from the beginning on each row of a table has in common with the one above."""
    shared = np.zeros(len(pages), dtype=np.int32)
    if len(pages) == 1:
        return shared
    differs = pages[1:] != pages[:-1]
    lengths = np.where(differs.any(1), differs.argmax(1), pages.shape[1])
    shared[1:] = np.minimum(lengths, num_pages[1:])
    return shared
