"""The kernels in C: what they compute, and that every number has the same bits in any company."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from ctypes import CDLL, POINTER, byref, c_int32, c_void_p
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F

from tests.engine.reference import FAMILIES, ids_of, load_folder, logits_of, make_model, save
from ttc.engine.local import model as torch_model
from ttc.engine.local.attention import Attention
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.engine.local.kv import KVPool
from ttc.engine.local.linear import Linear, LinearFactory
from ttc.engine.local.native import Kernels, NativeModel, build, compiler, library
from ttc.engine.local.native.library import (
    GROUP,
    LayerStruct,
    LinearStruct,
    MatrixStruct,
    ModelStruct,
    RowsStruct,
    StepStruct,
)
from ttc.engine.local.native.room import Room
from ttc.engine.local.native.weights import Packer, QuantisedLinear
from ttc.engine.local.plan import Plan, Span
from ttc.errors import EngineError

PORTABLE = ("-DTTC_PORTABLE",)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random numbers, the same every time."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def codes_of(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of groups, (rows, groups, GROUP) and (rows, groups)."""
    groups = F.pad(x, (0, -x.shape[1] % GROUP)).view(len(x), -1, GROUP)
    peaks = groups.abs().amax(-1)
    return (groups * (127 / peaks)[..., None]).round(), peaks / 127


def int8(weight: torch.Tensor) -> Linear:
    """The arithmetic of the kernels in PyTorch, with integer sums in float64, which are exact."""
    codes, weight_scales = codes_of(weight)

    def linear(x: torch.Tensor) -> torch.Tensor:
        groups, scales = codes_of(x)
        total = torch.zeros(len(x), len(weight))
        for g in range(groups.shape[1]):
            sums = groups[:, g].double() @ codes[:, g].double().T
            total += sums.float() * (weight_scales[:, g] * scales[:, g, None])
        return total

    return linear


