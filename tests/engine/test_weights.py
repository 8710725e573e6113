"""The order of rows in memory, whatever it is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.reference import make_model, permuted, write_gguf
from ttc.engine.local.config import ModelConfig
from ttc.engine.local.files.dequantise import FORMATS
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.files.gguf_config import gguf_config, gguf_weights
from ttc.engine.local.files.loader import Loader
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.files.weights import in_halves
from ttc.engine.local.rope import Dynamic, Linear, Rope, Scaling, Yarn
from ttc.engine.local.rotation import Rotation

FILE_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def sizes(num_heads: int, num_kv_heads: int) -> ModelConfig:
    """A model of heads of 8."""
    return ModelConfig(
        num_layers=1,
        hidden=8 * num_heads,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=8,
        feed_forward=8,
        vocab=8,
        context=8,
    )


def stored(rows: np.ndarray[Any, Any]) -> Tensor:
    """Rows as a file holds them."""
    raw = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint8).reshape(len(rows), -1)
    return Tensor(shape=rows.shape, format=FORMATS["F32"], raw=raw)


def filled(num_heads: int, columns: int = 3) -> np.ndarray[Any, Any]:
    """Row i holds i; heads of 8."""
    return np.arange(8.0 * num_heads, dtype=np.float32)[:, None].repeat(columns, axis=1)


def test_neighbours_in_the_file_are_halves_in_memory() -> None:
    """WT-01: One head of 8, where undoing the order twice would show."""
    found = in_halves({"blk.0.attn_q.weight": stored(filled(1)[FILE_ORDER])}, sizes(1, 1))

    assert found["blk.0.attn_q.weight"][:][:, 0].tolist() == list(range(8))


def test_keys_are_ordered_by_their_own_heads() -> None:
    """WT-01: Of which there are fewer; biases go with their rows, and all else stays."""
    own = {
        "blk.0.attn_q.weight": filled(4),
        "blk.0.attn_k.weight": filled(2),
        "blk.0.attn_k.bias": filled(2)[:, 0],
        "blk.0.attn_v.weight": filled(2),
        "token_embd.weight": filled(2),
    }
    heads = {"attn_q": 4, "attn_k": 2}
    file = {
        name: permuted(rows, heads[part]) if (part := name.split(".")[-2]) in heads else rows
        for name, rows in own.items()
    }
    assert file["blk.0.attn_k.bias"][:8].tolist() == FILE_ORDER
    found = in_halves({name: stored(rows) for name, rows in file.items()}, sizes(4, 2))

    for name, rows in own.items():
        for some in (slice(None), slice(3, 5)):
            assert np.array_equal(found[name][some].numpy(), rows[some]), name


def test_families_that_rotate_halves_are_left_alone(tmp_path: Path) -> None:
    """WT-01: Their rows lie in the file as they are used."""
    model = make_model("qwen3")
    file = read_gguf(write_gguf(model, tmp_path / "m.gguf"))
    rows = gguf_weights(file, gguf_config(file))["blk.0.attn_q.weight"][:]

    assert torch.equal(rows, model.state_dict()["model.layers.0.self_attn.q_proj.weight"])


def test_matrices_are_put_together_in_one_piece_of_memory() -> None:
    """Which is used again for the next one."""
    parts = [torch.full((rows, 1000), float(rows)) for rows in (300, 1, 200)]
    with Loader(torch.float32) as loader:
        first = loader.stacked(parts)
        assert torch.equal(first, torch.cat(parts))
        second = loader.stacked(parts[:2])

    assert torch.equal(second, torch.cat(parts[:2]))
    assert second.data_ptr() == first.data_ptr()


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        Linear(factor=3.0),
        Dynamic(factor=2.0, original_context=700),
        Yarn(factor=2.0, original_context=700, attention_factor=1.1),
    ],
)
def test_a_table_does_not_depend_on_what_was_asked_before(scaling: Scaling | None) -> None:
    """It grows by whole pieces, each computed for itself."""
    rope = Rope(scaling=scaling)
    slow, quick = Rotation(rope, 16), Rotation(rope, 16)
    for last in (3, 1500, 1501, 4000):
        slow(torch.tensor([last]))
    positions = torch.arange(5000)

    assert torch.equal(slow(positions).cos, quick(positions).cos)
    assert torch.equal(slow(positions).sin, quick(positions).sin)


def test_frequencies_are_computed_in_double_precision() -> None:
    """At position 100,000 an angle in float32 would be off by a hundredth."""
    positions = torch.tensor([100_000])
    angles = 100_000 * 10_000.0 ** (-torch.arange(8, dtype=torch.float64) / 8)
    turn = Rotation(Rope(), 16)(positions)

    assert torch.equal(turn.cos[0, 0], angles.cos().float())
    assert torch.equal(turn.sin[0, 0], angles.sin().float())
