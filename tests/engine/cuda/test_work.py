"""Items of work: every row meets every chunk that it sees exactly once, in an order of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local.attention import CHUNK
from ttc.engine.local.cuda.work import SEGMENT, TILES, Work, plan_work
from ttc.engine.local.plan import PAGE, Plan, Span


@st.composite
def trees(draw: st.DrawFn) -> list[Span]:
    """Spans of sequences that share beginnings, each going on from some page of an earlier one."""
    spans: list[Span] = []
    fresh = iter(range(100_000))
    for _ in range(draw(st.integers(1, 7))):
        pages: list[int] = []
        if spans:
            other = draw(st.sampled_from(spans))
            whole = (other.start + other.count) // PAGE
            pages = list(other.pages[: draw(st.integers(0, whole))])
        pages += [next(fresh) for _ in range(draw(st.integers(1, 50)))]
        count = draw(st.sampled_from([1, 1, 2, 5, 70]))
        start = draw(st.integers(0, max(0, len(pages) * PAGE - count)))
        spans.append(Span(pages=pages, start=start, count=min(count, len(pages) * PAGE - start)))
    return spans


def met(plan: Plan, work: Work) -> dict[tuple[int, int], tuple[int, int]]:
    """By row and chunk: the state that the chunk goes to, and its first page."""
    table, found = plan.pages.reshape(-1), {}
    for items, members in zip(work.items, work.members, strict=True):
        for first, count, at, chunk, chunks, folds in items.tolist():
            for row, position, slot in members[first : first + count].tolist():
                for c in range(chunk, chunk + chunks):
                    if c * CHUNK > position:
                        continue
                    assert (row, c) not in found
                    state = slot if folds else slot + c - chunk
                    found[row, c] = state, int(table[at + c * CHUNK // PAGE])
    return found


@settings(max_examples=60)
@given(
    spans=trees(), group=st.sampled_from([1, 3, 7, 16]), tiles=st.sampled_from([TILES, TILES[1:]])
)
def test_every_row_meets_the_chunks_that_it_sees_once_and_in_order(
    spans: list[Span], group: int, tiles: tuple[int, ...]
) -> None:
    """On its own pages; a state holds chunks of one segment, and says where a segment begins."""
    plan = Plan(spans)
    work = plan_work(plan, group, tiles)
    found, row = met(plan, work), 0
    for span in spans:
        for position in span.positions:
            states = [found[row, c] for c in range(position // CHUNK + 1)]
            assert [page for _, page in states] == list(span.pages[: position // PAGE + 1 : 4])
            slots = [slot for slot, _ in states]
            first, end = work.begins[row : row + 2].tolist()
            assert slots == sorted(slots)
            assert first <= slots[0] <= slots[-1] < end
            opens = [i for i in range(first, end) if work.opens[i]]
            assert opens == [slots[c] for c in range(0, len(slots), SEGMENT // CHUNK)]
            row += 1
    assert len(found) == sum(p // CHUNK + 1 for span in spans for p in span.positions)


def test_only_what_begins_a_segment_is_folded() -> None:
    """Or a row's sum would depend on where it left its siblings."""
    common = list(range(44))  # 11 chunks: a segment, and three chunks of the next
    spans = [Span(pages=[*common, *range(s, s + 24)], start=900, count=1) for s in (100, 200, 300)]

    work = plan_work(Plan(spans), 4)

    items = sorted(tuple(i) for each in work.items for i in each[:, 1:].tolist())
    assert [(n, *rest) for n, _, *rest in items] == [(1, 11, 4, 0)] * 3 + [
        (3, 0, 8, 1),
        (3, 8, 3, 1),
    ]
    assert np.diff(work.begins).tolist() == [1 + 1 + 4] * 3


@pytest.mark.parametrize(("branches", "tile"), [(1, 0), (2, 0), (3, 1), (64, 1)])
def test_a_chunk_of_many_queries_is_an_item_of_the_wide_tile(branches: int, tile: int) -> None:
    """With 7 queries a row, two rows fit into 16."""
    spans = [Span(pages=[0, 1, 2, 3], start=60, count=1)] * branches

    work = plan_work(Plan(spans), 7)

    rows_each = TILES[tile] // 7
    assert len(work.items[tile]) == -(-branches // rows_each)
    assert len(work.items[1 - tile]) == 0
