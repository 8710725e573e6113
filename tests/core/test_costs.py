"""What a model's work costs, against sums by hand and token by token."""

from hypothesis import given
from hypothesis import strategies as st

from ttc.costs import Costs, decoder_costs

WINDOWS = st.none() | st.integers(1, 12)


@given(
    st.integers(0, 30),
    st.integers(0, 20),
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(1, 9), WINDOWS), max_size=3),
)
def test_flops_are_those_of_every_token_by_itself(
    start: int, count: int, draws: int, attention: list[tuple[int, int | None]]
) -> None:
    """A token sees itself and all before it, or as many of them as its window holds."""
    costs = Costs(flops_per_token=100, flops_per_draw=7, attention=tuple(attention))
    expected = 7 * draws
    for position in range(start, start + count):
        seen = [min(position + 1, window or 10**6) for _, window in attention]
        expected += 100 + sum(n * flops for n, (flops, _) in zip(seen, attention, strict=True))

    assert costs.flops(start=start, count=count, draws=draws) == expected


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 39))
def test_no_call_costs_more_than_its_worst_case(prompt: int, output: int, cached: int) -> None:
    """However much of its prompt is cached, and wherever its prefill is cut into pieces."""
    costs = Costs(flops_per_token=10, flops_per_draw=3, attention=((2, None), (5, 8)))
    cached = min(cached, prompt - 1)
    half = (prompt - cached) // 2
    whole = costs.flops(start=cached, count=half, draws=0)
    whole += costs.flops(start=cached + half, count=prompt - cached - half, draws=1)
    for place in range(1, output):
        whole += costs.flops(start=prompt + place - 1, count=1, draws=1)

    assert whole <= costs.worst_case(prompt, output)
    assert cached or whole == costs.worst_case(prompt, output)


def test_a_model_of_known_sizes_costs_twice_its_weights_and_its_attention() -> None:
    """SmolLM2-135M: 134,515,008 parameters, of which 28,311,552 embed and 35,136 normalise."""
    costs = decoder_costs(
        windows=[None] * 30, hidden=576, queries=576, keys=192, feed_forward=1536, vocab=49152
    )

    assert costs.flops_per_token == 2 * (134_515_008 - 28_311_552 - 35_136)
    assert costs.flops_per_draw == 2 * 28_311_552
    assert costs.attention == ((30 * 4 * 576, None),)
    assert costs.kv_bytes_per_token == 30 * 2 * 192 * 2


def test_layers_of_several_windows_are_counted_apart() -> None:
    """Three of four layers see 8 positions."""
    costs = decoder_costs(
        windows=[8, 8, 8, None], hidden=4, queries=4, keys=2, feed_forward=8, vocab=10
    )

    assert costs.attention == ((3 * 16, 8), (16, None))
    assert costs.flops(start=100, count=1, draws=0) - costs.flops_per_token == 3 * 16 * 8 + 16 * 101
