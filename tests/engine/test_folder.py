"""Model folders: weights in one file or many, in three types; what is damaged is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.engine.reference import (
    ids_of,
    load_folder,
    logits_of,
    make_model,
    reference_logits,
    save,
)
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.errors import ModelFileError

WEIGHTS = "model.safetensors"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def change(folder: Path, *, tensors: dict[str, Any] | None = None, **keys: Any) -> Path:
    """Changes tensors and keys of a folder; `...` takes one away."""
    for path, changes in ((folder / WEIGHTS, tensors or {}), (folder / "config.json", keys)):
        is_json = path.suffix == ".json"
        values = json.loads(path.read_text()) if is_json else load_file(path)
        values = {k: v for k, v in (values | changes).items() if v is not ...}
        if is_json:
            path.write_text(json.dumps(values))
        else:
            save_file(values, path)
    return folder


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_the_width_are_widened(dtype: torch.dtype, tmp_path: Path) -> None:
    """And computed with in float32."""
    narrow, wide, ids = make_model("qwen3").to(dtype), make_model("qwen3"), ids_of(40)
    wide.load_state_dict(narrow.state_dict())
    logits = logits_of(load_folder(save(narrow, tmp_path)), ids)

    torch.testing.assert_close(logits, reference_logits(wide, ids), rtol=0, atol=1e-3)


def test_shards_are_one_model(tmp_path: Path) -> None:
    """Found by their index; all of them, the configuration too, are in the fingerprint."""
    model, ids = make_model("llama"), ids_of(40)
    whole = save(model, tmp_path / "whole")
    shards = save(model, tmp_path / "shards", max_shard_size="60KB")
    one, many = read_folder(whole), read_folder(shards)

    assert len(many.files) > 3
    assert torch.equal(logits_of(load_folder(shards), ids), logits_of(load_folder(whole), ids))
    before = one.fingerprint()
    assert many.fingerprint() != before
    assert read_folder(change(whole, rms_norm_eps=1e-4)).fingerprint() != before


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    """WT-02: Stored once, or twice and equal; by the flag, or by the family where it is absent."""
    ids = ids_of(40)
    for family, flag in (("qwen2", True), ("smollm3", ...)):
        model = make_model(family)
        folder = change(save(model, tmp_path / family), tie_word_embeddings=flag)
        expected = reference_logits(model, ids)
        once = logits_of(load_folder(folder), ids)
        twice = {HEAD: model.state_dict()[EMBEDDING].clone()}

        torch.testing.assert_close(once, expected, rtol=0, atol=1e-3)
        assert torch.equal(logits_of(load_folder(change(folder, tensors=twice)), ids), once)


def test_a_head_is_never_made_up(tmp_path: Path) -> None:
    """WT-02: Untied and missing, by flag or family default; or tied and another tensor."""
    for flag in (False, ...):
        folder = save(make_model("llama"), tmp_path / str(flag))
        change(folder, tensors={HEAD: ...}, tie_word_embeddings=flag)
        with pytest.raises(ModelFileError, match=f"the tensor '{HEAD}' is missing"):
            folder_weights(read_folder(folder))
    folder = change(save(make_model("llama"), tmp_path / "other"), tie_word_embeddings=True)
    with pytest.raises(ModelFileError, match=f"'{HEAD}' is not '{EMBEDDING}'; set the key"):
        folder_weights(read_folder(folder))


def test_buffers_of_old_checkpoints_are_passed_over(tmp_path: Path) -> None:
    """They follow from the configuration."""
    folder = save(make_model("llama"), tmp_path)
    before = folder_weights(read_folder(folder)).keys()
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"

    assert (
        folder_weights(read_folder(change(folder, tensors={name: torch.ones(4)}))).keys() == before
    )


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"model.norm.weight": torch.ones(48, dtype=torch.int64)}, r"type torch\.int64"),
        ({"model.norm.weight": torch.ones(48).to(torch.float8_e4m3fn)}, r"type torch\.float8"),
        ({"model.norm.weight": torch.tensor(1.0)}, r"the shape \(\)"),
        ({"model.norm.weight": ...}, r"'model\.norm\.weight' is missing"),
        ({"model.norm.weight": torch.ones(47)}, r"has the shape \(47,\), not \(48,\)"),
        ({"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}, "is not supported"),
        ({"model.layers.9.input_layernorm.weight": torch.ones(48)}, "is not supported"),
        ({"score.weight": torch.ones(48)}, "'score.weight' is not supported"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tensors: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Of another type or shape, missing, or without use."""
    with pytest.raises(ModelFileError, match=message):
        folder_weights(read_folder(change(save(make_model("llama"), tmp_path), tensors=tensors)))


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    """A folder that has nothing else says so, and nothing in it runs."""
    folder = save(make_model("llama"), tmp_path)
    (folder / WEIGHTS).unlink()
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin, which can run code.* convert"):
        read_folder(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"a": "../model.safetensors"}, "does not name files of this folder"),
        ({"a": "/etc/passwd"}, "does not name files of this folder"),
        ({"a": 3}, "does not name files of this folder"),
        ({}, "does not name files of this folder"),
        ([], "does not name files of this folder"),
        ({"a": "absent.safetensors"}, "absent.safetensors cannot be read"),
    ],
)
def test_an_index_names_files_of_its_folder_alone(index: Any, message: str, tmp_path: Path) -> None:
    """No path leads out of it."""
    folder = save(make_model("llama"), tmp_path / "model")
    (folder / WEIGHTS).rename(tmp_path / WEIGHTS)
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps({"weight_map": index}))

    with pytest.raises(ModelFileError, match=message):
        read_folder(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"[]", "holds no JSON object"),
        (b"{", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"\xff\xfe\xff", "cannot be read"),
    ],
)
def test_a_damaged_configuration_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    """Empty, another value, cut, nested without end, or no text."""
    (tmp_path / "config.json").write_bytes(content)

    with pytest.raises(ModelFileError, match=message):
        read_folder(tmp_path)


