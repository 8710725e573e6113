"""Tiny random models of every family, made by transformers, and what transformers computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import dequantize

from ttc.benchmarks.perf.quantise import format_for, quantised
from ttc.engine.local.files.folder import folder_weights, read_folder
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.files.gguf_config import gguf_config, gguf_weights
from ttc.engine.local.model import Llama, Model
from ttc.engine.local.plan import PAGE, Plan, Span

SIZES: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "rms_norm_eps": 1e-5,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-biased": {"attention_bias": True, "mlp_bias": True, "head_dim": 16},
    "mistral": {"sliding_window": 24},
    "mistral-whole": {"sliding_window": None, "tie_word_embeddings": True},
    "qwen2": {"tie_word_embeddings": True},
    "qwen2-window": {
        "use_sliding_window": True,
        "sliding_window": 70,
        "max_window_layers": 2,
    },
    "qwen3": {"head_dim": 32},
    "smollm3": {},
    "smollm3-window": {
        "use_sliding_window": True,
        "sliding_window": 40,
        "no_rope_layers": [1, 0] * 2,
    },
}
CLASSES: dict[str, tuple[Any, Any]] = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM),
}


def make_model(family: str, **changes: Any) -> Any:
    """A random model in which biases and norms matter, too."""
    config_class, model_class = CLASSES[family.partition("-")[0]]
    config = config_class(**SIZES | FAMILIES[family] | changes)
    torch.manual_seed(3)
    model = model_class(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * (0.1 if "norm" in name else 0.5))
    return model


def save(model: Any, path: Path, **options: Any) -> Path:
    """A folder with the model, as transformers writes it."""
    model.save_pretrained(path, **options)
    return path


def ids_of(count: int) -> torch.Tensor:
    """Tokens, the same every time."""
    return torch.randint(0, 96, (count,), generator=torch.Generator().manual_seed(count))


def reference_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """What transformers computes, (tokens, vocab)."""
    with torch.inference_mode():
        logits: torch.Tensor = model(ids[None]).logits[0]
    return logits


def logits_of(model: Model, ids: torch.Tensor, piece: int = 1 << 20) -> torch.Tensor:
    """What the engine computes, in pieces of a prompt, (tokens, vocab)."""
    pages = range(-(-len(ids) // PAGE))
    pool = model.make_pool(len(pages))
    parts = []
    with torch.inference_mode():
        for start in range(0, len(ids), piece):
            part = ids[start : start + piece]
            plan = Plan([Span(pages=pages, start=start, count=len(part))])
            logits = model.forward(part, plan, pool, torch.arange(len(part)))
            parts.append(logits.clone())  # the next step may overwrite them
    return torch.cat(parts)


def load_folder(path: Path, dtype: torch.dtype = torch.float32) -> Llama:
    """The engine's model of a folder."""
    folder = read_folder(path)
    return Llama(folder.config, folder_weights(folder), dtype)


def permuted(weight: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """The rows of q or k as llama.cpp's converter orders them for a rotation of neighbours."""
    split = weight.reshape(num_heads, 2, weight.shape[0] // num_heads // 2, *weight.shape[1:])
    return split.swapaxes(1, 2).reshape(weight.shape)


def gguf_keys(writer: GGUFWriter, config: Any) -> None:
    """The keys that describe a model of transformers."""
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if (head_dim := getattr(config, "head_dim", None)) is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)


def write_gguf(
    model: Any,
    path: Path,
    *,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    keys: Callable[[GGUFWriter], None] = lambda writer: None,
    tensors: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Writes a model of transformers as llama.cpp's converter does, matrices in one format."""
    config = model.config
    name = "llama" if config.model_type == "mistral" else config.model_type
    writer = GGUFWriter(path, name, **options)
    gguf_keys(writer, config)
    keys(writer)
    arch = next(arch for arch, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for own, tensor in model.state_dict().items():
        if own == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if name in ("llama", "smollm3") and (count := heads.get(own.split(".")[-2])):
            values = permuted(values, count)
        target = names.get_name(own, try_suffixes=(".weight", ".bias"))
        is_plain = values.ndim == 1 or kind == GGMLQuantizationType.F32
        taken = GGMLQuantizationType.F32 if is_plain else format_for(values.shape[1], kind)
        data = values if is_plain else quantised(values, taken)
        writer.add_tensor(target, data, raw_dtype=taken)
    for target, values in (tensors or {}).items():
        writer.add_tensor(target, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load_gguf(path: Path, dtype: torch.dtype = torch.float32) -> Llama:
    """The engine's model of a GGUF file."""
    file = read_gguf(path)
    config = gguf_config(file)
    return Llama(config, gguf_weights(file, config), dtype)


def round_through(model: Any, kind: GGMLQuantizationType) -> Any:
    """Puts matrices through a format and back, in place."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                taken = format_for(weight.shape[1], kind)
                values = dequantize(quantised(weight.numpy(), taken), taken)
                weight.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    return model


PARTS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""What transformers calls tensors of GGUF files."""


def reference_model(path: Path) -> Any:
    """The model of a `llama` or `qwen2` file in transformers, read by gguf-py alone."""
    reader = gguf.GGUFReader(path)
    family = str(reader.fields["general.architecture"].contents())

    def key(name: str) -> Any:
        return reader.fields[f"{family}.{name}"].contents()

    state = {}
    heads = {"attn_q": key("attention.head_count"), "attn_k": key("attention.head_count_kv")}
    for tensor in reader.tensors:
        *block, name, kind = tensor.name.split(".")
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if family == "llama" and (count := heads.get(name)):  # the inverse of `permuted`
            split = values.reshape(count, len(values) // count // 2, 2, *values.shape[1:])
            values = np.ascontiguousarray(split.swapaxes(1, 2).reshape(values.shape))
        prefix = f"model.layers.{block[1]}." if block else ""
        state[f"{prefix}{PARTS[name]}.{kind}"] = torch.from_numpy(values)
    config_class, model_class = CLASSES[family]
    config = config_class(
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"],
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        max_position_embeddings=key("context_length"),
        vocab_size=len(state["model.embed_tokens.weight"]),
        tie_word_embeddings="lm_head.weight" not in state,
    )
    with torch.device("meta"):  # no time is lost on random weights
        model = model_class(config)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    if unexpected or missing != ["lm_head.weight"] * config.tie_word_embeddings:
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    return model.eval()
