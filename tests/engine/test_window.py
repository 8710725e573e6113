"""Attention through a sliding window: only what it shows counts, and to the bit in any batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local.attention import Attention
from ttc.engine.local.plan import PAGE, Span

SIZES = {"num_kv_heads": 2, "group": 3, "head_dim": 16}
GROUP_ROWS = Attention.probe(**SIZES)
SCATTERED = (4, 2, 7, 30, 11, 5, 47, 1, 0, 19, 23, 6)
WINDOWS = [1, 5, 63, 64, 65, 100, 1000]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers, the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def pool() -> list[torch.Tensor]:
    """Keys and values of 48 pages."""
    return [random(48, 2, 16, PAGE), random(48, 2, PAGE, 16, seed=1)]


def attend(
    spans: list[Span], queries: torch.Tensor, pool: list[torch.Tensor], window: int
) -> torch.Tensor:
    """One layer's attention."""
    attention = Attention(spans, group_rows=GROUP_ROWS, window=window, **SIZES)
    return attention(queries, *pool)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_shows_a_position_and_those_just_before_it(
    pool: list[torch.Tensor], window: int
) -> None:
    """Against a plain float64 softmax, in three chunks."""
    queries = random(150, 6, 16, seed=2)
    keys = torch.cat([pool[0][page] for page in SCATTERED], dim=-1).double()  # (2, 16, positions)
    values = torch.cat([pool[1][page] for page in SCATTERED], dim=1).double()
    scores = torch.einsum("rkgd,kdp->rkgp", queries.view(150, 2, 3, 16).double(), keys)
    distance = torch.arange(150)[:, None] - torch.arange(192)
    hidden = (distance < 0) | (distance >= window)
    weights = scores.masked_fill(hidden[:, None, None], -torch.inf).softmax(-1)
    expected = torch.einsum("rkgp,kpd->rkgd", weights, values).reshape(150, 96).float()

    actual = attend([Span(pages=SCATTERED, start=0, count=150)], queries, pool, window)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@given(
    st.sampled_from(WINDOWS),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 190)), min_size=1, max_size=30),
)
@settings(max_examples=40, deadline=None)
def test_a_row_does_not_depend_on_the_batch(
    pool: list[torch.Tensor], window: int, rows: list[tuple[int, int]]
) -> None:
    """Rows of three sequences with a common beginning, in any number and order."""
    pages = [(*range(6), *range(start, start + 6)) for start in (10, 20, 30)]
    queries = random(191, 6, 16, seed=3)
    spans = [Span(pages=pages[s], start=position, count=1) for s, position in rows]
    together = attend(spans, queries[[position for _, position in rows]], pool, window)

    for row, span in enumerate(spans):
        alone = attend([span], queries[span.start : span.start + 1], pool, window)
        assert torch.equal(alone[0], together[row])


def test_what_lies_outside_the_window_changes_nothing(pool: list[torch.Tensor]) -> None:
    """Not even where it would win every time."""
    spans = [Span(pages=range(12), start=100, count=60)]
    queries = random(60, 6, 16, seed=4)
    before = attend(spans, queries, pool, 30)
    other = [half.clone() for half in pool]
    other[0][:4] = 1e3
    other[0][4, :, :, :7] = 1e3  # positions 64 to 70; the first row sees 71 to 100

    assert torch.equal(attend(spans, queries, other, 30), before)
