"""Every family computes what transformers computes, from a folder and from a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, RopeScalingType

from tests.engine.reference import (
    FAMILIES,
    ids_of,
    load_folder,
    load_gguf,
    logits_of,
    make_model,
    reference_logits,
    round_through,
    save,
    write_gguf,
)

FACTOR = {"factor": 4.0}
ORIGINAL = {"original_max_position_embeddings": 32}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear"} | FACTOR,
    "yarn": {"rope_type": "yarn"} | FACTOR | ORIGINAL,
    "yarn-tuned": {
        "rope_type": "yarn",
        "beta_fast": 4.0,
        "beta_slow": 0.5,
        "attention_factor": 1.3,
        "truncate": False,
    }
    | FACTOR
    | ORIGINAL,
    "yarn-mscale": {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 0.9} | FACTOR | ORIGINAL,
    "llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    | FACTOR
    | ORIGINAL,
}


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Within 1e-3, everywhere."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_gives_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    """All logits of 150 tokens, more than any window; and the same bits however they are cut."""
    model, ids = make_model(family), ids_of(150)
    loaded = load_folder(save(model, tmp_path))
    logits = logits_of(loaded, ids)

    close(logits, reference_logits(model, ids))
    assert torch.equal(logits, logits_of(loaded, ids, piece=37))
    assert torch.equal(logits[:70], logits_of(loaded, ids[:70], piece=1))


@pytest.mark.parametrize("family", ["llama", "llama-biased", "mistral-whole", "qwen2", "qwen3"])
def test_a_gguf_file_gives_the_bits_of_the_folder(family: str, tmp_path: Path) -> None:
    """Whatever the converter does to the rows of queries and keys."""
    model, ids = make_model(family), ids_of(70)
    folder = load_folder(save(model, tmp_path / "folder"))
    file = load_gguf(write_gguf(model, tmp_path / "model.gguf"))

    assert torch.equal(logits_of(file, ids), logits_of(folder, ids))


def test_a_gguf_file_of_smollm3_has_every_fourth_layer_without_positions(tmp_path: Path) -> None:
    """No key says so; the architecture does."""
    model, ids = make_model("smollm3", num_hidden_layers=8), ids_of(70)
    loaded = load_gguf(write_gguf(model, tmp_path / "model.gguf"))

    assert loaded.config.unrotated == {3, 7}
    close(logits_of(loaded, ids), reference_logits(model, ids))


def test_a_gguf_file_with_a_window_has_it_in_every_layer(tmp_path: Path) -> None:
    """Mistral's files say that they are Llama's."""
    model, ids = make_model("mistral"), ids_of(150)
    path = write_gguf(model, tmp_path / "model.gguf", keys=lambda w: w.add_sliding_window(24))

    close(logits_of(load_gguf(path), ids), reference_logits(model, ids))


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_stretched_positions_are_those_of_transformers(
    scaling: str, family: str, tmp_path: Path
) -> None:
    """Far beyond the original context of 32."""
    model, ids = make_model(family, rope_parameters=dict(SCALINGS[scaling])), ids_of(250)
    loaded = load_folder(save(model, tmp_path))

    close(logits_of(loaded, ids), reference_logits(model, ids))


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_dynamic_positions_are_those_of_transformers_token_by_token(tmp_path: Path) -> None:
    """What a token's key is depends on the text up to it, however the prompt is cut."""
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    model = make_model("llama", rope_parameters=scaling, max_position_embeddings=32)
    ids = ids_of(100)
    loaded = load_folder(save(model, tmp_path))
    cache, expected = None, []
    with torch.inference_mode():
        for token in ids:
            step = model(token[None, None], past_key_values=cache, use_cache=True)
            cache = step.past_key_values
            expected.append(step.logits[0, 0])

    assert loaded.config.context == 128
    close(logits_of(loaded, ids), torch.stack(expected))
    assert torch.equal(logits_of(loaded, ids), logits_of(loaded, ids, piece=7))


def scaled_keys(kind: RopeScalingType, **more: float) -> Callable[[GGUFWriter], None]:
    """Writes the keys of a scaling by 4 from a context of 32."""

    def keys(writer: GGUFWriter) -> None:
        writer.add_rope_scaling_type(kind)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)
        for key, value in more.items():
            writer.add_float32(f"llama.rope.scaling.{key}", value)

    return keys


@pytest.mark.parametrize(
    ("scaling", "keys"),
    [
        ("linear", scaled_keys(RopeScalingType.LINEAR)),
        ("linear", lambda writer: writer.add_rope_scaling_factor(4.0)),
        ("linear", lambda writer: writer.add_float32("llama.rope.scale_linear", 4.0)),
        ("yarn", scaled_keys(RopeScalingType.YARN)),
    ],
)
def test_a_gguf_file_names_its_scaling(
    scaling: str, keys: Callable[[GGUFWriter], None], tmp_path: Path
) -> None:
    """By type and factor, by the factor alone, or by the key of older files."""
    model, ids = make_model("llama", rope_parameters=dict(SCALINGS[scaling])), ids_of(200)
    path = write_gguf(model, tmp_path / "model.gguf", keys=keys)

    close(logits_of(load_gguf(path), ids), reference_logits(model, ids))


def test_a_gguf_file_may_divide_each_frequency(tmp_path: Path) -> None:
    """Llama 3's files hold the divisors in a tensor."""
    model, ids = make_model("llama", rope_parameters=dict(SCALINGS["llama3"])), ids_of(200)
    plain = make_model("llama").model.rotary_emb.inv_freq
    divisors = (plain / model.model.rotary_emb.inv_freq).numpy()
    path = write_gguf(model, tmp_path / "model.gguf", tensors={"rope_freqs.weight": divisors})

    close(logits_of(load_gguf(path), ids), reference_logits(model, ids))


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1])
def test_logits_of_a_quantised_file_are_those_of_its_dequantised_weights(
    kind: Kind, tmp_path: Path
) -> None:
    """The formats that gguf-py can write, through the whole model."""
    model, ids = make_model("qwen2", hidden_size=96), ids_of(70)
    path = write_gguf(model, tmp_path / "model.gguf", kind=kind)

    close(logits_of(load_gguf(path), ids), reference_logits(round_through(model, kind), ids))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_bfloat16_weights_give_nearly_the_same_logits(family: str, tmp_path: Path) -> None:
    """And the same bits however a prompt is cut."""
    model, ids = make_model(family), ids_of(70)
    loaded = load_folder(save(model, tmp_path), torch.bfloat16)
    logits = logits_of(loaded, ids)

    assert float((logits - reference_logits(model, ids)).abs().mean()) < 0.1
    assert torch.equal(logits, logits_of(loaded, ids, piece=5))