@pytest.fixture(scope="module", params=[build.OPTIONS, PORTABLE], ids=["native", "portable"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The kernels for this processor, and those for any."""
    return Kernels(request.param)


@pytest.fixture(autouse=True)
def _same_number_of_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def multiplied(kernels: Kernels, weight: QuantisedLinear, x: torch.Tensor) -> torch.Tensor:
    """What the library's two functions make of rows."""
    library = kernels.library  # not another copy of it, which would know no formats of files
    library.quantise.argtypes = [c_void_p, c_int32, c_int32, POINTER(RowsStruct)]
    library.multiply.argtypes = [
        POINTER(LinearStruct),
        POINTER(RowsStruct),
        c_int32,
        c_void_p,
        c_int32,
    ]
    groups = -(-x.shape[1] // GROUP)
    codes = torch.empty(len(x), groups * GROUP, dtype=torch.int8)
    scales, sums = torch.empty(len(x), groups), torch.empty(len(x), 4 * groups, dtype=torch.int32)
    rows = RowsStruct(codes.data_ptr(), scales.data_ptr(), sums.data_ptr(), 0)
    out = torch.empty(len(x), weight.struct.outputs)
    library.quantise(x.data_ptr(), len(x), x.shape[1], rows)
    library.multiply(weight.struct, rows, len(x), out.data_ptr(), 0)
    return out


def attended(
    kernels: Kernels, config: ModelConfig, pool: KVPool, plan: Plan, queries: torch.Tensor
) -> torch.Tensor:
    """What the library makes of queries, (rows, heads and room for keys and values, D)."""
    library = kernels.library
    library.plan_items.argtypes = [POINTER(StepStruct), c_int32]
    library.attend.argtypes = [POINTER(ModelStruct), POINTER(LayerStruct), POINTER(StepStruct)]
    heads, kv_heads, size = config.num_heads, config.num_kv_heads, config.head_dim
    room = Room(config)
    room.fit(plan)
    out = torch.empty(plan.num_rows, heads * size)
    room.step.qkv, room.step.attended = queries.data_ptr(), out.data_ptr()
    library.plan_items(room.step, kv_heads)
    layer = LayerStruct(keys=pool.keys[0].data_ptr(), values=pool.values[0].data_ptr())
    if pool.key_scales:
        layer.key_scales = pool.key_scales[0].data_ptr()
        layer.value_scales = pool.value_scales[0].data_ptr()
    model = ModelStruct(heads=heads, kv_heads=kv_heads, head_dim=size)
    library.attend(model, layer, room.step)
    return out


@pytest.mark.parametrize("shape", [(16, 64), (40, 100), (129, 576), (7, 20)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 33, 65, 69])
def test_a_product_is_that_of_the_reference_to_the_bit(
    kernels: Kernels, shape: tuple[int, int], rows: int
) -> None:
    """Also where outputs are no multiple of 16 and inputs none of 64."""
    weight, x = random(*shape), random(rows, shape[1], seed=1)
    with Packer(kernels) as packer:
        packed = packer.stacked([weight])

    assert torch.equal(multiplied(kernels, packed, x), int8(weight)(x))


STRICT = """
#include <stdlib.h>
static void *strict(size_t alignment, size_t size) {
    return size % alignment ? 0 : aligned_alloc(alignment, size);
}
#define aligned_alloc strict
"""


def test_products_of_many_rows_get_their_memory_where_c11_is_kept_to(tmp_path: Path) -> None:
    """There a size that is no multiple of the alignment may give nothing."""
    (tmp_path / "strict.h").write_text(STRICT)
    source, library = Path(compiler.__file__).with_name("many_rows.c"), tmp_path / "many_rows.so"
    options = ["-march=native", "-fopenmp", "-fPIC", "-shared", "-include", f"{tmp_path}/strict.h"]
    subprocess.run(
        [*compiler.find_compiler(), *options, str(source), "-o", str(library)], check=True
    )
    codes, scales = torch.zeros(7, 64, dtype=torch.int8), torch.zeros(7, 1)
    sums, out = torch.zeros(7, 4, dtype=torch.int32), torch.ones(7, 5)
    rows = RowsStruct(codes.data_ptr(), scales.data_ptr(), sums.data_ptr(), 64)
    panels, own = torch.zeros(16 * 64, dtype=torch.int8), torch.zeros(16)
    weight = MatrixStruct(panels.data_ptr(), own.data_ptr(), None, 5, 0, 0)
    is_done = CDLL(str(library)).multiply_many(
        byref(weight), byref(rows), 7, c_void_p(out.data_ptr()), 5, 0
    )

    is_portable = compiler.kernel_set(compiler.find_compiler()) == "portable"
    assert is_done == (not is_portable)
    assert out.any() == is_portable


def test_a_number_that_is_not_finite_shows_in_every_output(kernels: Kernels) -> None:
    """In its own row alone."""
    x = random(3, 70, seed=1)
    x[1, 66] = torch.nan
    with Packer(kernels) as packer:
        out = multiplied(kernels, packer.stacked([random(20, 70)]), x)

    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


def test_matrices_are_stacked_without_gaps(kernels: Kernels) -> None:
    """Though the first has no multiple of 16 rows."""
    parts = [random(8, 64), random(24, 64, seed=1)]
    with Packer(kernels) as packer:
        packed = packer.stacked(parts)
    x = random(2, 64, seed=2)

    assert torch.equal(multiplied(kernels, packed, x), int8(torch.cat(parts))(x))


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of each family."""
    return save(make_model(request.param), tmp_path_factory.mktemp("native") / "model")


def native(folder: Path, options: tuple[str, ...] = build.OPTIONS) -> NativeModel:
    """The model of a folder, in C."""
    read = read_folder(folder)
    return NativeModel(read.config, folder_weights(read), Kernels(options))


def test_every_family_computes_what_pytorch_does_with_the_same_codes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms, rotations, windows and biases included, and keys and values in bfloat16.

    A number between two codes may be rounded the other way, and then the rest of its prompt
    differs; so at each position one of a few prompts has to agree.
    """
    monkeypatch.setattr(torch_model, "LinearFactory", lambda t: LinearFactory(t, {"int8": int8}))
    write = Attention.write

    def rounded(self: Attention, keys: torch.Tensor, values: torch.Tensor, *to: Any) -> None:
        write(self, keys.bfloat16().float(), values.bfloat16().float(), *to)

    monkeypatch.setattr(Attention, "write", rounded)
    reference, found = load_folder(folder), native(folder)
    prompts = [ids_of(length)[:80] for length in range(100, 108)]
    errors = [(logits_of(found, ids) - logits_of(reference, ids)).abs().amax(-1) for ids in prompts]

    assert torch.stack(errors).amin(0).amax().item() < 1e-3


def test_the_same_bits_come_out_on_any_processor(folder: Path) -> None:
    """The variant for this one against the one for all."""
    assert torch.equal(
        logits_of(native(folder), ids_of(90)), logits_of(native(folder, PORTABLE), ids_of(90))
    )


@pytest.mark.parametrize("piece", [1, 2, 7, 37, 64])
def test_a_prompt_has_the_same_bits_in_pieces_of_any_length(folder: Path, piece: int) -> None:
    """With one thread and with two."""
    model, ids = native(folder), ids_of(135)
    torch.set_num_threads(2)
    whole = logits_of(model, ids)
    torch.set_num_threads(1)

    assert torch.equal(logits_of(model, ids, piece), whole)


def test_a_row_has_the_same_bits_in_any_batch(folder: Path) -> None:
    """Alone, beside others, in any order; on shared pages and on its own copies."""
    model = native(folder)
    first, second = [7, 1, 3, 0, 5], [2, 9, 4, 8, 6]
    pool = model.make_pool(23)
    prefix, last = ids_of(73), ids_of(11)  # in five pages, of which decoding writes to the last
    with torch.inference_mode():
        for pages in (first, second):
            span = Span(pages=pages, start=0, count=len(prefix))
            model.forward(prefix, Plan([span]), pool, torch.tensor([0]))

        def decode(rows: list[int]) -> torch.Tensor:
            its = [first if row % 2 else second for row in rows]
            pool.copy([(pages[-1], 10 + row) for pages, row in zip(its, rows, strict=True)])
            spans = [
                Span(pages=[*pages[:-1], 10 + row], start=len(prefix), count=1)
                for pages, row in zip(its, rows, strict=True)
            ]
            return model.forward(last[rows], Plan(spans), pool, torch.arange(len(rows))).clone()

        together = decode(list(range(11)))
        for rows in ([0], [7], [3, 4, 5], [10, 2, 8, 6, 1]):
            assert torch.equal(decode(rows), together[rows])


def grown(model: NativeModel, pool: KVPool, tree: list[list[int]]) -> list[Span]:
    """Sequences of 100 to 100 + 16 (n - 1) tokens whose pages are computed, ready for one more.

    `tree` gives each one's pages; those of equal numbers are the same.
    """
    spans = []
    for pages in tree:
        count = 16 * len(pages) - 5
        ids = torch.cat([ids_of(16 + page)[:16] for page in pages])
        plan = Plan([Span(pages=pages, start=0, count=count)])
        model.forward(ids[:count], plan, pool, torch.tensor([0]))
        spans.append(Span(pages=pages, start=count, count=1))
    return spans


def on_copies(pool: KVPool, spans: list[Span]) -> list[Span]:
    """The same spans, each on pages of its own, the first of which is the fortieth."""
    copies, free = [], 40
    for span in spans:
        pages = range(free, free := free + len(span.pages))
        pool.copy(list(zip(span.pages, pages, strict=True)))
        copies.append(Span(pages=pages, start=span.start, count=1))
    return copies


TREE = [
    [0, 1, 2, 3, 4, 5, 6, *range(20, 33)],  # into a second segment
    [0, 1, 2, 3, 4, 5, 6, *range(20, 32), 33],
    [0, 1, 2, 3, 4, 5, 7],
    [0, 1, 2, 3, 8, 9],  # they part at a chunk's end, within a chunk, and at once
    [0, 1, 2, 3, 8, 10],
    [11],
]


def test_rows_that_share_pages_have_the_bits_of_rows_that_do_not(folder: Path) -> None:
    """Over a tree of any depth; of sequences side by side and with each on its own copies."""
    model = native(folder)
    pool = model.make_pool(200)
    with torch.inference_mode():
        spans = grown(model, pool, TREE)
        copies = on_copies(pool, spans)
        ids, rows = ids_of(6), torch.arange(6)
        tied = model.forward(ids, Plan(spans), pool, rows).clone()
        untied = model.forward(ids, Plan(copies), pool, rows).clone()

    assert torch.equal(tied, untied)
    assert Plan(spans).reads(model.costs).sharing > 1.5
    assert Plan(copies).reads(model.costs).sharing == 1


@pytest.mark.parametrize("options", [build.OPTIONS, PORTABLE], ids=["native", "portable"])
def test_nan_in_slots_that_are_not_written_changes_nothing(
    folder: Path, options: tuple[str, ...]
) -> None:
    """Of the pages that are read, and of those that are not."""
    model, outputs = native(folder, options), []
    with torch.inference_mode():
        for old in (0.0, torch.nan):
            pool = model.make_pool(6)
            for page in (*pool.keys, *pool.values):
                page.fill_(old)
            whole = Plan([Span(pages=[2, 0, 5, 1, 3], start=0, count=70)])
            first = model.forward(ids_of(70), whole, pool, torch.arange(70)).clone()
            one = Plan([Span(pages=[2, 0, 5, 1, 3], start=70, count=1)])
            outputs.append(
                torch.cat([first, model.forward(ids_of(1), one, pool, torch.tensor([0]))])
            )

    assert torch.equal(*outputs)
    assert outputs[0].isfinite().all()


@pytest.mark.parametrize("size", [8, 20, 64, 96])
@pytest.mark.parametrize("group", [1, 2, 3, 5, 6, 7])
def test_attention_is_a_softmax_over_keys_and_values_in_bfloat16(
    kernels: Kernels, size: int, group: int
) -> None:
    """Against float64, on rows of a prompt and on decoding ones."""
    spans = [
        Span(pages=range(40, 80), start=590, count=30),
        Span(pages=range(40), start=600, count=1),
        Span(pages=range(40), start=39, count=1),
    ]
    config = ModelConfig(
        num_layers=1,
        hidden=8,
        num_heads=2 * group,
        num_kv_heads=2,
        head_dim=size,
        feed_forward=8,
        vocab=8,
        context=1024,
    )
    pool = KVPool(config, 80, torch.bfloat16)
    keys, values = random(80, 2, 16, size), random(80, 2, 16, size, seed=1)  # (…, position, D)
    pool.keys[0].copy_(keys.view(80, 2, 16, size // 2, 2).movedim(2, 3))
    pool.values[0].copy_(values.view(80, 2, 8, 2, size).movedim(3, 4))
    queries = random(32, 2 * group + 4, size, seed=2)
    out = attended(kernels, config, pool, Plan(spans), queries)

    rows = [(spans[0].pages, 591 + i) for i in range(30)]
    rows += [(span.pages, span.start + 1) for span in spans[1:]]
    for row, (pages, end) in enumerate(rows):
        k, v = (
            x.bfloat16().double()[list(pages)].movedim(1, 0).reshape(2, -1, size)[:, :end]
            for x in (keys, values)
        )
        q = queries[row, : 2 * group].double().view(2, group, size)
        expected = (q @ k.mT).softmax(-1) @ v
        torch.testing.assert_close(out[row], expected.flatten().float(), rtol=1e-4, atol=1e-5)


def test_a_row_that_sees_nothing_gives_zeros(kernels: Kernels) -> None:
    """Whatever lies in its pages and in its room."""
    config = ModelConfig(
        num_layers=1,
        hidden=8,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        feed_forward=8,
        vocab=8,
        context=64,
    )
    pool = KVPool(config, 2, torch.bfloat16)
    pool.keys[0].fill_(torch.nan)
    pool.values[0].fill_(torch.nan)
    plan = Plan([Span(pages=[0], start=0, count=1), Span(pages=[1], start=0, count=1)])
    plan.readers["position"] = -1

    out = attended(kernels, config, pool, plan, random(2, 4, 16))

    assert torch.equal(out, torch.zeros(2, 32))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are of x86-64")
def test_the_variant_for_newer_processors_compiles() -> None:
    """Here it can be built and loaded, and not run."""
    newer = ["-march=x86-64-v4", "-mavx512vnni"]
    for part in get_args(build.Part):
        formats = [f"-DFORMAT={kind}" for kind in range(1, 7)] if part == "blocks" else ["-DX"]
        assert build.load_libraries([[*newer, one] for one in formats], part)


def test_a_model_whose_weights_become_int8_builds_no_kernels_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would take longer than its own."""
    asked: list[object] = []
    monkeypatch.setattr(library, "load_libraries", lambda *what: asked.append(what))
    native(save(make_model("llama"), tmp_path / "model"))

    assert asked == []


def test_a_library_is_built_once_and_shared_by_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left beside it."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    build.load_library(PORTABLE)
    (made,) = (tmp_path / "kernels").glob("*.so")
    before = made.stat().st_ino

    build.load_library(PORTABLE)

    assert made.stat().st_ino == before
    assert {p.name for p in (tmp_path / "kernels").iterdir()} == {made.name, "lock"}


def test_libraries_that_nobody_uses_go_when_another_one_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a month; one that was loaded lately stays, whoever may run it now."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    monkeypatch.setattr(build, "compile_library", lambda *what: what[-1].write_bytes(b""))
    monkeypatch.setattr("ctypes.CDLL", str)
    names = {}
    for age_days, number in ((40, 1), (20, 2), (40, 3)):
        path = Path(str(build.load_library([f"-DX={number}"])))
        names[number] = path.name
        then = time.time() - age_days * 24 * 3600
        os.utime(path, (then, then))
    build.load_library(["-DX=3"])  # which is used again
    build.load_library(["-DX=4"])

    left = {path.name for path in (tmp_path / "kernels").glob("*.so")}
    assert names[1] not in left
    assert {names[2], names[3]} < left
    assert len(left) == 3


def test_an_installed_library_that_cannot_be_loaded_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it needs a newer C library: another one is built here."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(build, "INSTALLED", tmp_path)
    (tmp_path / "kernels.json").write_text('{"compiler": "another", "kernels": "AVX2"}')
    (tmp_path / compiler.library_name("another", build.OPTIONS, "step")).write_text("no library")

    assert "at installation" not in build.describe()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is kept."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))

    with pytest.raises(EngineError, match="cannot be built"):
        build.load_library(["-fno-such-option"])

    assert not list((tmp_path / "kernels").glob("*.so"))


def test_heads_that_are_too_large_for_the_kernels_are_refused(tmp_path: Path) -> None:
    """With the other arithmetic that computes them."""
    folder = save(make_model("qwen3", head_dim=512), tmp_path / "model")
    config = read_folder(folder).config

    with pytest.raises(EngineError, match="arithmetic='fp32'"):
        NativeModel.check(config)
