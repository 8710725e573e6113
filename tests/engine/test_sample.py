"""Drawing tokens: filters, noise, log probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local.native import Kernels
from ttc.engine.local.native.sampler import NativeSampler
from ttc.engine.local.penalties import Bias, SeenTokens
from ttc.engine.local.sample import NONE_ALLOWED, NOT_FINITE, Draw, distributions, draw_tokens
from ttc.journal import derive_seed
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
    how = Sampling(**sampling)
    bias = Bias.of(how.logit_bias)
    draws = [Draw(sampling=how, seed=seed, position=i, bias=bias) for i in range(n)]
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
    biased = {"logit_bias": ((3, 5.0), (700, -100.0))}
    kinds = [{}, {"temperature": 0}, {"top_p": 0.8}, {"top_k": 5, "temperature": 0.7}, biased]
    samplings = [Sampling(**kinds[i % 5]) for i in range(12)]  # type: ignore[arg-type]
    draws = [
        Draw(sampling=one, seed=i, position=3 * i, bias=Bias.of(one.logit_bias))
        for i, one in enumerate(samplings)
    ]
    together = draw_tokens(logits, draws)

    for row in range(12):
        alone = draw_tokens(logits[row : row + 1], draws[row : row + 1])
        assert alone.token_ids[0] == together.token_ids[row]
        assert alone.logprobs[0] == together.logprobs[row]


def _poisoned(shape: Any, dtype: Any = float) -> npt.NDArray[Any]:
    """Fresh memory at its worst: signalling NaNs."""
    return np.frombuffer(bytearray(b"\0\0\xa0\x7f" * math.prod(shape)), dtype).reshape(shape)


def test_a_row_gets_as_many_of_the_greatest_as_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its neighbours ask for, and whatever lay in memory before."""
    monkeypatch.setattr(np, "empty", _poisoned)
    asked = [0, 3, 1, 0, 4]
    draws = [Draw(sampling=Sampling(logprobs=n), seed=0, position=0) for n in asked]
    drawn = draw_tokens(torch.tensor(LOGITS).expand(len(asked), -1), draws)

    every = torch.tensor(LOGITS).log_softmax(-1).tolist()
    for n, top in zip(asked, drawn.top_logprobs, strict=True):
        assert top == (pytest.approx(every[:n], abs=1e-5) if n else None)


def test_a_seed_is_reproducible_and_another_seed_differs() -> None:
    """Seven bits of freedom at 40 positions: equal by chance once in 2^280."""
    logits = torch.zeros(128)

    assert draw(logits, 40, seed=7) == draw(logits, 40, seed=7)
    assert draw(logits, 40, seed=7) != draw(logits, 40, seed=8)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_a_fault_of_their_row_alone(broken: float) -> None:
    """Its neighbours draw what they draw without it."""
    rows = torch.tensor([[1.0, 0.5, 0.2], [1.0, broken, 0.2], [0.1, 0.5, 3.0], [-math.inf] * 3])
    draws = [Draw(sampling=Sampling(entropy=True), seed=i, position=i) for i in range(4)]
    drawn = draw_tokens(rows, draws)
    whole = draw_tokens(rows[::2], draws[::2])

    assert drawn.faults == {1: NOT_FINITE, 3: NOT_FINITE}
    for place in range(5):
        assert [drawn[place][row] for row in (0, 2)] == whole[place]


def penalised(
    logits: list[float], given: list[int], generated: list[int], n: int, **sampling: Any
) -> list[int]:
    """Draws n tokens after others."""
    seen = SeenTokens(given, generated)
    draws = [Draw(sampling=Sampling(**sampling), seed=0, position=i, seen=seen) for i in range(n)]
    return draw_tokens(torch.tensor(logits).expand(n, -1), draws).token_ids


def test_a_repetition_penalty_acts_on_prompt_and_output() -> None:
    """Positive logits are divided and negative ones multiplied, once however often they came."""
    logits = [2.0, 1.9, 1.5, -1.0]
    assert penalised(logits, [0], [1, 1, 1], 1, temperature=0, repetition_penalty=1.3) == [0]
    assert penalised(logits, [0], [1], 1, temperature=0, repetition_penalty=1.4) == [2]
    assert penalised([-1.0, -1.1], [0], [], 1, temperature=0, repetition_penalty=1.2) == [1]
    assert penalised([-1.0, -1.1], [1], [], 1, temperature=0, repetition_penalty=0.5) == [1]