def test_an_incomplete_folder_is_refused(tmp_path: Path) -> None:
    """Without a configuration, or without weights."""
    with pytest.raises(ModelFileError, match=r"config\.json cannot be read"):
        read_folder(tmp_path)
    folder = save(make_model("llama"), tmp_path)
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelFileError, match=rf"has neither {WEIGHTS} nor"):
        read_folder(folder)


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model."""
    return save(make_model("qwen3", num_hidden_layers=1), tmp_path_factory.mktemp("whole"))


@given(st.data())
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_a_damaged_folder_never_raises_anything_else(
    whole_folder: Path, tmp_path: Path, name: str, data: st.DataObject
) -> None:
    """Bytes changed or cut at will: the model is described, or refused with our own error."""
    for file in (WEIGHTS, "config.json"):
        content = bytearray((whole_folder / file).read_bytes())
        if file == name:
            for _ in range(data.draw(st.integers(0, 4))):
                place = data.draw(st.integers(0, 1500))
                changed = data.draw(st.binary(min_size=1, max_size=8))
                content[place : place + len(changed)] = changed
            del content[data.draw(st.integers(0, len(content))) :]
        (tmp_path / file).write_bytes(content)
    try:
        weights = folder_weights(read_folder(tmp_path))
    except ModelFileError:
        return
    assert all(len(rows[:1]) == 1 for rows in weights.values())


def test_rows_stay_in_the_file_until_they_are_read(tmp_path: Path) -> None:
    """The memory of a tensor is that of the mapped file."""
    folder = read_folder(save(make_model("llama"), tmp_path))
    tensor = folder.tensors[EMBEDDING]

    assert not tensor.raw.flags.owndata
    assert np.array_equal(tensor.raw.view(np.float32), tensor[:].numpy())
