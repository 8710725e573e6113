"""Every number depends on its own sequence alone, to the bit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local import LocalEngine
from ttc.engine.local.attention import Attention
from ttc.engine.local.linear import Linear, LinearFactory, onednn, padded, tiled
from ttc.engine.local.model import Model
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.source import ModelSource
from ttc.ports import Request
from ttc.types import Branch

SIZES = {"num_kv_heads": 2, "group": 3, "head_dim": 16}
GROUP_ROWS = Attention.probe(**SIZES)
SCATTERED = (4, 2, 7, 30, 11, 5, 47, 1, 0, 19, 23, 6)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers, the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kernel", [onednn, padded(16), tiled], ids=["onednn", "padded", "tiled"])
@pytest.mark.parametrize("rows", [1, 5, 16, 33])
def test_every_kernel_multiplies(kernel: Callable[..., Callable[..., object]], rows: int) -> None:
    """Within rounding of the plain product."""
    weight, x = random(24, 40), random(rows, 40, seed=1)

    torch.testing.assert_close(kernel(weight)(x), F.linear(x, weight), rtol=1e-4, atol=1e-4)


def test_the_kernel_that_the_probe_chose_is_row_invariant() -> None:
    """At every number of rows, not only those probed."""
    linear = LinearFactory(torch.float32)(random(72, 200))
    x = random(100, 200, seed=1)
    together = linear(x)

    for rows in range(1, 100):
        assert torch.equal(linear(x[:rows]), together[:rows])


def test_without_an_invariant_kernel_fixed_tiles_are_used_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kernel whose sums depend on the number of rows is seen through."""

    def faulty(weight: torch.Tensor) -> Linear:
        return lambda x: F.linear(x, weight) + len(x) * 1e-6

    factory = LinearFactory(torch.float32, {"faulty": faulty})
    with caplog.at_level(logging.WARNING):
        factory(random(8, 8))

    assert factory.names == ("tiles",)
    assert "falling back to fixed tiles" in caplog.text


def attend(spans: list[Span], queries: torch.Tensor, pool: list[torch.Tensor]) -> torch.Tensor:
    """One layer's attention."""
    return Attention(spans, group_rows=GROUP_ROWS, **SIZES)(queries, *pool)


@pytest.fixture(scope="module")
def pool() -> list[torch.Tensor]:
    """Keys and values of 48 pages."""
    return [random(48, 2, 16, PAGE), random(48, 2, PAGE, 16, seed=1)]


def test_attention_is_a_softmax_over_all_positions_before(pool: list[torch.Tensor]) -> None:
    """Against a plain float64 softmax, in three chunks."""
    queries = random(150, 6, 16, seed=2)
    keys = torch.cat([pool[0][page] for page in SCATTERED], dim=-1).double()  # (2, 16, positions)
    values = torch.cat([pool[1][page] for page in SCATTERED], dim=1).double()
    scores = torch.einsum("rkgd,kdp->rkgp", queries.view(150, 2, 3, 16).double(), keys)
    later = torch.arange(192) > torch.arange(150)[:, None]
    weights = scores.masked_fill(later[:, None, None], -torch.inf).softmax(-1)
    expected = torch.einsum("rkgp,kpd->rkgd", weights, values).reshape(150, 96).float()

    actual = attend([Span(pages=SCATTERED, start=0, count=150)], queries, pool)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 190)), min_size=1, max_size=30))
@settings(max_examples=25, deadline=None)
def test_attention_of_a_row_does_not_depend_on_the_batch(
    pool: list[torch.Tensor], rows: list[tuple[int, int]]
) -> None:
    """Rows of three sequences with a common beginning, in any number and order."""
    pages = [(*range(6), *range(start, start + 6)) for start in (10, 20, 30)]
    queries = random(191, 6, 16, seed=3)
    spans = [Span(pages=pages[s], start=position, count=1) for s, position in rows]
    together = attend(spans, queries[[position for _, position in rows]], pool)

    for row, span in enumerate(spans):
        alone = attend([span], queries[span.start : span.start + 1], pool)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("piece", [1, 7, 37, 64, 150])
