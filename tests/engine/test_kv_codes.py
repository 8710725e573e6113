"""Keys and values in a byte each: what is read of them, and the same bits in any company."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.conftest import TINY, tiny_weights
from tests.engine.reference import ids_of, logits_of
from tests.engine.test_native import PORTABLE, TREE, attended, grown, on_copies, random
from ttc.engine.local import LocalEngine
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.kv import KVPool
from ttc.engine.local.native import Kernels, NativeModel, build
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.source import ModelSource, open_model
from ttc.errors import EngineError
from ttc.ports import Request

CONFIG = replace(TINY, head_dim=20, vocab=261, window=90, windowed=frozenset({1}))
Options = tuple[str, ...]


def model(
    config: ModelConfig = CONFIG,
    options: Options = build.OPTIONS,
    kv_dtype: torch.dtype = torch.int8,
) -> NativeModel:
    """A random model."""
    return NativeModel(config, tiny_weights(config), Kernels(options), kv_dtype=kv_dtype)


def kv_bytes(pool: KVPool) -> int:
    """What a pool takes when it is full."""
    parts = (*pool.keys, *pool.values, *pool.key_scales, *pool.value_scales)
    return sum(part.nbytes for part in parts)


def codes_of(pool: KVPool) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys' and the values' codes of the first layer: (pages, key heads, PAGE, head size)."""
    shape = (*pool.keys[0].shape[:2], PAGE, -1)
    keys, values = (  # 16 pairs lie in the lower halves of 16 words, and the next ones above them
        part.view(*shape[:2], -1, 16, 2, 2).movedim(4, 3).reshape(*shape[:2], -1, 2)
        for part in (pool.keys[0], pool.values[0])
    )
    keys = keys.view(*shape[:2], -1, PAGE, 2).movedim(2, 3)
    return keys.reshape(shape), values.view(*shape[:2], PAGE // 2, -1, 2).mT.reshape(shape)


@pytest.mark.parametrize("options", [build.OPTIONS, PORTABLE], ids=["native", "portable"])
@pytest.mark.parametrize(("size", "group"), [(8, 1), (20, 3), (64, 7), (96, 2)])
def test_attention_is_a_softmax_over_what_codes_stand_for(
    options: Options, size: int, group: int
) -> None:
    """Against float64, on rows of a prompt and on decoding ones that share its pages."""
    config = replace(TINY, num_heads=2 * group, head_dim=size)
    spans = [Span(range(40), 590, 30), Span([*range(38), 40, 41], 600, 1), Span(range(40), 39, 1)]
    pool = KVPool(config, 42, torch.int8)
    generator = torch.Generator().manual_seed(3)
    for part in (pool.keys[0], pool.values[0]):
        part.copy_(torch.randint(-127, 128, part.shape, generator=generator))
    for part in (pool.key_scales[0], pool.value_scales[0]):
        part.copy_(torch.rand(part.shape, generator=generator) / 100)
    numbers = [
        codes.double() * scales[0][..., None]
        for codes, scales in zip(codes_of(pool), (pool.key_scales, pool.value_scales), strict=True)
    ]
    queries = random(32, 2 * group + 4, size, seed=2)
    out = attended(Kernels(options), config, pool, Plan(spans), queries)

    rows = [(span.pages, span.start + 1 + i) for span in spans for i in range(span.count)]
    for row, (pages, end) in enumerate(rows):
        k, v = (x[list(pages)].movedim(1, 0).reshape(2, -1, size)[:, :end] for x in numbers)
        q = queries[row, : 2 * group].double().view(2, group, size)
        expected = (q @ k.mT).softmax(-1) @ v
        torch.testing.assert_close(out[row], expected.flatten().float(), rtol=1e-4, atol=1e-5)


def test_a_head_of_a_position_has_codes_and_the_scale_of_its_greatest_number() -> None:
    """Those of the numbers that a model with bfloat16 keeps, which are rounded themselves."""
    pools = {}
    for dtype in (torch.bfloat16, torch.int8):
        made = model(kv_dtype=dtype)
        pools[dtype] = made.make_pool(2)
        with torch.inference_mode():
            plan = Plan([Span([1, 0], 0, 20)])
            made.forward(ids_of(20), plan, pools[dtype], torch.tensor([0]))
    exact, coded = pools[torch.bfloat16], pools[torch.int8]
    keys, values = codes_of(coded)
    key_scales, value_scales = coded.key_scales[0][..., None], coded.value_scales[0][..., None]
    exact_keys = exact.keys[0].float().movedim(2, 3).reshape(keys.shape)
    exact_values = exact.values[0].float().mT.reshape(values.shape)

    assert keys.abs().amax() == values.abs().amax() == 127
    for found, scales, number in (
        (keys * key_scales, key_scales, exact_keys),
        (values * value_scales, value_scales, exact_values),
    ):
        assert ((found - number).abs() <= scales / 2 + number.abs() / 256).all()


def test_logits_have_the_same_bits_in_pieces_threads_and_variants() -> None:
    """Over two segments and a window."""
    made, ids, threads = model(), ids_of(280), torch.get_num_threads()
    whole = logits_of(made, ids)
    torch.set_num_threads(1)
    try:
        for piece in (1, 7, 64):
            assert torch.equal(logits_of(made, ids, piece), whole)
        assert torch.equal(logits_of(model(options=PORTABLE), ids), whole)
    finally:
        torch.set_num_threads(threads)


def test_rows_that_share_pages_have_the_bits_of_rows_that_do_not() -> None:
    """A page is decoded once for all rows that see it; copies have its scales, too."""
    made = model()
    pool = made.make_pool(200)
    with torch.inference_mode():
        spans = grown(made, pool, TREE)
        copies = on_copies(pool, spans)
        ids, rows = ids_of(6), torch.arange(6)
        tied = made.forward(ids, Plan(spans), pool, rows).clone()
        untied = made.forward(ids, Plan(copies), pool, rows).clone()
        alone = [
            made.forward(ids[i : i + 1], Plan([span]), pool, rows[:1]).clone()
            for i, span in enumerate(spans)
        ]

    assert torch.equal(tied, untied)
    assert torch.equal(tied, torch.cat(alone))


def test_what_lies_in_slots_that_are_not_written_changes_nothing() -> None:
    """Neither codes nor a scale that is no number."""
    made, outputs = model(), []
    with torch.inference_mode():
        for old in (0.0, torch.nan):
            pool = made.make_pool(6)
            for scales in (*pool.key_scales, *pool.value_scales):
                scales.fill_(old)
            plan = Plan([Span([2, 0, 5, 1, 3], 0, 70)])
            outputs.append(made.forward(ids_of(70), plan, pool, torch.arange(70)).clone())

    assert torch.equal(*outputs)
    assert outputs[0].isfinite().all()


def test_a_number_that_is_not_finite_shows() -> None:
    """In every row that sees it, and in no other."""
    made = model()
    pool = made.make_pool(4)
    with torch.inference_mode():
        made.forward(ids_of(20), Plan([Span([0, 1], 0, 20)]), pool, torch.tensor([0]))
        pool.value_scales[0][0, :, 3] = torch.nan
        spans = [Span([0, 1], 20, 1), Span([2, 3], 0, 2)]
        logits = made.forward(ids_of(3), Plan(spans), pool, torch.arange(3))

    assert logits[0].isnan().all()
    assert logits[1:].isfinite().all()


@pytest.mark.parametrize("size", [64, 128])
def test_codes_take_about_half_the_memory(size: int) -> None:
    """The scales included, as the budget of memory counts it."""
    config = replace(TINY, head_dim=size)
    coded, exact = model(config), model(config, kv_dtype=torch.bfloat16)
    per_page = KVPool.page_bytes(coded.costs)

    assert per_page == kv_bytes(coded.make_pool(3)) / 3
    assert per_page <= 0.54 * KVPool.page_bytes(exact.costs)


@pytest.fixture
def source(tiny: ModelSource) -> ModelSource:
    """A tiny model whose keys and values are codes."""
    return replace(tiny, config=CONFIG, build=model)


def test_a_call_gives_the_same_alone_in_a_batch_and_from_the_cache(
    source: ModelSource, ask: Callable[..., Request]
) -> None:
    """And the engine's numerics tell codes from numbers."""
    requests = [ask([*range(40), i], 40, seed=i) for i in range(8)]
    alone, together = [], []
    with LocalEngine(source, name="coded") as engine:
        alone = [engine.submit(request).future.result() for request in requests]
    with LocalEngine(source, name="coded") as engine:
        for _ in range(2):
            calls = [engine.submit(request) for request in requests]
            together.append([call.future.result().logprobs for call in calls])

    assert together == [[branch.logprobs for branch in alone]] * 2
    assert "kv=int8" in engine.numerics


def test_a_call_that_gave_way_has_the_same_bits(
    source: ModelSource, ask: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its codes are made again, of the same numbers."""
    first, second = (ask([65 + i] * 40, 40, seed=i) for i in range(2))
    with LocalEngine(source, name="coded") as engine:
        calm = [engine.submit(request).future.result() for request in (first, second)]
        page = engine._batch.page_bytes
    with LocalEngine(source, name="coded", kv_bytes=8 * page) as engine:
        forward, later = engine._batch.model.forward, list[Any]()

        def interrupted(*inputs: Any) -> torch.Tensor:
            if engine.counters.steps == 5:
                later.append(engine.submit(replace(second, priority=1.0)))
            return forward(*inputs)

        monkeypatch.setattr(engine._batch.model, "forward", interrupted)
        hurried = [engine.submit(first).future.result(), later[0].future.result()]

    assert engine.counters.preemptions == 1
    assert [b.logprobs for b in hurried] == [b.logprobs for b in calm]


def test_heads_whose_codes_fill_no_words_are_refused() -> None:
    """A word is four codes."""
    with pytest.raises(EngineError, match="heads of size 6"):
        model(replace(TINY, head_dim=6))


def test_pytorch_keeps_no_codes(tmp_path: Path) -> None:
    """What would be another arithmetic without a word is refused."""
    with pytest.raises(ValueError, match="int8 and file, not 'fp32'"):
        open_model(tmp_path, "fp32", kv_type="int8")
