"""Every kernel under Triton's interpreter, against PyTorch. `test_kernels` runs it by itself.

The interpreter decides at import that kernels are not compiled, so nothing else may run in this
process. Its traps: products of bfloat16 are garbage, and a cast to bfloat16 cuts off instead of
rounding, so numbers here are float32; and numpy's product of matrices depends on where a row
stands, so one that does not takes its place. Then rows are invariant to the bit, or a kernel is at
fault.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

# isort: split
import numpy as np
import pytest
import torch

from tests.engine.conftest import TINY, tiny_weights
from ttc.engine.local.cuda.model import DeviceModel, Setting
from ttc.engine.local.cuda.ops import Draws, Parts, Quantised, Turning
from ttc.engine.local.cuda.place import is_product_invariant
from ttc.engine.local.cuda.pool import Cache
from ttc.engine.local.cuda.step import Step, lay_out, needed_sizes, padded_sizes, views
from ttc.engine.local.cuda.torch_ops import TorchOps
from ttc.engine.local.cuda.triton_ops import TritonOps
from ttc.engine.local.cuda.weights import BLOCK, Coded, Dense, Int8, Stacked, quantised
from ttc.engine.local.cuda.work import plan_work
from ttc.engine.local.plan import PAGE, Plan, Span

# numpy warns of what a GPU computes without a word: infinities, and numbers that are none.
# And the interpreter of Triton 3.6 takes arrays for numbers, which numpy 2.4 no longer does.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")

CPU = torch.device("cpu")
KERNELS = TritonOps(torch.float32, upcasts=True)
REFERENCE = TorchOps(torch.float32)


@pytest.fixture(autouse=True)
def _products_that_do_not_depend_on_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(a: Any, b: Any, dtype: Any = None) -> Any:
        return np.einsum("ik,kj->ij", a, b, dtype=dtype, casting="unsafe")

    monkeypatch.setattr(np, "matmul", product)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers, the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def added(parts: Parts) -> torch.Tensor:
    """The sum of slices, in their order."""
    total = parts.sums[0]
    for part in parts.sums[1:]:
        total = total + part
    return total


def int8_weight(outputs: int, columns: int) -> Stacked:
    """A weight of int8 codes."""
    codes, scales = quantised(random(outputs, columns))
    shape = outputs, columns
    return Stacked(weights=(Int8(codes=codes, scales=scales.T.contiguous(), shape=shape),))


def codes(bits: int, group: int, outputs: int, columns: int, *, minima: bool) -> Coded:
    """A weight of random codes."""
    blocks, generator = -(-columns // BLOCK), torch.Generator().manual_seed(bits)
    shape = (outputs, blocks, BLOCK * bits // 8) if bits == 4 else (outputs, blocks, BLOCK)
    low, high = (0, 256) if bits == 4 else (-32, 32)
    kind = torch.uint8 if bits == 4 else torch.int8
    scales = random(outputs, blocks, BLOCK // group, seed=1).half()
    return Coded(
        codes=torch.randint(low, high, shape, generator=generator).to(kind),
        scales=scales,
        minima=random(*scales.shape, seed=2).half() if minima else None,
        bits=bits,
        offset=8 if bits == 4 and not minima else 0,
        group=group,
        shape=(outputs, columns),
    )


@pytest.mark.parametrize(("columns", "rows"), [(700, 3), (704, 20), (1030, 66)])
def test_a_product_is_that_of_pytorch(columns: int, rows: int) -> None:
    """In every tile; also where outputs are no multiple of 64 and columns none of anything."""
    values, x = random(70, columns), random(rows, columns, seed=1)
    weight = Stacked(weights=(Dense(values=values),))

    expected = (x.double() @ values.double().T).float()
    assert torch.allclose(added(KERNELS.product(x, weight)), expected, atol=2e-4)


@pytest.mark.parametrize("rows", [1, 17, 66])
def test_an_int8_product_is_that_of_pytorch_to_the_bit(rows: int) -> None:
    """Sums are exact, and groups are added in one order."""
    weight, x = int8_weight(70, 700), REFERENCE.quantise(random(rows, 700, seed=1))

    found = KERNELS.product(x, weight)

    assert torch.equal(added(found), added(REFERENCE.product(x, weight)))


@pytest.mark.parametrize(
    ("bits", "group", "minima"), [(4, 32, True), (4, 32, False), (8, 16, False)]
)
@pytest.mark.parametrize("rows", [2, 66])
def test_a_product_with_codes_is_that_with_decoded_weights_to_the_bit(
    bits: int, group: int, minima: bool, rows: int
) -> None:
    """Decoding on the way changes no sum; also where weights of two kinds are stacked."""
    weight, x = codes(bits, group, 70, 576, minima=minima), random(rows, 576, seed=3)
    other = codes(8, 32, 12, 576, minima=True)
    decoded = torch.cat([weight.decoded(torch.float32), other.decoded(torch.float32)])

    found = KERNELS.product(x, Stacked(weights=(weight, other)))

    expected = KERNELS.product(x, Stacked(weights=(Dense(values=decoded),)))
    assert torch.equal(added(found), added(expected))


def test_products_are_the_same_to_the_bit_among_any_number_of_rows() -> None:
    """As the engine tries it on a device when a model is loaded."""
    assert is_product_invariant(KERNELS, TINY, CPU)
    weight, x = Stacked(weights=(Dense(values=random(65, 600)),)), random(70, 600, seed=1)
    whole = added(KERNELS.product(x, weight))  # of two slices
    assert torch.equal(added(KERNELS.product(x[5:6], weight)), whole[5:6])


@pytest.mark.parametrize("int8", [False, True])
def test_norms_and_gates_are_those_of_pytorch(int8: bool) -> None:
    """With slices to add up and a bias; int8 codes are equal."""
    parts = Parts(random(3, 4, 600), random(600, seed=1))
    x, other = random(4, 300, seed=2), random(4, 300, seed=2)
    some = Parts(parts.sums[..., :300].contiguous(), random(300, seed=4))
    weight = random(300, seed=3)

    pairs = [
        (
            f.norm(x_of, some, weight, 1e-5, int8),
            f.norm(x_of.clone(), None, weight, 1e-5, int8),
            f.gate(parts, int8),
        )
        for f, x_of in ((KERNELS, x), (REFERENCE, other))
    ]

    assert torch.equal(x, other)
    for found, expected in zip(*pairs, strict=True):
        if isinstance(found, Quantised) and isinstance(expected, Quantised):
            assert torch.equal(found.codes, expected.codes)
            found, expected = found.scales, expected.scales
        assert isinstance(found, torch.Tensor)
        assert isinstance(expected, torch.Tensor)
        assert torch.allclose(found, expected, atol=1e-5)


def test_rows_as_int8_show_what_is_not_finite() -> None:
    """In the scale of their own group alone; a group of zeros has codes and a scale of zero."""
    x = random(3, 130)
    x[0, 70], x[1, 3], x[2] = torch.inf, torch.nan, 0.0

    found, expected = KERNELS.quantise(x), REFERENCE.quantise(x)

    finite = [[True, False, True], [False, True, True], [True] * 3]
    assert found.scales.isfinite().tolist() == expected.scales.isfinite().tolist() == finite
    assert found.codes[2].count_nonzero() == found.scales[2].count_nonzero() == 0


PAGES = [4, 2, 7, 30, 11, 5, 47, 1, 0, 19, 23, 6, 8, 9, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22]
PAGES += [24, 25, 26, 27, 28, 29, 31, 32, 33, 34]


def step_of(spans: list[Span], group: int, *, pad: bool = False) -> Step:
    """The tables of a step."""
    plan = Plan(spans)
    work = plan_work(plan, group)
    sizes = needed_sizes(plan, work)
    sizes = padded_sizes(sizes) if pad else sizes
    tables = lay_out(torch.arange(plan.num_rows), plan, work, sizes)
    return views(tables, sizes, plan.length)


def cache_of(heads: int, dim: int, *, int8: bool = False) -> Cache:
    """48 pages, of random numbers or codes."""
    pair = [random(48, heads, PAGE, dim, seed=seed) for seed in range(2)]
    if not int8:
        return Cache(pair[0], pair[1], None, None)
    scales = [random(48, heads, PAGE, seed=seed).abs() / 50 for seed in (2, 3)]
    return Cache(*((x * 40).clamp(-127, 127).to(torch.int8) for x in pair), *scales)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_turned_heads_and_written_pages_are_those_of_pytorch(int8: bool, plain: bool) -> None:
    """With norms and a bias, and without; padding rows write nothing."""
    heads, kv_heads, dim = 3, 1, 12
    step = step_of([Span(pages=PAGES, start=14, count=3)], 3, pad=True)
    rows = len(step.token_ids)
    parts = Parts(random(2, rows, 5 * dim), None if plain else random(5 * dim, seed=1))
    norm = None if plain else random(4, dim, seed=2)
    turning = Turning(
        norm, random(40, 6, seed=3), random(40, 6, seed=4), not plain, 1e-5, 0.3, heads, kv_heads
    )
    caches = [cache_of(kv_heads, dim, int8=int8) for _ in range(2)]

    found = KERNELS.turn(parts, turning, step, caches[0])
    expected = REFERENCE.turn(parts, turning, step, caches[1])

    assert rows == 4
    assert torch.allclose(found[:3], expected[:3], atol=1e-6)
    for mine, other in zip(*caches, strict=True):
        assert (mine is None) == (other is None)
        assert mine is None or other is None or torch.allclose(mine, other, atol=1e-6)
    assert not torch.equal(caches[0].keys, cache_of(kv_heads, dim, int8=int8).keys)


def test_attention_over_a_tree_is_a_plain_softmax() -> None:
    """Three branches of one prefix, and one that leaves it early, across a segment's end."""
    group, dim = 3, 16
    cache, queries = cache_of(2, dim), random(5, 6, dim, seed=5)
    tails = [[*PAGES[:33], 40], [*PAGES[:33], 41], [*PAGES[:33], 42], [*PAGES[:9], 43, 44]]
    starts = [530, 537, 528, 150]
    spans = [Span(pages=p, start=s, count=1) for p, s in zip(tails, starts, strict=True)]
    spans[3] = spans[3]._replace(count=2)
    for page in (45, 46):  # nobody's
        cache.keys[page] = cache.values[page] = torch.nan
    step = step_of(spans, group)

    found = KERNELS.attend(queries, cache, step, None)

    reference = REFERENCE.attend(queries, cache, step, None)
    rows = [(span.pages, position) for span in spans for position in span.positions]
    for row, (pages, position) in enumerate(rows):
        keys, values = (
            x[list(pages)].transpose(0, 1).flatten(1, 2)[:, : position + 1].double()
            for x in (cache.keys, cache.values)
        )
        grouped = queries[row].view(2, group, dim).double()
        weights = (grouped @ keys.transpose(1, 2) * np.log(2)).softmax(-1)
        expected = (weights @ values).flatten().float()
        assert torch.allclose(found[row], expected, atol=2e-6)
        assert torch.allclose(reference[row], expected, atol=2e-6)


