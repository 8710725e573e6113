"""What a step reads: how its rows are sorted, what they share, and what that takes."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.costs import Costs
from ttc.engine.local.plan import PAGE, Plan, Span

COSTS = Costs(flops_per_token=1, flops_per_draw=1, attention=((10, None),), kv_bytes_per_token=100)


def spans_of_tree(choices: list[list[int]], ends: list[int]) -> list[Span]:
    """Sequences that went the given ways through a tree: equal beginnings have equal pages."""
    pages: dict[tuple[int, ...], int] = {}
    spans = []
    for choice, end in zip(choices, ends, strict=True):
        needed = -(-end // PAGE)
        path = [tuple((choice * needed)[: p + 1]) for p in range(needed)]
        for node in path:
            pages.setdefault(node, 7 * len(pages) % 997)
        spans.append(Span(pages=[pages[node] for node in path], start=end - 1, count=1))
    return spans


trees = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=4), st.integers(1, 100)),
    min_size=1,
    max_size=12,
).map(lambda paths: spans_of_tree([choice for choice, _ in paths], [end for _, end in paths]))


def seen(span: Span, end: int) -> set[tuple[int, int]]:
    """The places of a span's tokens, (page, slot)."""
    return {(span.pages[p // PAGE], p % PAGE) for p in range(end)}


@given(trees)
@settings(max_examples=200, deadline=None)
def test_every_token_of_a_step_is_counted_once(spans: list[Span]) -> None:
    """Against a set of all places; the sharing factor is what paths are longer in sum."""
    reads = Plan(spans).reads(COSTS)
    nodes = len(set.union(*[seen(s, s.start + s.count) for s in spans]))
    paths = sum(s.start + s.count for s in spans)

    assert (reads.node_tokens, reads.path_tokens) == (nodes, paths)
    assert reads.sharing == paths / nodes >= 1
    assert reads.kv_bytes == 100 * nodes


@given(trees)
@settings(max_examples=200, deadline=None)
def test_readers_that_share_pages_lie_together(spans: list[Span]) -> None:
    """And each says how many it has in common with the one before."""
    plan = Plan(spans)
    tables = [list(spans[row].pages) for row in plan.readers["row"]]
    for before, after, reader in zip(tables, tables[1:], plan.readers[1:], strict=False):
        common = next(
            (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
            min(len(before), len(after)),
        )
        assert reader["shared"] == common
    for depth in range(1, 8):
        beginnings = [tuple(pages[:depth]) for pages in tables if len(pages) >= depth]
        changes = sum(a != b for a, b in pairwise(beginnings))
        assert changes == len(set(beginnings)) - (beginnings != [])


def test_rows_of_one_sequence_share_everything() -> None:
    """A prompt's tokens beside a decoding sequence: rows, positions and tables."""
    plan = Plan([Span(pages=[5, 6, 9], start=14, count=20), Span(pages=[5], start=9, count=1)])
    by_row = np.sort(plan.readers, order="row")

    assert by_row["position"].tolist() == [*range(14, 34), 9]
    pages = plan.pages.flatten()
    assert [pages[r["table"] + r["position"] // PAGE] for r in by_row] == [5] * 2 + [6] * 16 + [
        9,
        9,
        5,
    ]
    assert plan.reads(COSTS).pairs == sum(range(15, 35)) + 10
    assert plan.length == 34


def test_a_window_reads_its_own_pages_alone() -> None:
    """Half of the layers see 20 positions: those of the last two pages, in whole pages."""
    costs = Costs(
        flops_per_token=1,
        flops_per_draw=1,
        attention=((10, None), (10, 20)),
        kv_bytes_per_token=100,
    )
    span = Span(pages=range(8), start=127, count=1)

    assert Plan([span]).reads(costs).kv_bytes == 50 * 128 + 50 * 32


def test_pages_are_read_alike_from_lists_and_arrays() -> None:
    """The latter is what a sequence that grows keeps."""
    plans = [Plan([Span(pages=p, start=20, count=1)]) for p in ([3, 8, 4], array("i", [3, 8]))]

    assert np.array_equal(plans[0].pages, plans[1].pages)


def test_too_few_pages_are_refused() -> None:
    """With both numbers."""
    with pytest.raises(ValueError, match="33 positions need 3 pages, and the span has 2"):
        Plan([Span(pages=[1, 2], start=32, count=1)])
