"""What is measured of a distribution while a token is drawn from it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from ttc.engine.local import LocalEngine
from ttc.engine.local.native import Kernels
from ttc.engine.local.native.sampler import NativeSampler
from ttc.engine.local.sample import Draw, Drawn, draw_tokens
from ttc.ports import Request
from ttc.types import Chunk, Sampling

SKEWED = [math.log(p) for p in (0.5, 0.25, 0.125, 0.125)]
ENTROPY = 1.75 * math.log(2)
"""Of the probabilities 1/2, 1/4, 1/8, 1/8: 1.75 bits."""
CERTAINTY = 0.25 * math.log(2)
"""The mean of -ln p is (1 + 2 + 3 + 3)/4 = 2.25 bits, less the 2 bits of ln 4."""


@pytest.fixture(scope="module", autouse=True, params=["pytorch", "kernels"])
def _every_sampler(request: pytest.FixtureRequest) -> Iterator[None]:
    """All that follows holds of both."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "kernels":
            patch.setitem(globals(), "draw_tokens", NativeSampler(Kernels()).draw)
        yield


def drawn(logits: torch.Tensor, samplings: Sequence[Mapping[str, Any]]) -> Drawn:
    """One token for each row."""
    draws = [
        Draw(sampling=Sampling(**sampling), seed=row, position=row)
        for row, sampling in enumerate(samplings)
    ]
    return draw_tokens(logits, draws)


def test_entropy_and_self_certainty_have_their_hand_computed_values() -> None:
    """In nats; the logits may carry any constant."""
    row = torch.tensor([SKEWED]) + 7.0
    result = drawn(row, [{"entropy": True}])

    assert result.entropies == pytest.approx([ENTROPY], abs=1e-6)
    assert result.self_certainties == pytest.approx([CERTAINTY], abs=1e-6)


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"top_k": 1}, {"temperature": 3.0}])
def test_they_are_of_the_raw_distribution(sampling: dict[str, Any]) -> None:
    """Whatever temperature and filters make of it."""
    result = drawn(torch.tensor([SKEWED]), [{**sampling, "entropy": True, "logprobs": 2}])

    assert result.entropies == pytest.approx([ENTROPY], abs=1e-6)
    assert result.self_certainties == pytest.approx([CERTAINTY], abs=1e-6)
    assert result.top_logprobs[0] is not None
    assert list(result.top_logprobs[0]) == pytest.approx(SKEWED[:2], abs=1e-6)


def test_rows_that_are_no_tokens_have_no_part() -> None:
    """V counts real tokens alone: masked rows change no bit of meaning."""
    masked = torch.tensor([[*SKEWED, -math.inf, -math.inf, -math.inf]])
    result = drawn(masked, [{"entropy": True, "logprobs": 6}])

    assert result.entropies == pytest.approx([ENTROPY], abs=1e-6)
    assert result.self_certainties == pytest.approx([CERTAINTY], abs=1e-6)
    assert result.top_logprobs[0] is not None
    assert len(result.top_logprobs[0]) == 4


def test_an_even_distribution_is_neither_certain_nor_below_its_greatest_entropy() -> None:
    """And a point mass has no entropy; rounding leaves neither below 0."""
    even, point = torch.zeros(1, 1000), torch.full((1, 1000), -90.0)
    point[0, 3] = 0.0
    result = drawn(torch.cat([even, point]), [{"entropy": True}] * 2)

    assert result.entropies == pytest.approx([math.log(1000), 0.0], abs=1e-5)
    assert result.self_certainties[0] == pytest.approx(0.0, abs=1e-5)
    assert result.self_certainties[1] == pytest.approx(0.999 * 90 - math.log(1000), rel=1e-5)


def test_what_nobody_asks_for_is_not_measured() -> None:
    """Row by row."""
    logits = torch.tensor([SKEWED] * 3)
    result = drawn(logits, [{}, {"entropy": True}, {"logprobs": 3}])

    assert [value is None for value in result.entropies] == [True, False, True]
    assert [value is None for value in result.self_certainties] == [True, False, True]
    assert [value is None for value in result.top_logprobs] == [True, True, False]


def test_asking_changes_no_token() -> None:
    """What is drawn depends on logits, sampling and seed alone."""
    logits = torch.randn(8, 500, generator=torch.Generator().manual_seed(1)) * 3
    kinds: list[dict[str, Any]] = [{}, {"top_p": 0.7}, {"temperature": 0.0}, {"min_p": 0.1}] * 2
    plain = drawn(logits, kinds)
    asking = drawn(logits, [{**kind, "entropy": True, "logprobs": 20} for kind in kinds])

    assert (asking.token_ids, asking.logprobs) == (plain.token_ids, plain.logprobs)


def test_a_row_measures_the_same_alone_and_among_others() -> None:
    """To the bit, beside rows that ask for other things."""
    logits = torch.randn(9, 777, generator=torch.Generator().manual_seed(0)) * 4
    kinds: list[dict[str, Any]] = [{"entropy": True}, {"entropy": True, "logprobs": 5}, {}] * 3
    together = drawn(logits, kinds)

    for row, kind in enumerate(kinds):
        draw = Draw(sampling=Sampling(**kind), seed=row, position=row)
        alone = draw_tokens(logits[row : row + 1], [draw])
        assert [column[0] for column in alone[:-1]] == [column[row] for column in together[:-1]]


def test_a_branch_carries_what_its_sampling_asks_for(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """One value for each token, the end token included."""
    request = ask("the sea", 12, entropy=True, logprobs=20)
    branch = engine.submit(request).future.result(timeout=60)
    count = len(branch.token_ids or ())

    assert branch.logprobs is not None
    assert branch.top_logprobs is not None
    assert len(branch.entropies or ()) == len(branch.self_certainties or ()) == count
    assert [len(row) for row in branch.top_logprobs] == [20] * count
    for own, top in zip(branch.logprobs, branch.top_logprobs, strict=True):
        assert list(top) == sorted(top, reverse=True)
        assert own <= top[0] + 1e-5
        assert sum(map(math.exp, top)) <= 1 + 1e-5


def test_a_branch_carries_nothing_that_nobody_asked_for(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """`None`, not an empty row of numbers."""
    branch = engine.submit(ask("the sea", 4)).future.result(timeout=60)

    assert (branch.entropies, branch.self_certainties, branch.top_logprobs) == (None, None, None)


def test_chunks_carry_the_greatest_logprobs_of_their_tokens(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """So that a rule can end a trace by them; and not where nobody asks."""
    chunks: list[Chunk] = []
    branch = engine.submit(ask("the sea", 6, logprobs=3), chunks.append).future.result(timeout=60)
    told = [row for chunk in chunks for row in chunk.top_logprobs or ()]
    engine.submit(ask("the sea", 6), chunks.append).future.result(timeout=60)

    assert told == list(branch.top_logprobs or ())
    assert chunks[-1].top_logprobs is None
