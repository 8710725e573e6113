"""Weights that keep a file's codes: what they compute, the same bits in any company."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from tests.engine.conftest import TINY, tiny_weights
from tests.engine.reference import ids_of, logits_of
from tests.engine.test_dequantise import random_rows
from tests.engine.test_native import PORTABLE, codes_of, multiplied, random
from ttc.benchmarks.perf.quantise import quantised
from ttc.engine.local.files.dequantise import FORMATS
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.native import Kernels, NativeModel, build
from ttc.engine.local.native.library import GROUP
from ttc.engine.local.native.weights import Packer, QuantisedLinear
from ttc.errors import EngineError

CODED = [name for name, format_ in FORMATS.items() if format_.coding]


@pytest.fixture(scope="module", params=[build.OPTIONS, PORTABLE], ids=["native", "portable"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The kernels for this processor, and those for any."""
    return Kernels(request.param)


def tensor(kind: str, rows: int, columns: int, seed: int = 0) -> Tensor:
    """Random blocks of a format."""
    raw = random_rows(kind, rows, columns, seed)
    return Tensor(shape=(rows, columns), format=FORMATS[kind], raw=raw)


def packed(kernels: Kernels, *parts: Tensor | torch.Tensor) -> QuantisedLinear:
    """Tensors below one another, with their codes."""
    with Packer(kernels, keeps_codes=True) as packer:
        return packer.stacked(parts)


def product(weight: Tensor, x: torch.Tensor) -> torch.Tensor:
    """The arithmetic of the kernels in PyTorch, with integer sums in float64, which are exact."""
    coding, coded = weight.format.coding, weight.codes(slice(None))
    assert coding is not None
    codes = torch.from_numpy(coded.codes.view(np.int8).reshape(len(weight.raw), -1, coding.group))
    scales, minima = (
        None if part is None else torch.from_numpy(part.astype(np.float16)).view(codes.shape[:2])
        for part in (coded.scales, coded.minima)
    )
    assert scales is not None
    groups, units = codes_of(x)
    groups = groups.reshape(len(x), -1, coding.group)
    total = torch.zeros(len(x), len(codes))
    for g in range(codes.shape[1]):
        unit = units[:, g * coding.group // GROUP, None]
        sums = groups[:, g].double() @ (codes[:, g].double() - coding.offset).T
        total += sums.float() * (scales[:, g].float() * unit)
        if minima is not None:
            total -= minima[:, g].float() * (unit * groups[:, g].sum(-1, keepdim=True))
    return total


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 66])
def test_a_product_is_that_of_the_reference_to_the_bit(
    kernels: Kernels, kind: str, rows: int
) -> None:
    """Also where outputs are no multiple of 16 and inputs none of 64."""
    block = FORMATS[kind].block
    for outputs, columns in ((16, 2 * block), (7, block), (41, 3 * block)):
        weight, x = tensor(kind, outputs, columns), random(rows, columns, seed=1)

        assert torch.equal(multiplied(kernels, packed(kernels, weight), x), product(weight, x))


@pytest.mark.parametrize("kind", CODED)
def test_a_product_is_near_that_of_the_numbers_which_codes_stand_for(
    kernels: Kernels, kind: str
) -> None:
    """With activations that have exact codes, only the order of sums and 11 bits remain."""
    weight = tensor(kind, 40, 512)
    x = torch.randint(-127, 128, (5, 512), generator=torch.Generator().manual_seed(0)).float()
    x[:, ::64] = 127
    exact = x.double() @ weight[:].double().T

    error = (multiplied(kernels, packed(kernels, weight), x) - exact).abs().amax()
    assert error < 2**-11 * float((x.abs().double() @ weight[:].abs().double().T).amax())


@pytest.mark.parametrize("bits", [b"\x00", b"\xff"], ids=["least", "greatest"])
@pytest.mark.parametrize("kind", CODED)
def test_the_outermost_codes_and_activations_do_not_overflow(
    kernels: Kernels, kind: str, bits: bytes
) -> None:
    """The same code in every place; sums of 16 bits would, if no centre were taken off."""
    weight = tensor(kind, 16, 256)
    if kind != "Q8_0":  # whose scale lies between its codes
        for name in ("q", "h"):
            blocks = weight.raw.reshape(-1).view(FORMATS[kind].parts)
            if name in (blocks.dtype.names or ()):
                blocks[name] = np.frombuffer(
                    bits * blocks[name].nbytes, blocks[name].dtype
                ).reshape(blocks[name].shape)
        codes = weight.codes(slice(None)).codes.view(np.uint8)
        coding = FORMATS[kind].coding
        assert coding is not None
        assert (codes == (0 if bits == b"\x00" else 2**coding.bits - 1)).all()
    for sign in (1.0, -1.0):
        x = torch.full((5, 256), sign)

        assert torch.equal(multiplied(kernels, packed(kernels, weight), x), product(weight, x))


