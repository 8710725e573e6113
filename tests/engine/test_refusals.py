"""What the engine cannot compute is refused by its name or its key, and never passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter, RopeScalingType

from tests.engine.reference import make_model, save, write_gguf
from ttc.engine.local.config import FAMILIES, ModelConfig
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.engine.local.files.folder_config import folder_config
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.files.gguf_config import gguf_config, gguf_weights
from ttc.errors import ModelFileError

Keys = Callable[[GGUFWriter], None]
WAY_OUT = "use vLLM or another OpenAI-compatible server for it"


def describe(path: Path, keys: Keys = lambda writer: None, **options: Any) -> ModelConfig:
    """The description of a small file of Llama's kind with more keys."""
    write_gguf(make_model("llama", num_hidden_layers=1), path / "m.gguf", keys=keys, **options)
    file = read_gguf(path / "m.gguf")
    config = gguf_config(file)
    gguf_weights(file, config)
    return config


@pytest.mark.parametrize("name", ["gemma3", "qwen3moe", "phi3", "deepseek2", "mamba", "bert"])
def test_a_gguf_file_of_another_family_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """With the way out, and with what would work."""
    writer = GGUFWriter(tmp_path / "m.gguf", name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    with pytest.raises(ModelFileError, match=f"architecture '{name}' is not.*{WAY_OUT}.*'qwen2'"):
        gguf_config(read_gguf(tmp_path / "m.gguf"))


def test_an_adapter_is_refused(tmp_path: Path) -> None:
    """A LoRA as a GGUF file, or as a folder."""
    (tmp_path / "adapter_config.json").write_text("{}")

    with pytest.raises(ModelFileError, match=r"no whole model .*merge it"):
        describe(tmp_path, lambda writer: writer.add_type("adapter"))
    with pytest.raises(ModelFileError, match=r"adapter \(LoRA\).*merge it"):
        read_folder(tmp_path)


GGUF_KEYS: dict[str, tuple[str, Keys]] = {
    "experts": (r"llama\.expert_count = 8", lambda w: w.add_expert_count(8)),
    "soft caps": (
        r"llama\.attn_logit_softcapping = 50\.0",
        lambda w: w.add_attn_logit_softcapping(50.0),
    ),
    "last soft cap": (
        r"llama\.final_logit_softcapping = 30\.0",
        lambda w: w.add_final_logit_softcapping(30.0),
    ),
    "partial rotation": (
        r"llama\.rope\.dimension_count = 4",
        lambda w: w.add_rope_dimension_count(4),
    ),
    "long rope": (
        r"llama\.rope\.scaling\.type = 'longrope'",
        lambda w: w.add_rope_scaling_type(RopeScalingType.LONGROPE),
    ),
    "scaled residuals": (r"llama\.residual_scale = 0\.5", lambda w: w.add_residual_scale(0.5)),
    "scaled logits": (r"llama\.logit_scale = 0\.5", lambda w: w.add_logit_scale(0.5)),
    "scaled embeddings": (r"llama\.embedding_scale = 2\.0", lambda w: w.add_embedding_scale(2.0)),
    "scaled attention": (
        r"llama\.attention\.scale = 0\.25",
        lambda w: w.add_attention_scale(0.25),
    ),
    "alibi": (r"max_alibi_bias = 8\.0", lambda w: w.add_max_alibi_bias(8.0)),
    "clamps": (r"clamp_kqv = 8\.0", lambda w: w.add_clamp_kqv(8.0)),
    "no order": (r"llama\.attention\.causal = False", lambda w: w.add_causal_attention(False)),
    "layer norms": (r"layer_norm_epsilon = 0\.5", lambda w: w.add_layer_norm_eps(0.5)),
    "what nobody knows": (r"llama\.future\.key = 1", lambda w: w.add_uint32("llama.future.key", 1)),
    "window patterns": (
        r"sliding_window_pattern = \[True, False\]",
        lambda w: w.add_array("llama.attention.sliding_window_pattern", [True, False]),
    ),
    "yarn that is turned down": (
        r"yarn_ext_factor = 0\.5",
        lambda w: w.add_float32("llama.rope.scaling.yarn_ext_factor", 0.5),
    ),
}


@pytest.mark.parametrize("what", GGUF_KEYS)
def test_a_key_of_a_gguf_file_that_changes_results_is_refused(what: str, tmp_path: Path) -> None:
    """By key and value."""
    message, keys = GGUF_KEYS[what]

    with pytest.raises(ModelFileError, match=f"{message} is not supported; {WAY_OUT}"):
        describe(tmp_path, keys)


def test_keys_that_change_nothing_are_read(tmp_path: Path) -> None:
    """Counts of no experts, a context's history, and whatever is not about the architecture."""

    def keys(writer: GGUFWriter) -> None:
        writer.add_expert_count(0)
        writer.add_causal_attention(True)
        writer.add_sliding_window(0)
        writer.add_rope_scaling_type(RopeScalingType.NONE)
        writer.add_rope_scaling_finetuned(True)
        writer.add_string("somebody.quantize_version", "2")

    assert describe(tmp_path, keys) == describe(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", 0, "not a number above 0"),
        ("block_count", 1 << 31, "not a whole number from 1 to 1024"),
        ("attention.head_count", 5, "5 heads cannot share 2 keys evenly"),
        ("attention.key_length", 7, r"value_length = 8 is not supported"),
        ("rope.freq_base", 1, "not a number above 1"),
        ("attention.head_count_kv", True, "not a number"),
        ("embedding_length", 1 << 31, r"has the shape \(96, 48\), not \(96, 2147483648\)"),
        ("vocab_size", 95, r"'token_embd.weight' has the shape \(96, 48\), not \(95, 48\)"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(
    key: str, value: int, message: str, tmp_path: Path
) -> None:
    """By the key, or by the tensor that does not fit."""

    def keys(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop(f"llama.{key}")
        add = writer.add_bool if isinstance(value, bool) else writer.add_uint32
        add(f"llama.{key}", value)

    with pytest.raises(ModelFileError, match=message):
        describe(tmp_path, keys)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    """As what it is: an incomplete file."""
    with pytest.raises(ModelFileError, match=r"the key llama\.context_length is missing"):
        describe(tmp_path, lambda writer: writer.kv_data[0].pop("llama.context_length") and None)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tensor_without_use_is_refused(family: str, tmp_path: Path) -> None:
    """Passed over, it would change results without a word."""
    for name in ("blk.0.attn_q.scale", "output.bias", "rope_factors_long.weight"):
        path = write_gguf(
            make_model(family), tmp_path / "m.gguf", tensors={name: np.ones(8, np.float32)}
        )
        file = read_gguf(path)
        with pytest.raises(ModelFileError, match=f"the tensor '{name}' is not supported"):
            gguf_weights(file, gguf_config(file))


def test_a_missing_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    """With both shapes; in a file and in a folder."""
    model = make_model("qwen3")
    file = read_gguf(write_gguf(model, tmp_path / "m.gguf"))
    folder = read_folder(save(model, tmp_path / "folder"))
    config = gguf_config(file)
    own = "model.layers.2.self_attn.q_norm.weight"
    cases: list[tuple[Any, str, Callable[[], object]]] = [
        (file.tensors, "blk.2.attn_q_norm.weight", lambda: gguf_weights(file, config)),
        (folder.tensors, own, lambda: folder_weights(folder)),
    ]
    for tensors, name, weights in cases:
        assert isinstance(tensors, dict)
        kept = tensors.pop(name)
        with pytest.raises(ModelFileError, match=f"the tensor '{name}' is missing"):
            weights()
        tensors[name] = tensors["blk.2.attn_norm.weight" if name[0] == "b" else "model.norm.weight"]
        with pytest.raises(ModelFileError, match=rf"'{name}' has the shape \(48,\), not \(32,\)"):
            weights()
        tensors[name] = kept


def test_divisors_of_frequencies_must_fit(tmp_path: Path) -> None:
    """Positive, one for each pair, and no other scaling beside them."""
    divisors = np.ones(4, np.float32)
    with pytest.raises(ModelFileError, match=r"'rope_freqs.weight' holds no positive numbers"):
        describe(tmp_path, tensors={"rope_freqs.weight": divisors * 0})
    with pytest.raises(ModelFileError, match=r"'rope_freqs.weight' has 3 numbers, not 4"):
        describe(tmp_path, tensors={"rope_freqs.weight": divisors[:3]})
    with pytest.raises(ModelFileError, match=r"together with rope.scaling"):
        describe(
            tmp_path,
            lambda writer: writer.add_rope_scaling_factor(2.0),
            tensors={"rope_freqs.weight": divisors},
        )


def configuration(family: str, **changes: Any) -> dict[str, Any]:
    """A `config.json` as transformers writes it, with changes; `...` takes a key away."""
    values = json.loads(
        make_model(family, num_hidden_layers=2).config.to_json_string(use_diff=False)
    )
    values["architectures"] = [FAMILIES[family.partition("-")[0]].architecture]
    values |= changes
    return {key: value for key, value in values.items() if value is not ...}


JSON_KEYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a family": ("llama", "model_type = 'gemma3'", {"model_type": "gemma3"}),
    "no family": ("llama", "model_type = None", {"model_type": ...}),
    "a class": (
        "llama",
        r"architectures = \['LlamaForQuestionAnswering'\]",
        {"architectures": ["LlamaForQuestionAnswering"]},
    ),
    "quantised weights": (
        "llama",
        r"quantization_config = \{'quant_method': 'gptq'",
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
    ),
    "fp8": ("qwen3", "quantization_config", {"quantization_config": {"quant_method": "fp8"}}),
    "partial rotation": ("llama", "partial_rotary_factor = 0.5", {"partial_rotary_factor": 0.5}),
    "inner partial rotation": (
        "llama",
        r"rope_parameters\.partial_rotary_factor = 0.5",
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ),
    "an activation": ("llama", "hidden_act = 'gelu'", {"hidden_act": "gelu"}),
    "a bias of another family": ("qwen2", "attention_bias = True", {"attention_bias": True}),
    "experts": ("mistral", "num_local_experts = 8", {"num_local_experts": 8}),
    "soft caps": ("llama", "final_logit_softcapping = 30", {"final_logit_softcapping": 30}),
    "long rope": (
        "llama",
        r"rope_scaling\.type = 'longrope'",
        {"rope_parameters": ..., "rope_scaling": {"type": "longrope", "factor": 4}},
    ),
    "sections": (
        "qwen2",
        r"rope_scaling\.rope_type = 'mrope'",
        {"rope_parameters": ..., "rope_scaling": {"rope_type": "mrope"}},
    ),
    "a key of rope that nobody knows": (
        "llama",
        r"rope_scaling\.alpha = 2",
        {"rope_parameters": ..., "rope_scaling": {"type": "linear", "factor": 4, "alpha": 2}},
    ),
    "two ropes": ("llama", "rope_scaling", {"rope_scaling": {"type": "linear", "factor": 2}}),
    "rope by layers": (
        "llama",
        r"rope_parameters\.full_attention",
        {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
    ),
    "a window in Llama": ("llama", "sliding_window = 64", {"sliding_window": 64}),
    "windows that are turned off": (
        "qwen2",
        "layer_types = ",
        {"layer_types": ["sliding_attention"] * 2},
    ),
    "layers of another kind": (
        "qwen2",
        r"layer_types = \['chunked",
        {"layer_types": ["chunked_attention"] * 2},
    ),
    "what nobody knows": ("qwen3", "future_key = True", {"future_key": True}),
}


@pytest.mark.parametrize("what", JSON_KEYS)
def test_a_key_of_a_configuration_that_changes_results_is_refused(what: str) -> None:
    """By key and value, with the way out."""
    family, message, changes = JSON_KEYS[what]

    with pytest.raises(ModelFileError, match=rf"{message}.* is not supported.*{WAY_OUT}"):
        folder_config(Path("config.json"), configuration(family, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "the key hidden_size is missing"),
        ({"num_hidden_layers": 1e9}, "num_hidden_layers is 1000000000.0, not a whole number"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5, not a whole number"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small', not a number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, not a number above 0"),
        ({"vocab_size": 10**400}, "vocab_size is 1000.*, not a number above 0"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', neither true nor false"),
        ({"head_dim": 5}, "heads of size 5 cannot be turned"),
        ({"rope_parameters": 3}, "rope_parameters = 3 is not supported"),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": 0}},
            r"rope_parameters\.factor is 0, not a number above 0",
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                }
            },
            "low_freq_factor is 4, not below high_freq_factor = 4",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    """By key, with the value."""
    with pytest.raises(ModelFileError, match=message):
        folder_config(Path("config.json"), configuration("llama", **changes))


PUBLISHED: dict[str, dict[str, Any]] = {
    "smollm2": {
        "is_llama_config": True,
        "rope_interleaved": False,
        "transformers.js_config": {"kv_cache_dtype": {}},
        "rope_parameters": ...,
        "rope_scaling": None,
        "rope_theta": 100000,
        "pretraining_tp": 1,
        "torch_dtype": "bfloat16",
    },
    "qwen2.5": {
        "max_window_layers": 21,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "use_mrope": False,
        "rope_parameters": ...,
        "rope_theta": 1000000.0,
    },
}


@pytest.mark.parametrize(("family", "name"), [("llama", "smollm2"), ("qwen2", "qwen2.5")])
def test_configurations_of_published_models_are_read(family: str, name: str) -> None:
    """With the keys of their own day, which transformers has since put elsewhere."""
    config = folder_config(Path("config.json"), configuration(family, **PUBLISHED[name]))

    assert config.rope.base == PUBLISHED[name]["rope_theta"]
    assert (config.window, config.windowed) == (None, frozenset())


def test_a_context_is_as_long_as_the_scaling_makes_it() -> None:
    """Where the configuration declares the original length alone; else as declared."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    short = {**yarn, "original_max_position_embeddings": 64}

    for family, parameters, context in (("qwen2", yarn, 1024), ("llama", short, 256)):
        values = configuration(family, rope_parameters=parameters)
        assert folder_config(Path("config.json"), values).context == context
