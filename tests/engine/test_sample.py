"""Drawing tokens: filters, noise, log probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local.native import Kernels
from ttc.engine.local.native.sampler import NativeSampler
from ttc.engine.local.sample import Draw, draw_tokens
from ttc.types import Sampling


@pytest.fixture(scope="module", autouse=True, params=["pytorch", "kernels"])
def _every_sampler(request: pytest.FixtureRequest) -> Iterator[None]:
    """All that follows holds of both."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernels":
            patch.setitem(globals(), "draw_tokens", NativeSampler(Kernels()).draw)
        yield


def draw(logits: list[float] | torch.Tensor, n: int, seed: int = 0, **sampling: Any) -> list[int]:
    """Draws n tokens from one distribution, at n positions."""
    row = torch.as_tensor(logits, dtype=torch.float32)
    draws = [Draw(sampling=Sampling(**sampling), seed=seed, position=i) for i in range(n)]
    return draw_tokens(row.expand(n, -1), draws).token_ids


LOGITS = [2.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("top_p", [0.0, 1e-9])
def test_a_tiny_top_p_keeps_the_most_probable_token(top_p: float) -> None:
    """At least one token always survives."""
    assert set(draw(LOGITS, 200, top_p=top_p)) == {0}


def test_a_top_p_of_one_filters_nothing() -> None:
    """Equal to no filter, draw by draw."""
    assert draw(LOGITS, 200, top_p=1.0) == draw(LOGITS, 200)
    assert set(draw(LOGITS, 200, top_p=0.999999)) == {0, 1, 2, 3}


@pytest.mark.parametrize("top_p", [1.5, -0.1, math.nan])
def test_a_top_p_that_is_no_probability_is_refused(top_p: float) -> None:
    """The message holds the value."""
    with pytest.raises(ValueError, match=rf"top_p .*not {top_p}"):
        Sampling(top_p=top_p)


def test_top_p_keeps_the_token_that_crosses_the_threshold() -> None:
    """Of 0.4, 0.3, 0.2, 0.1 the first two reach 0.5, after temperature 1."""
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()

    assert set(draw(logits, 200, top_p=0.5)) == {0, 1}
    assert set(draw(logits, 200, top_p=0.5, temperature=0.5)) == {0}  # 16/30 alone reaches it


def test_a_nucleus_larger_than_the_partial_sort_is_exact() -> None:
    """Of 4,000 equal tokens but one, half are more than the 1,024 that are looked at first."""
    logits = torch.zeros(4000)
    logits[2000:] = -1.0
    kept = set(draw(logits, 3000, top_p=0.6))

    assert max(kept) < 2000
    assert len(kept) > 1024


def test_top_k_keeps_k_tokens() -> None:
    """And a k beyond the vocabulary keeps all."""
    assert set(draw(LOGITS, 200, top_k=2)) == {0, 1}
    assert set(draw(LOGITS, 200, top_k=100)) == {0, 1, 2, 3}


def test_min_p_keeps_tokens_near_the_most_probable() -> None:
    """exp(-1) is 0.37 times as probable, exp(-1.5) 0.22 times."""
    assert set(draw(LOGITS, 200, min_p=0.3)) == {0, 1}
    assert set(draw(LOGITS, 50, min_p=1.0)) == {0}


def test_greedy_takes_the_lowest_of_equals() -> None:
    """Temperature 0 is greedy and needs no noise."""
    assert draw([1.0, 3.0, 3.0, 2.0], 3, temperature=0) == [1, 1, 1]


def test_the_smallest_temperature_is_greedy_without_a_fault() -> None:
    """A temperature that float32 cannot hold still draws the most probable token."""
    assert set(draw(LOGITS, 20, temperature=1e-300)) == {0}


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 2.0])
def test_logprobs_are_raw_at_any_temperature_and_filter(temperature: float) -> None:
    """They are natural logs of the model's own distribution."""
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.1])
    sampling = Sampling(temperature=temperature, top_p=0.9)
    draws = [Draw(sampling=sampling, seed=3, position=i) for i in range(50)]
    drawn = draw_tokens(probabilities.log().expand(50, -1), draws)

    expected = [-0.9163, -1.2040, -1.6094, -2.3026]
    assert drawn.logprobs == pytest.approx([expected[t] for t in drawn.token_ids], abs=1e-4)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    """Each row alone gives the token and the bits that it gives in the batch."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 777, generator=generator) * 4
    kinds = [{}, {"temperature": 0}, {"top_p": 0.8}, {"top_k": 5, "temperature": 0.7}]
    draws = [
        Draw(sampling=Sampling(**kinds[i % 4]), seed=i, position=3 * i)  # type: ignore[arg-type]
        for i in range(12)
    ]
    together = draw_tokens(logits, draws)

    for row in range(12):
        alone = draw_tokens(logits[row : row + 1], draws[row : row + 1])
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs[0] == together.logprobs[row]


def test_a_seed_is_reproducible_and_another_seed_differs() -> None:
    """Seven bits of freedom at 40 positions: equal by chance once in 2^280."""
    logits = torch.zeros(128)

    assert draw(logits, 40, seed=7) == draw(logits, 40, seed=7)
    assert draw(logits, 40, seed=7) != draw(logits, 40, seed=8)


def test_logits_that_are_no_numbers_are_an_error() -> None:
    """A broken model gives no token."""
    with pytest.raises(ArithmeticError, match="not finite"):
        draw([1.0, math.nan], 1)


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=40),
    st.floats(0, 1),
    st.integers(1, 50),
    st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_filters_together_always_leave_a_token(
    logits: list[float], top_p: float, top_k: int, min_p: float
) -> None:
    """Whatever they are, a token of the vocabulary comes, and none below min_p."""
    (token,) = draw(logits, 1, top_p=top_p, top_k=top_k, min_p=min_p)

    assert 0 <= token < len(logits)
    assert min_p == 0 or logits[token] >= max(logits) + math.log(min_p) - 1e-4


def chi_square(observed: list[int], probabilities: list[float]) -> float:
    """Pearson's statistic."""
    n = sum(observed)
    return sum((o - n * p) ** 2 / (n * p) for o, p in zip(observed, probabilities, strict=True))