def test_codes_of_minus_128_are_kept(kernels: Kernels) -> None:
    """Which no quantiser writes, and a file may hold."""
    weight = tensor("Q8_0", 16, 64)
    weight.raw.reshape(-1).view(FORMATS["Q8_0"].parts)["q"] = -128
    x = torch.full((2, 64), -1.0)

    assert torch.equal(multiplied(kernels, packed(kernels, weight), x), product(weight, x))


def test_groups_end_where_their_row_ends(kernels: Kernels) -> None:
    """WT-04: a row of 192 ones below one of hundreds, in whole groups of 64 and 32."""
    values = np.array([[1.0], [100.0]], dtype=np.float32).repeat(192, 1)
    for kind in (Kind.Q4_0, Kind.Q8_0):
        raw = quantised(values, kind)
        weight = Tensor(shape=(2, 192), format=FORMATS[kind.name], raw=raw)
        out = multiplied(kernels, packed(kernels, weight), torch.ones(1, 192))

        torch.testing.assert_close(out, torch.tensor([[192.0, 19200.0]]), rtol=1e-3, atol=0)


def test_tensors_of_several_formats_and_numbers_are_stacked(kernels: Kernels) -> None:
    """Though none has a multiple of 16 rows; numbers are int8 with a scale for 64 columns."""
    parts = [tensor("Q5_0", 24, 256), tensor("Q5_0", 8, 256), tensor("Q6_K", 9, 256)]
    numbers = random(5, 256)
    weight, x = packed(kernels, *parts, numbers), random(6, 256, seed=2)
    with Packer(kernels) as packer:
        last = multiplied(kernels, packer.stacked([numbers]), x)

    expected = torch.cat([*(product(part, x) for part in parts), last], 1)
    assert torch.equal(multiplied(kernels, weight, x), expected)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        ("Q4_0", 4.5),
        ("Q4_1", 5),
        ("Q5_0", 5.5),
        ("Q5_1", 6),
        ("Q8_0", 8.5),
        ("Q4_K", 5),
        ("Q6_K", 7),
    ],
)
def test_weights_take_little_more_than_in_the_file(
    kernels: Kernels, kind: str, bits: float
) -> None:
    """Where shapes are whole."""
    (matrix,) = packed(kernels, tensor(kind, 32, 256)).matrices

    assert len(matrix.panels) * 8 == bits * 32 * 256


NO_MEMORY = """
#include <stdlib.h>
#define malloc(size) ((void *)0)
#define aligned_alloc(alignment, size) ((void *)0)
"""


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q6_K", "Q8_0"])
def test_products_have_the_same_bits_where_there_is_no_memory(kind: str, tmp_path: Path) -> None:
    """Of few rows and of many, with codes of a file and with our own."""
    (tmp_path / "none.h").write_text(NO_MEMORY)
    kernels = Kernels((*build.OPTIONS, "-include", f"{tmp_path}/none.h"))
    numbers, columns = random(24, 256), 256
    for rows in (1, 4, 5, 66):
        weight, x = tensor(kind, 41, columns), random(rows, columns, seed=1)
        with Packer(Kernels()) as packer:
            last = multiplied(Kernels(), packer.stacked([numbers]), x)

        out = multiplied(kernels, packed(kernels, weight, numbers), x)

        assert torch.equal(out, torch.cat([product(weight, x), last], 1))


CONFIG = replace(TINY, hidden=256, num_heads=4, head_dim=64, feed_forward=256, vocab=96)


def model(kind: str, options: tuple[str, ...] = build.OPTIONS) -> NativeModel:
    """A random model, in codes."""
    weights = {
        name: weight
        if weight.dim() == 1
        else Tensor(
            shape=tuple(weight.shape),
            format=FORMATS[kind],
            raw=quantised(weight.numpy(), Kind[kind]).view(np.uint8).reshape(len(weight), -1),
        )
        for name, weight in tiny_weights(CONFIG).items()
    }
    return NativeModel(CONFIG, weights, Kernels(options), keeps_codes=True)


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_0", "Q6_K", "Q8_0"])
def test_a_model_has_the_same_bits_in_pieces_threads_and_variants(kind: str) -> None:
    """And its numerics say what computes."""
    whole, ids, threads = model(kind), ids_of(70) % 96, torch.get_num_threads()
    expected = logits_of(whole, ids)
    torch.set_num_threads(1)
    try:
        for piece in (1, 2, 7, 37):
            assert torch.equal(logits_of(whole, ids, piece), expected)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(logits_of(model(kind, PORTABLE), ids), expected)
    assert f"file({kind})/64" in whole.numerics


def test_a_model_without_codes_is_refused(tmp_path: Path) -> None:
    """Else `file` would be `int8` by another name."""
    with pytest.raises(EngineError, match="holds plain numbers and no codes"):
        NativeModel(TINY, tiny_weights(), Kernels(), keeps_codes=True)