def test_presence_and_frequency_act_on_the_output() -> None:
    """Presence once for each token, frequency as often as it came; neither reads the prompt."""
    logits = [2.0, 1.2, 0.0]
    assert penalised(
        logits, [0], [], 1, temperature=0, presence_penalty=2, frequency_penalty=2
    ) == [0]
    assert penalised(logits, [], [0, 0, 0], 1, temperature=0, presence_penalty=0.7) == [0]
    assert penalised(logits, [], [0, 0, 0], 1, temperature=0, frequency_penalty=0.3) == [1]
    assert penalised(logits, [], [0], 1, temperature=0, frequency_penalty=0.3) == [0]
    assert penalised([0.0, 0.5], [], [0], 1, temperature=0, presence_penalty=-1.0) == [0]


@pytest.mark.parametrize(
    ("name", "value"),
    [("repetition_penalty", 0.0), ("presence_penalty", 2.1), ("frequency_penalty", math.nan)],
)
def test_penalties_out_of_range_are_refused(name: str, value: float) -> None:
    """By name, with the value."""
    with pytest.raises(ValueError, match=rf"{name} lies in .*not {value}"):
        Sampling(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 0.8, 2.0])
def test_a_bias_is_added_before_all_else(temperature: float) -> None:
    """Draw by draw what comes of logits that hold it; -100 forbids a token, and 100 forces it."""
    how: dict[str, Any] = {"temperature": temperature, "top_k": 3}
    bias = ((0, -1.5), (3, 2.5))

    assert draw(LOGITS, 200, logit_bias=bias, **how) == draw([0.5, 1.0, 0.5, 2.5], 200, **how)
    assert 0 not in draw(LOGITS, 200, logit_bias=((0, -100),), **how)
    assert set(draw(LOGITS, 200, logit_bias=((3, 100),), **how)) == {3}


def test_a_bias_comes_before_penalties_and_what_is_not_allowed() -> None:
    """A penalty divides what the bias has made; a token that is not allowed stays so."""
    sampling = Sampling(temperature=0, repetition_penalty=4.0, logit_bias=((0, 2.0), (2, 100.0)))
    drawn = Draw(
        sampling=sampling,
        seed=0,
        position=0,
        seen=SeenTokens([0]),
        allowed=bits({0, 1}, 3),
        bias=Bias.of(sampling.logit_bias),
    )
    row = torch.tensor([[2.0, 1.5, 0.0]])

    assert draw_tokens(row, [drawn]).token_ids == [1]  # (2 + 2) / 4 is less than 1.5
    assert draw_tokens(row + torch.tensor([3.0, 0, 0]), [drawn]).token_ids == [0]
    left = distributions(row, [drawn._replace(sampling=Sampling(repetition_penalty=4.0))])
    assert left[0].tolist() == pytest.approx([0.3775, 0.6225, 0.0], abs=1e-4)


@pytest.mark.parametrize(
    ("bias", "fault"),
    [
        (((0, 100.5),), r"token 0 lies in \[-100, 100\], not 100.5"),
        (((0, math.nan),), "not nan"),
        (((-1, 1.0),), "from 0 on, not -1"),
        ((("a", 1.0),), "not 'a'"),
        (((1, 1.0), (1, 2.0)), "the token 1 twice"),
        (((1, True),), "not True"),
        ((7,), "is a tuple of"),
    ],
)
def test_a_bias_that_makes_no_sense_is_refused(bias: Any, fault: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"logit_bias .*{fault}"):
        Sampling(logit_bias=bias)


def test_equal_biases_are_equal_however_they_are_written() -> None:
    """A bias of 0 asks for nothing."""
    assert Sampling(logit_bias=((5, 1), (2, -3), (4, 0))) == Sampling(
        logit_bias=((2, -3.0), (5, 1.0))
    )