@pytest.mark.statistical
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_draws_follow_the_softmax(temperature: float) -> None:
    """50,000 draws of 200 tokens in four blocks, keyed by position; the 20 most probable apart.

    Chi-square with 20 degrees of freedom exceeds 62.2 with probability 3e-6; the seed is fixed.
    """
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(200, generator=generator) * 2
    probabilities = (logits.double() / temperature).softmax(-1)
    top = probabilities.topk(20).indices.tolist()
    counts = torch.tensor(draw(logits, 50_000, seed=11, temperature=temperature)).bincount(
        minlength=200
    )
    observed = [int(counts[i]) for i in top]
    expected = [float(probabilities[i]) for i in top]

    assert chi_square([*observed, 50_000 - sum(observed)], [*expected, 1 - sum(expected)]) < 62.2


@pytest.mark.statistical
def test_seeds_and_positions_draw_independently() -> None:
    """40,000 pairs of draws, of seeds s and s + 1 and of positions p and p + 1, of 4 equal tokens.

    Chi-square with 15 degrees of freedom exceeds 54 with probability 3e-6, twice; seeds are fixed.
    """
    n = 40_000
    rows = torch.zeros(n + 1, 4)
    by_seed = [Draw(sampling=Sampling(), seed=i, position=9) for i in range(n + 1)]
    by_position = [Draw(sampling=Sampling(), seed=9, position=i) for i in range(n + 1)]
    for draws in (by_seed, by_position):
        ids = draw_tokens(rows, draws).token_ids
        pairs = [0] * 16
        for first, second in zip(ids[::2], ids[1::2], strict=False):
            pairs[4 * first + second] += 1

        assert chi_square(pairs, [1 / 16] * 16) < 54