@pytest.mark.parametrize(("int8", "window"), [(True, None), (False, 70)])
def test_attention_with_int8_pages_or_a_window_is_that_of_pytorch(
    int8: bool, window: int | None
) -> None:
    """In both tiles."""
    cache, queries = cache_of(1, 16, int8=int8), random(9, 3, 16, seed=5)
    spans = [Span(pages=PAGES, start=126, count=8), Span(pages=[35, 36], start=20, count=1)]
    step = step_of(spans, 3)
    assert [len(items) > 0 and int(items[0, 1]) > 0 for items in step.items] == [True, True]

    found = KERNELS.attend(queries, cache, step, window)

    assert torch.allclose(found, REFERENCE.attend(queries, cache, step, window), atol=1e-5)


def test_attention_has_the_same_bits_alone_and_with_siblings() -> None:
    """Wherever they part: in a segment's first chunk, in a later one, or in the next segment."""
    cache, queries = cache_of(1, 16), random(4, 3, 16, seed=5)
    pages = [[*PAGES[:at], *range(35, 47)] for at in (2, 9, 33)]
    pages = [each[:34] for each in [*pages, PAGES]]
    spans = [Span(pages=p, start=len(p) * PAGE - 3, count=1) for p in pages]

    together = KERNELS.attend(queries, cache, step_of(spans, 3, pad=True), None)

    for row, span in enumerate(spans):
        alone = KERNELS.attend(queries[row : row + 1], cache, step_of([span], 3), None)
        assert torch.equal(alone[0], together[row])


