"""The kernels in C: what they compute, and that every number has the same bits in any company."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from ctypes import POINTER, c_int32, c_void_p
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.engine.reference import FAMILIES, ids_of, load_folder, logits_of, make_model, save
from ttc.engine.local import model as torch_model
from ttc.engine.local.attention import Span
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.engine.local.kv import KVPool
from ttc.engine.local.linear import Linear, LinearFactory
from ttc.engine.local.native import Kernels, NativeModel, build
from ttc.engine.local.native.library import GROUP, LinearStruct, RowsStruct
from ttc.engine.local.native.weights import Packer, QuantisedLinear
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
    library = build.load_library(kernels.options)
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
    scales, sums = torch.empty(len(x), groups), torch.empty(len(x), groups, dtype=torch.int32)
    rows = RowsStruct(codes.data_ptr(), scales.data_ptr(), sums.data_ptr(), 0)
    out = torch.empty(len(x), weight.struct.outputs)
    library.quantise(x.data_ptr(), len(x), x.shape[1], rows)
    library.multiply(weight.struct, rows, len(x), out.data_ptr(), 0)
    return out


@pytest.mark.parametrize("shape", [(16, 64), (40, 100), (129, 576), (7, 20)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 33])
def test_a_product_is_that_of_the_reference_to_the_bit(
    kernels: Kernels, shape: tuple[int, int], rows: int
) -> None:
    """Also where outputs are no multiple of 16 and inputs none of 64."""
    weight, x = random(*shape), random(rows, shape[1], seed=1)
    with Packer(kernels) as packer:
        packed = packer.stacked([weight])

    assert torch.equal(multiplied(kernels, packed, x), int8(weight)(x))


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
    """Norms, rotations, windows and biases included.

    A number between two codes may be rounded the other way, and then the rest of its prompt
    differs; so at each position one of a few prompts has to agree.
    """
    monkeypatch.setattr(torch_model, "LinearFactory", lambda t: LinearFactory(t, {"int8": int8}))
    reference, found = load_folder(folder), native(folder)
    prompts = [ids_of(length)[:100] for length in range(100, 106)]
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
    pool = KVPool(model.config, 23)
    prefix, last = ids_of(73), ids_of(11)  # in five pages, of which decoding writes to the last
    with torch.inference_mode():
        for pages in (first, second):
            span = Span(pages=pages, start=0, count=len(prefix))
            model.forward(prefix, [span], pool, torch.tensor([0]))

        def decode(rows: list[int]) -> torch.Tensor:
            its = [first if row % 2 else second for row in rows]
            pool.copy([(pages[-1], 10 + row) for pages, row in zip(its, rows, strict=True)])
            spans = [
                Span(pages=[*pages[:-1], 10 + row], start=len(prefix), count=1)
                for pages, row in zip(its, rows, strict=True)
            ]
            return model.forward(last[rows], spans, pool, torch.arange(len(rows)))

        together = decode(list(range(11)))
        for rows in ([0], [7], [3, 4, 5], [10, 2, 8, 6, 1]):
            assert torch.equal(decode(rows), together[rows])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are of x86-64")
def test_the_variant_for_newer_processors_compiles() -> None:
    """Here it can be built and loaded, and not run."""
    assert build.load_library(["-march=x86-64-v4", "-mavx512vnni"]).run_step


def test_a_library_is_built_once_and_shared_by_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left beside it."""
    monkeypatch.setenv("TTC_HOME", str(tmp_path))
    build.load_library(PORTABLE)
    (made,) = (tmp_path / "kernels").glob("*.so")
    before = made.stat().st_mtime_ns

    build.load_library(PORTABLE)

    assert made.stat().st_mtime_ns == before
    assert {p.name for p in (tmp_path / "kernels").iterdir()} == {made.name, "lock"}


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
