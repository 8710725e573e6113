"""Block formats: the same bits as gguf-py's own dequantiser, whatever the blocks hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gguf import GGML_QUANT_SIZES, GGUFWriter
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.conftest import TINY, tiny_weights
from tests.engine.reference import ids_of, logits_of
from ttc.benchmarks.perf.quantise import quantised
from ttc.engine.local.files.dequantise import FORMATS, NAMES
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.files.loader import Loader
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.model import Llama

HALVES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2)}
"""Where the scales of a block lie, unless it is at its start."""


def bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of numbers, since no NaN equals itself."""
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)


def random_rows(kind: str, rows: int, columns: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Rows of random blocks whose scales are small numbers."""
    block, block_bytes = GGML_QUANT_SIZES[Kind[kind]]
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (rows * columns // block, block_bytes), dtype=np.uint8)
    if block > 1:
        for at in HALVES.get(kind, (0,)):
            scales = random.uniform(-0.01, 0.01, (len(blocks), 1)).astype(np.float16)
            blocks[:, at : at + 2] = scales.view(np.uint8)
    else:
        values = random.uniform(-1, 1, (rows, columns)).astype(np.float32)
        kinds: dict[str, Any] = {"F32": np.float32, "F16": np.float16}
        plain = values.astype(kinds[kind]) if kind in kinds else bits(values) >> 16
        blocks = plain.astype(np.uint16 if kind == "BF16" else plain.dtype).view(np.uint8)
    return blocks.reshape(rows, -1)


def rows_of(kind: str, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The engine's values of rows."""
    format_ = FORMATS[kind]
    values = np.empty((len(raw), raw.shape[1] // format_.block_bytes * format_.block), np.float32)
    format_.rows(raw, values)
    return values


@pytest.mark.parametrize("kind", FORMATS)
def test_values_are_those_of_gguf_py(kind: str) -> None:
    """Bit for bit, over many rows."""
    raw = random_rows(kind, 64, 512)

    assert np.array_equal(bits(rows_of(kind, raw)), bits(dequantize(raw, Kind[kind])))


@pytest.mark.parametrize("kind", FORMATS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_blocks_of_any_bytes_are_read_as_gguf_py_reads_them(kind: str, seed: int) -> None:
    """Infinite scales and NaNs, too."""
    block, block_bytes = GGML_QUANT_SIZES[Kind[kind]]
    raw = np.random.default_rng(seed).integers(0, 256, (8, 256 // block * block_bytes), np.uint8)
    with np.errstate(all="ignore"):
        mine, theirs = rows_of(kind, raw), dequantize(raw, Kind[kind])

    assert np.array_equal(np.isnan(mine), np.isnan(theirs))
    assert np.array_equal(bits(np.nan_to_num(mine)), bits(np.nan_to_num(theirs)))


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_may_be_read_in_any_number_and_order(kind: str) -> None:
    """In pieces, one by one, twice, or backwards."""
    raw = random_rows(kind, 700, 256)
    tensor = Tensor(shape=(700, 256), format=FORMATS[kind], raw=raw)
    whole = torch.from_numpy(np.ascontiguousarray(dequantize(raw, Kind[kind])))
    places = torch.tensor([699, 0, 3, 3, 512])

    assert torch.equal(tensor[places], whole[places])
    for dtype in (torch.float32, torch.bfloat16):
        with Loader(dtype) as loader:
            found = loader.stacked([tensor, tensor])
        assert torch.equal(found, torch.cat([whole, whole]).to(dtype))


def test_numbers_and_block_sizes_of_formats_are_those_of_gguf_py() -> None:
    """Of all formats that are supported, and the names of most others."""
    for kind in Kind:
        assert NAMES.get(kind.value, kind.name) == kind.name
    for name, format_ in FORMATS.items():
        assert (format_.block, format_.block_bytes) == GGML_QUANT_SIZES[Kind[name]]


def test_a_bfloat16_tensor_keeps_every_bit_of_a_not_a_number() -> None:
    """Also where a scalar conversion would quieten it."""
    raw = np.array([[0x81, 0x7F, 0x01, 0xFF]], dtype=np.uint8)

    assert bits(rows_of("BF16", raw)).tolist() == [[0x7F810000, 0xFF010000]]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_model_of_any_format_computes_with_its_dequantised_weights(
    kind: str, tmp_path: Path
) -> None:
    """Those that gguf-py reads; and its loss is near that of the weights as they were."""
    config = replace(TINY, hidden=256, num_heads=4, head_dim=64, feed_forward=256, vocab=96)
    plain = tiny_weights(config)
    writer, values = GGUFWriter(tmp_path / "model.gguf", "qwen2"), dict(plain)
    for name, weight in plain.items():
        taken = Kind[kind] if weight.dim() == 2 else Kind.F32
        data = quantised(weight.numpy(), taken)
        values[name] = torch.from_numpy(np.array(dequantize(data, taken), dtype=np.float32))
        writer.add_tensor(name, data, raw_dtype=taken)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file, ids = read_gguf(tmp_path / "model.gguf"), ids_of(60)
    mine, theirs, exact = (
        logits_of(Llama(config, weights, torch.float32), ids)
        for weights in (file.tensors, values, plain)
    )

    assert torch.equal(mine, theirs)
    losses = [float(F.cross_entropy(logits[:-1], ids[1:])) for logits in (mine, exact)]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("Q4_K", 0.09), ("Q5_K", 0.045), ("Q6_K", 0.025)],
)
def test_what_the_tests_write_is_near_what_it_stands_for(kind: str, error: float) -> None:
    """The root of the mean square error of normal numbers; zeros stay zeros."""
    values = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    values[0] = 0
    found = dequantize(quantised(values, Kind[kind]), Kind[kind])

    assert np.sqrt(np.mean((found - values) ** 2)) < error
    assert not found[0].any()