def test_pages_are_copied_in_every_layer() -> None:
    """Whole, however large, and no other."""
    pool = random(2, 5, 3, 7, 100)
    expected = pool.clone()
    expected[:, [3, 4]] = pool[:, [0, 2]]

    KERNELS.copy_pages(pool, torch.tensor([[0, 3], [2, 4]], dtype=torch.int32))

    assert torch.equal(pool, expected)


VOCAB = 4200
ROWS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.3, "top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.02},
    {"top_k": 40, "top_p": 0.9, "temperature": 2.0},
    {"masked": True},
    {"masked": True, "temperature": 0.0},
    {"masked": "all"},
]


def draws(seed: int) -> Draws:
    """One of each kind."""
    words = -(-VOCAB // 32)
    some = torch.randint(-(1 << 31), 1 << 31, (words,), generator=torch.Generator().manual_seed(9))
    masks = torch.cat([some, torch.zeros(words, dtype=torch.int64)]).int()
    numbers, counts = torch.empty(len(ROWS), 3), torch.empty(len(ROWS), 2, dtype=torch.int32)
    for row, each in enumerate(ROWS):
        t = each.get("temperature", 1.0)
        far = torch.finfo(torch.float32).max
        floor = -np.log(each["min_p"]) if "min_p" in each else far
        numbers[row] = torch.tensor([1 / t if t else 0.0, each.get("top_p", 1.0), floor])
        place = {None: -1, True: 0, "all": words}[each.get("masked")]
        counts[row] = torch.tensor([each.get("top_k", 0), place])
    keys = torch.randint(0, 1 << 31, (len(ROWS), 2), generator=torch.Generator().manual_seed(seed))
    special = torch.tensor([2, 3, 4, 5, 6, 7, 8], dtype=torch.int32)
    return Draws(numbers, counts, keys.int(), special, masks)


def test_drawn_tokens_are_those_of_pytorch() -> None:
    """Greedy, plain, with every filter and with masks; where nothing is allowed there is none."""
    logits = (random(len(ROWS), VOCAB) * 3).contiguous()
    peaks = logits.amax(-1)
    how = draws(0)

    tokens, found = KERNELS.draw(logits, logits, peaks, how)

    expected, other = REFERENCE.draw(logits, logits, peaks, how)
    assert tokens.tolist() == expected.tolist()
    assert torch.equal(found, other)
    assert tokens[-1] == -1
    assert (tokens[:-1] >= 0).all()


def test_measures_are_those_of_pytorch() -> None:
    """With tokens that are none, a row that is not finite, and one without a token."""
    logits = random(4, VOCAB) * 3
    logits[:, 7] = -torch.inf
    logits[1, 4150], logits[3] = torch.nan, -torch.inf

    found, expected = KERNELS.measure(logits), REFERENCE.measure(logits)

    assert (
        found.peaks.isnan().tolist()
        == expected.peaks.isnan().tolist()
        == [False, True, False, True]
    )
    for mine, other in zip(found, expected, strict=True):
        assert torch.allclose(mine[[0, 2]], other[[0, 2]], rtol=1e-5)


@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_a_step_of_a_model_is_that_of_pytorch(kind: str) -> None:
    """The whole of it: two branches that go on from a prompt, in two steps."""
    kv = torch.int8 if kind == "int8" else torch.float32
    logits = []
    for ops in (KERNELS, REFERENCE):
        setting = Setting(ops=ops, device=CPU, kind=kind, dtype=torch.float32, kv_dtype=kv)
        config = replace(TINY, num_layers=1)
        model = DeviceModel(config, tiny_weights(config), setting)
        pool = model.make_pool(3)
        model.forward(torch.arange(2), Plan([Span([0], 0, 2)]), pool, torch.arange(0))
        pool.copy([(0, 1)])
        spans = [Span([0], 2, 1), Span([1], 2, 2)]
        logits.append(model.forward(torch.tensor([7, 8, 9]), Plan(spans), pool, torch.arange(3)))

    assert (logits[0] - logits[1]).abs().max() < 1e-4 * logits[1].abs().max()


def test_bfloat16_is_as_near_as_its_rounding() -> None:
    """Products are of float32 here, and what the interpreter casts is cut off."""
    ops, other = TritonOps(torch.bfloat16, upcasts=True), TorchOps(torch.bfloat16)
    weight = Stacked(weights=(Dense(values=random(64, 128).bfloat16()),))
    x = random(4, 128, seed=1)

    normed = [f.norm(x.clone(), None, torch.ones(128), 1e-5, False) for f in (ops, other)]

    assert isinstance(normed[0], torch.Tensor)
    assert isinstance(normed[1], torch.Tensor)
    assert torch.allclose(normed[0].float(), normed[1].float(), rtol=2**-7)
    product, expected = (added(f.product(normed[1], weight)) for f in (ops, other))
    assert torch.allclose(product, expected, atol=1e-4)