def bits(allowed: set[int], vocab: int) -> npt.NDArray[np.uint32]:
    """The mask of some tokens."""
    words = np.zeros(-(-vocab // 32), np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_only_allowed_tokens_are_drawn(data: st.DataObject) -> None:
    """However improbable they are, and under whatever filter; log probabilities stay raw."""
    vocab = data.draw(st.integers(1, 70))
    logits = data.draw(st.lists(st.floats(-200, 200, width=32), min_size=vocab, max_size=vocab))
    allowed = data.draw(st.sets(st.integers(0, vocab - 1), min_size=1))
    sampling = Sampling(
        temperature=data.draw(st.sampled_from([0.0, 0.3, 1.0, 2.0])),
        top_k=data.draw(st.none() | st.integers(1, 5)),
        top_p=data.draw(st.none() | st.floats(0, 1)),
    )
    rows = torch.tensor(logits).expand(5, -1)
    draws = [
        Draw(sampling=sampling, seed=i, position=i, allowed=bits(allowed, vocab)) for i in range(5)
    ]
    drawn = draw_tokens(rows, draws)

    assert set(drawn.token_ids) <= allowed
    raw = rows[0].double().log_softmax(-1)
    assert drawn.logprobs == pytest.approx([float(raw[t]) for t in drawn.token_ids], abs=1e-3)


def test_a_mask_without_a_token_is_a_fault_of_its_row() -> None:
    """Also where it allows only what the model never draws."""
    rows = torch.tensor([[1.0, -math.inf], [1.0, 2.0], [1.0, 2.0]])
    masks = [bits({1}, 2), bits(set(), 2), None]
    draws = [Draw(sampling=Sampling(), seed=0, position=0, allowed=mask) for mask in masks]

    assert draw_tokens(rows, draws).faults == {0: NONE_ALLOWED, 1: NONE_ALLOWED}


def test_penalties_and_masks_leave_what_is_measured_alone() -> None:
    """Entropy, self-certainty and the greatest log probabilities are the model's own."""
    row = torch.tensor([[3.0, 1.0, 0.5, -2.0]])
    measured = {"entropy": True, "logprobs": 3}
    plain = Draw(sampling=Sampling(**measured), seed=0, position=0)  # type: ignore[arg-type]
    changed = Draw(
        sampling=Sampling(presence_penalty=2, **measured),  # type: ignore[arg-type]
        seed=0,
        position=0,
        bias=Bias.of(((1, 9.0),)),
        seen=SeenTokens([], [0, 1]),
        allowed=bits({2, 3}, 4),
    )

    assert draw_tokens(row, [plain])[2:] == draw_tokens(row, [changed])[2:]


@pytest.mark.statistical
def test_masked_and_penalised_draws_follow_the_softmax_of_what_is_left() -> None:
    """30,000 draws of 24 allowed tokens of 60, eight of them penalised.

    Chi-square with 23 degrees of freedom exceeds 67 with probability 4e-6; the seed is fixed.
    """
    logits = torch.randn(60, generator=torch.Generator().manual_seed(6))
    allowed, generated = list(range(0, 48, 2)), [0, 2, 2, 4, 4, 4, 6, 8, 10, 12, 14]
    adjusted = logits.double().clone()
    for token in set(generated):
        scaled = adjusted[token] * 1.5 if adjusted[token] < 0 else adjusted[token] / 1.5
        adjusted[token] = scaled - 0.2 - 0.1 * generated.count(token)
    expected = (adjusted[allowed] / 0.8).softmax(-1).tolist()
    sampling = Sampling(
        temperature=0.8, repetition_penalty=1.5, presence_penalty=0.2, frequency_penalty=0.1
    )
    n, seen, mask = 30_000, SeenTokens([], generated), bits(set(allowed), 60)
    draws = [Draw(sampling=sampling, seed=1, position=i, seen=seen, allowed=mask) for i in range(n)]
    counts = torch.tensor(draw_tokens(logits.expand(n, -1), draws).token_ids).bincount(minlength=60)

    assert chi_square([int(counts[t]) for t in allowed], expected) < 67


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


@pytest.mark.statistical
def test_forks_are_pairwise_independent() -> None:
    """SM-03: six forks, by the seeds that a run gives them; 20,000 draws of 4 equal tokens each.

    Of 15 pairs the chi-square with 15 degrees of freedom exceeds 62 with probability 2e-6 in all;
    the seed is fixed.
    """
    n = 20_000
    seeds = [derive_seed(7, "0.sample", fork) for fork in range(6)]
    rows = torch.zeros(n, 4)
    forks = [
        draw_tokens(rows, [Draw(sampling=Sampling(), seed=s, position=i) for i in range(n)])
        for s in seeds
    ]
    for one, other in combinations([fork.token_ids for fork in forks], 2):
        pairs = [0] * 16
        for first, second in zip(one, other, strict=True):
            pairs[4 * first + second] += 1

        assert chi_square(pairs, [1 / 16] * 16) < 62


def test_forks_differ_repeat_and_do_not_see_their_neighbours() -> None:
    """SM-03: 16 draws of 50 equal tokens for each of four forks; equal by chance once in 50^16."""

    def sequences(forks: range, beside: int = 0) -> list[list[int]]:
        keys = [derive_seed(7, "0.sample", fork) for fork in forks]
        keys += [derive_seed(8, "1.sample", i) for i in range(beside)]
        drawn = [
            draw_tokens(
                torch.zeros(len(keys), 50),
                [Draw(sampling=Sampling(), seed=key, position=i) for key in keys],
            ).token_ids
            for i in range(16)
        ]
        return [list(column) for column in zip(*drawn, strict=True)][: len(forks)]

    four = sequences(range(4))
    assert len(set(map(tuple, four))) == 4
    assert sequences(range(4), beside=5) == four
    assert sequences(range(6))[:4] == four
