"""What the embedded engine measures: FLOPs and memory, and that a run books precisely that."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import ttc
from ttc import Budget, Node
from ttc.costs import decoder_costs
from ttc.engine.local import LocalEngine
from ttc.engine.local.kv import KVPool
from ttc.ports import Request
from ttc.strategies import CannotBeOvertaken, Cascade, Greedy, Sample, Vote, confidence
from ttc.types import Usage


def test_linear_flops_are_those_that_torch_counts() -> None:
    """For a model with fewer key heads, by a counter that knows nothing of our formula."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        intermediate_size=80,
        vocab_size=100,
        attn_implementation="eager",
    )
    model, tokens = transformers.LlamaForCausalLM(config), 7
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.arange(tokens)[None], use_cache=False)
    costs = decoder_costs(
        windows=[None] * 3, hidden=48, queries=48, keys=16, feed_forward=80, vocab=100
    )
    rectangle = 3 * 4 * 48 * tokens * tokens  # it computes attention to what is masked as well

    linear = (costs.flops_per_token + costs.flops_per_draw) * tokens
    assert counter.get_total_flops() == linear + rectangle


def test_calls_add_up_to_what_the_engine_counted(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """With a shared prompt, a cached one, and calls that are cancelled at any moment."""
    requests = [ask("p" * 100 + "x" * (seed % 3), 40, seed=seed) for seed in range(9)]
    generations = [engine.submit(request) for request in requests]
    for generation in generations[::2]:
        time.sleep(0.005)
        generation.cancel()
    for generation in generations[1::2]:
        generation.future.result()
    while engine.num_live:
        time.sleep(0.001)
    usages = [generation.usage for generation in generations]

    assert sum(usage.flops or 0 for usage in usages) == engine.counters.flops
    assert sum(usage.kv_byte_seconds or 0.0 for usage in usages) == pytest.approx(
        engine.counters.kv_byte_seconds, rel=1e-9
    )


def test_a_calls_flops_follow_from_its_length_and_its_cache(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """The second of two equal calls computes one token of its prompt."""
    first = engine.submit(ask("p" * 90, 5, seed=1))
    first.future.result()
    second = engine.submit(ask("p" * 90, 5, seed=1))
    second.future.result()

    assert first.usage.flops == engine.costs.worst_case(90, 5)
    assert second.usage.cached_input_tokens == 89
    assert second.usage.flops == engine.costs.flops(start=89, count=5, draws=5)


def test_a_page_that_two_calls_share_is_held_by_each_in_part(
    engine: LocalEngine, ask: Callable[..., Request]
) -> None:
    """So what all calls hold adds up to the pages in use; a call alone holds its own whole."""
    alone = engine.submit(ask("q" * 10, 4))
    started = time.monotonic()
    alone.future.result()
    page = KVPool.page_bytes(engine.costs)

    held = alone.usage.kv_byte_seconds
    assert held is not None
    assert 0 < held <= page * (time.monotonic() - started)


@pytest.mark.model
@pytest.mark.parametrize(
    "graph",
    [
        Sample(n=6, max_tokens=24, temperature=0.8) >> Vote(),
        Sample(n=12, max_tokens=40, temperature=0.3) >> Vote(stop=CannotBeOvertaken()),
        Cascade(Greedy(max_tokens=20), Sample(n=3, max_tokens=20) >> Vote(), accept=confidence(1)),
    ],
    ids=["vote", "stopped", "cascade"],
)
def test_a_run_books_what_the_real_engine_counted(smollm2: LocalEngine, graph: Node) -> None:
    """FLOPs and tokens to the last one, under limits, and with calls that a stop cut."""
    before = vars(smollm2.counters).copy()
    limits = Budget(tokens=600, flops=10**12, kv_byte_seconds=1e12)
    outcome = ttc.solve("What is 7 * 8?", graph, model=smollm2, budget=limits, seed=1)
    while smollm2.num_live:
        time.sleep(0.001)
    counted = {name: n - before[name] for name, n in vars(smollm2.counters).items()}
    usage: Usage = outcome.usage

    assert usage.flops == counted["flops"] > 0
    assert usage.output_tokens == counted["output_tokens"]
    assert usage.kv_byte_seconds == pytest.approx(counted["kv_byte_seconds"], rel=1e-9)
    assert usage.cached_input_tokens is not None
    assert usage.input_tokens - usage.cached_input_tokens >= counted["prompt_tokens"]
