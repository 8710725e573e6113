"""The engine's steps on a device, computed by PyTorch on the CPU: the reference of the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.conftest import TINY, tiny_weights
from tests.engine.reference import (
    FAMILIES,
    ids_of,
    logits_of,
    make_model,
    reference_logits,
    save,
)
from ttc.engine.local import LocalEngine
from ttc.engine.local.attention import CHUNK
from ttc.engine.local.cuda.graphs import StepGraphs
from ttc.engine.local.cuda.model import DeviceModel, Setting, check_heads
from ttc.engine.local.cuda.place import setting_for
from ttc.engine.local.cuda.pool import DevicePool
from ttc.engine.local.cuda.step import Sizes, lay_out, views
from ttc.engine.local.cuda.torch_ops import TorchOps
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.engine.local.model import Llama
from ttc.engine.local.penalties import Bias
from ttc.engine.local.plan import Plan, Span
from ttc.engine.local.sample import Draw
from ttc.engine.local.source import ModelSource
from ttc.errors import EngineError
from ttc.types import Sampling

CPU = torch.device("cpu")
SETTINGS = {
    "fp32": ("fp32", torch.float32, torch.float32),
    "bf16": ("bf16", torch.bfloat16, torch.bfloat16),
    "int8": ("int8", torch.bfloat16, torch.bfloat16),
    "int8-kv8": ("int8", torch.bfloat16, torch.int8),
}


def setting(name: str) -> Setting:
    """PyTorch on the CPU."""
    kind, dtype, kv_dtype = SETTINGS[name]
    return Setting(ops=TorchOps(dtype), device=CPU, kind=kind, dtype=dtype, kv_dtype=kv_dtype)


def device_model(name: str = "fp32") -> DeviceModel:
    """The tiny model."""
    return DeviceModel(TINY, tiny_weights(), setting(name))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_computes_what_transformers_does(family: str, tmp_path: Path) -> None:
    """In float32, across a chunk's end, biases, norms of heads and windows included."""
    model = make_model(family)
    folder = read_folder(save(model, tmp_path))
    ids = ids_of(90)

    logits = logits_of(DeviceModel(folder.config, folder_weights(folder), setting("fp32")), ids)

    expected = reference_logits(model, ids)
    assert (logits - expected).abs().max() < 2e-4 * expected.abs().max()


@pytest.mark.parametrize(("name", "error"), [("bf16", 0.06), ("int8", 0.15), ("int8-kv8", 0.15)])
def test_shorter_numbers_stay_near_the_reference(name: str, error: float) -> None:
    """Of a model whose random weights make the most of every error; relative, root mean square."""
    ids = ids_of(80)
    expected = logits_of(Llama(TINY, tiny_weights(), torch.float32), ids)

    found = logits_of(device_model(name), ids)

    assert (found - expected).square().mean().sqrt() < error * expected.std()


@pytest.mark.parametrize("name", ["bf16", "int8-kv8"])
def test_a_row_has_the_same_bits_in_any_company_and_any_pieces(name: str) -> None:
    """Across a segment's end; beside other sequences, and forked from what others computed."""
    model = device_model(name)
    ids = ids_of(530)
    whole = logits_of(model, ids)
    assert torch.equal(logits_of(model, ids, 97), whole)

    pool = model.make_pool(120)
    own = Span(pages=range(40), start=0, count=520)
    with torch.inference_mode():
        model.forward(ids[:520], Plan([own]), pool, torch.arange(0))
        spans = [  # two go on from the same pages, a stranger stands between them
            Span(pages=[*range(32), 50], start=520, count=8),
            Span(pages=[60, 61], start=0, count=20),
            Span(pages=[*range(32), 51], start=520, count=3),
        ]
        pool.copy([(32, 50), (32, 51)])
        inputs = torch.cat([ids[520:528], ids_of(20), ids[520:523]])
        logits = model.forward(inputs, Plan(spans), pool, torch.arange(31))
    assert torch.equal(logits[:8], whole[520:528])
    assert torch.equal(logits[28:], whole[520:523])


def test_what_lies_in_unseen_slots_changes_nothing() -> None:
    """Not even a number that is none."""
    model, ids = device_model(), ids_of(20)
    expected = logits_of(model, ids)
    pool = model.make_pool(2)
    for layer in pool.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)

    with torch.inference_mode():
        plan = Plan([Span(pages=[1, 0], start=0, count=20)])
        found = model.forward(ids, plan, pool, torch.arange(20))

    assert torch.equal(found, expected)


def test_pages_are_all_read_before_one_is_written() -> None:
    """As a page may be source and target in one step."""
    pool = device_model("int8-kv8").make_pool(4)
    for layer in pool.layers:
        for page in range(4):
            layer.keys[page] = page

    pool.copy([(0, 1), (1, 2)])

    assert [int(layer.keys[2, 0, 0, 0]) for layer in pool.layers] == [1, 1]


def test_memory_of_int8_keys_counts_their_scales() -> None:
    """The engine never exceeds what it was given."""
    model = device_model("int8-kv8")
    pool = model.make_pool(3)

    taken = sum(t.nbytes for layer in pool.layers for t in layer if t is not None)

    assert taken == 3 * DevicePool.page_bytes(model.costs)


def test_heads_that_the_kernels_have_no_room_for_are_refused() -> None:
    """By number, and with what to do."""
    with pytest.raises(
        EngineError, match=r"for 16 query heads of size 128 .* not for 2 of 512.*cpu"
    ):
        check_heads(replace(TINY, head_dim=512, num_heads=4))