def test_logits_do_not_depend_on_how_a_prompt_is_cut(tiny: ModelSource, piece: int) -> None:
    """Prefilled in pieces, or decoded token by token, as in one go."""
    model = tiny.build()
    ids = torch.arange(150) % 250

    def logits(step: int) -> torch.Tensor:
        cache = model.make_pool(10)
        parts = [
            model.forward(
                ids[start : start + step],
                Plan([Span(pages=range(10), start=start, count=len(ids[start : start + step]))]),
                cache,
                torch.arange(len(ids[start : start + step])),
            )
            for start in range(0, 150, step)
        ]
        return torch.cat(parts)

    with torch.inference_mode():
        assert torch.equal(logits(piece), logits(150))


def test_what_lies_in_unwritten_slots_changes_nothing(tiny: ModelSource) -> None:
    """A recycled page gives the bits of a new one."""
    model: Model = tiny.build()
    spans = [Span(pages=range(5), start=0, count=70)]
    outputs = []
    with torch.inference_mode():
        for old in (0.0, 1e4):
            cache = model.make_pool(5)
            for page in (*cache.keys, *cache.values):
                page.fill_(old)
            outputs.append(model.forward(torch.arange(70), Plan(spans), cache, torch.tensor([69])))

    assert torch.equal(*outputs)


PROMPTS = ["a", "the sum", "x" * 70, "y" * 63, "z" * 64, "a long story about " * 9]
KINDS: list[dict[str, float]] = [{"temperature": 0}, {"temperature": 1.0, "top_p": 0.95}]


def results(futures: list[Future[Branch]]) -> list[tuple[object, object]]:
    """Tokens and the bits of their log probabilities."""
    return [(f.result().token_ids, f.result().logprobs) for f in futures]


@pytest.fixture(scope="module", params=KINDS, ids=["greedy", "sampled"])
def alone(
    request: pytest.FixtureRequest, tiny: ModelSource, ask: Callable[..., Request]
) -> list[tuple[Request, object]]:
    """Calls, and what each gives on an engine that serves nothing else."""
    calls: list[tuple[Request, object]] = []
    for i, prompt in enumerate(PROMPTS):
        call = ask(prompt, 40, seed=i, **request.param)
        with LocalEngine(tiny, name="tiny") as engine:
            calls += [(call, result) for result in results([engine.submit(call).future])]
    return calls


@pytest.mark.parametrize("copies", [0, 2, 10])
def test_a_call_does_not_depend_on_its_batch(
    load: Callable[..., LocalEngine],
    ask: Callable[..., Request],
    alone: list[tuple[Request, object]],
    copies: int,
) -> None:
    """Alone on a fresh engine, or beside others of other lengths, seeds and times of joining."""
    engine = load(max_sequences=5)
    noise = [engine.submit(ask("noise", 30 + i, seed=99 + i)) for i in range(copies)]
    together = [engine.submit(call).future for call, _ in reversed(alone)]

    assert results(together)[::-1] == [result for _, result in alone]
    for generation in noise:
        generation.future.result()


def test_a_cache_hit_gives_the_bits_of_a_miss(
    engine: LocalEngine, load: Callable[..., LocalEngine], ask: Callable[..., Request]
) -> None:
    """The second call finds all but one token of its prompt."""
    request = ask("q" * 200, 30)
    first = engine.submit(request)
    first.future.result()
    second = engine.submit(request)

    assert results([second.future]) == results([load().submit(request).future])
    assert (first.usage.cached_input_tokens, second.usage.cached_input_tokens) == (0, 199)


def test_a_continued_branch_is_token_exact(
    engine: LocalEngine, load: Callable[..., LocalEngine], ask: Callable[..., Request]
) -> None:
    """Twenty tokens and forty more, on one engine or another, are sixty in one go."""
    whole = engine.submit(ask("once upon", 60, seed=4)).future.result()
    first = engine.submit(ask("once upon", 20, seed=4)).future.result()
    for other in (engine, load()):
        rest = other.submit(ask(first, 40, seed=4)).future.result()

        assert (first.token_ids or ()) + (rest.token_ids or ()) == whole.token_ids
        assert (first.logprobs or ()) + (rest.logprobs or ()) == whole.logprobs
        assert first.text + rest.text == whole.text or "\ufffd" in first.text