def test_a_step_laid_out_with_room_to_spare_has_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Padding writes nothing; sizes that come for the second time are captured, and replayed."""
    ids = ids_of(5)
    expected = logits_of(device_model(), ids, 1)
    model = device_model()
    graphs = StepGraphs(model._run, CPU)
    captured: list[Sizes] = []

    def capture(tables: torch.Tensor, sizes: Sizes, length: int) -> SimpleNamespace:
        captured.append(sizes)
        own = tables.clone()
        outputs = model._run(views(own, sizes, length))
        step = views(own, sizes, CHUNK)

        def replay() -> None:
            for to, found in zip(outputs, model._run(step), strict=True):
                to.copy_(found)

        return SimpleNamespace(tables=own, outputs=outputs, graph=SimpleNamespace(replay=replay))

    monkeypatch.setattr(graphs, "_capture", capture)
    monkeypatch.setattr(model, "_graphs", graphs)
    monkeypatch.setattr("ttc.engine.local.cuda.model.lay_out", partial(unpinned, lay_out))

    pool = model.make_pool(1)
    found = [
        model.forward(ids[at : at + 1], Plan([Span([0], at, 1)]), pool, torch.arange(1)).clone()
        for at in range(5)
    ]

    assert torch.equal(torch.cat(found), expected)
    assert captured == [Sizes(1, 1, 1, (1, 1), (1, 1))]


def unpinned(lay: Callable[..., torch.Tensor], *arguments: Any, pin: bool = False) -> torch.Tensor:
    """Tables in plain memory: there is no GPU to pin it for."""
    return lay(*arguments)


@pytest.mark.statistical
def test_tokens_are_drawn_by_their_probabilities() -> None:
    """Chi-square of 20,000 draws from 40 tokens, temperature 0.7: above 100 by luck: below 1e-6."""
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(0)) * 1.5
    draws = [Draw(Sampling(temperature=0.7), seed, 9) for seed in range(20_000)]

    drawn = device_model().draw(logits.expand(20_000, -1), draws)

    expected = (logits[0] / 0.7).softmax(-1) * 20_000
    counts = torch.bincount(torch.tensor(drawn.token_ids), minlength=40)
    assert ((counts - expected).square() / expected).sum() < 100
    assert drawn.logprobs[0] == pytest.approx(float(logits.log_softmax(-1)[0, drawn.token_ids[0]]))


@pytest.fixture(scope="module")
def engine(tiny: ModelSource) -> Iterator[LocalEngine]:
    """The embedded engine with a model of this kind."""
    with LocalEngine(replace(tiny, build=device_model), name="tiny") as made:
        yield made


def test_the_engine_generates_what_it_does_with_the_models_of_the_cpu(
    engine: LocalEngine, load: Callable[..., LocalEngine], ask: Callable[..., Any]
) -> None:
    """Greedy tokens, and their log probabilities to rounding."""
    request = ask("What is 17 * 23?", 12, temperature=0, logprobs=3)
    expected = load().submit(request).future.result(30)

    found = engine.submit(request).future.result(30)

    assert found.token_ids == expected.token_ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-3)
    for top, other in zip(found.top_logprobs or (), expected.top_logprobs or (), strict=True):
        assert list(top) == pytest.approx(list(other), abs=1e-3)


def test_a_call_has_the_same_tokens_beside_others(
    engine: LocalEngine, ask: Callable[..., Any]
) -> None:
    """Drawn with a nucleus, a penalty, a bias and the noise of its own seed."""
    how = {"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.5, "logit_bias": ((97, 4.0),)}
    request = ask("Once", 16, seed=5, **how)
    alone = engine.submit(request).future.result(30)

    others = [engine.submit(ask(f"Once{i}", 9, seed=i)) for i in range(5)]
    again = engine.submit(request)

    assert again.future.result(30).token_ids == alone.token_ids
    assert again.future.result(30).logprobs == alone.logprobs
    assert all(other.future.result(30).token_ids for other in others)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_bias_forbids_and_forces_tokens(temperature: float) -> None:
    """Of rows apart; what is told of the row is the model's own."""
    logits = torch.tensor([[2.0, 1.0, 0.0]] * 3)
    biases: list[tuple[tuple[int, float], ...]] = [(), ((0, -100.0), (1, -100.0)), ((1, 100.0),)]
    draws = [
        Draw(Sampling(temperature=temperature, logprobs=1, logit_bias=b), 3, 9, bias=Bias.of(b))
        for b in biases
    ]

    drawn = device_model().draw(logits, draws)

    assert drawn.token_ids[1:] == [2, 1]
    raw = logits[0].log_softmax(-1)
    assert drawn.logprobs[1:] == pytest.approx([float(raw[2]), float(raw[1])], abs=1e-5)
    assert [list(top or ()) for top in drawn.top_logprobs] == [[pytest.approx(float(raw[0]))]] * 3


def test_scores_are_to_the_bit_what_generation_reports(
    engine: LocalEngine, ask: Callable[..., Any]
) -> None:
    """Whatever was kept of the call: its pages are computed again."""
    branch = engine.submit(ask("A", 10, seed=3)).future.result(30)

    assert branch.parent is not None
    (scores,) = engine.score(branch.parent, [branch]).future.result(30)

    assert scores == branch.logprobs


def test_a_device_that_is_not_there_is_refused_with_what_to_do() -> None:
    """Not computed on something else without a word."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here, which is what this test needs to be missing")
    with pytest.raises(EngineError, match="finds none; load the model with device='cpu'"):
        setting_for(TINY, "bf16")
