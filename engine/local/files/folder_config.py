"""The description of a model in a folder's `config.json`, as Hugging Face's transformers reads it.

Source: transformers, the configurations of the families and `modeling_rope_utils.py`. What is not
supported is refused by its key.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ttc.engine.local.config import FAMILIES, MAX_LAYERS, Family, ModelConfig
from ttc.engine.local.files.keys import ELSEWHERE, Keys
from ttc.engine.local.files.reward_head import REWARD_ARCHITECTURES, REWARD_KEYS, reward_head
from ttc.engine.local.rope import Dynamic, Linear, Llama3, Rope, Scaling, Yarn, yarn_magnitude
from ttc.errors import ModelFileError

__all__ = ["folder_config", "folder_family"]

_NO_EFFECT = (
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "eos_token_id",
    "id2label",
    "initializer_range",
    "is_llama_config",
    "label2id",
    "max_length",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "return_dict",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
)
"""Keys that training, decoding options, the tokenizer and file formats have for themselves."""
_NEUTRAL: dict[str, Collection[object]] = {
    "add_cross_attention": (False,),
    "attention_bias": (False,),
    "hidden_act": ("silu",),
    "is_decoder": (False, True),
    "is_encoder_decoder": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1.0,),
    "rope_interleaved": (False,),
    "use_mrope": (False,),
    "use_sliding_window": (False,),
}
"""Keys that are supported with these values alone, where the family gives them no other meaning."""


def folder_family(path: Path, values: dict[str, object]) -> Family:
    """The family of a configuration.

    Raises:
        ModelFileError: it is none that is supported.
    """
    name, architectures = values.get("model_type"), values.get("architectures") or []
    family = FAMILIES.get(name) if isinstance(name, str) else None
    known = ", ".join(map(repr, FAMILIES))
    if family is None:
        raise ModelFileError(
            f"{path}: model_type = {name!r} is not supported; {ELSEWHERE}, or take a model of one "
            f"of {known}"
        )
    stem = family.architecture.removesuffix("ForCausalLM")
    supported = [family.architecture, *(stem + end for end in REWARD_ARCHITECTURES)]
    if architectures != [] and architectures not in [[one] for one in supported]:
        raise ModelFileError(
            f"{path}: architectures = {architectures!r} is not supported for {name!r}, only "
            f"{' or '.join(map(repr, supported))}; {ELSEWHERE}"
        )
    return family


def folder_config(path: Path, values: dict[str, object]) -> ModelConfig:
    """The description of the model in a configuration.

    Args:
        path: the file, for messages.
        values: what it holds.

    Raises:
        ModelFileError: another family, or a key that would change the arithmetic.
    """
    family = folder_family(path, values)
    keys = Keys(path, values)
    keys.skip(_NO_EFFECT)
    reward = reward_head(keys, family)
    if reward is not None:
        keys.skip(REWARD_KEYS)
    hidden, num_heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    num_layers = keys.count("num_hidden_layers", most=MAX_LAYERS)
    rope, context = _rope(keys, family)
    unrotated = _unrotated(keys, family, num_layers)
    window, windowed = _window(keys, family, num_layers, unrotated)
    biases = family.biases.union(
        *(linears for flag, linears in family.bias_flags.items() if keys.flag(flag, False))
    )
    neutral = {key: allowed for key, allowed in _NEUTRAL.items() if not keys.was_read(key)}
    keys.expect(neutral)
    try:
        config = ModelConfig(
            num_layers=num_layers,
            hidden=hidden,
            num_heads=num_heads,
            num_kv_heads=keys.count("num_key_value_heads", num_heads),
            head_dim=keys.count("head_dim", family.head_dim or max(1, hidden // num_heads)),
            feed_forward=keys.count("intermediate_size"),
            vocab=keys.count("vocab_size"),
            context=context,
            norm_eps=keys.number("rms_norm_eps", 1e-6),
            rope=rope,
            unrotated=unrotated,
            window=window,
            windowed=windowed,
            biases=biases,
            qk_norm=family.qk_norm,
            tied=keys.flag("tie_word_embeddings", family.tied),
            reward=reward,
        )
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from error
    keys.finish()
    return config


def _unrotated(keys: Keys, family: Family, num_layers: int) -> frozenset[int]:
    """The layers without positions."""
    if family.unrotated_every is None:
        return frozenset()
    every = keys.count("no_rope_layer_interval", family.unrotated_every)
    rotates = keys.items("no_rope_layers", num_layers)  # 1 where a layer does, despite its name
    if rotates is None:
        return frozenset(range(every - 1, num_layers, every))
    return frozenset(layer for layer, rotated in enumerate(rotates) if not rotated)


def _window(
    keys: Keys, family: Family, num_layers: int, unrotated: frozenset[int]
) -> tuple[int | None, frozenset[int]]:
    """The window, and the layers that see it alone."""
    if family.windows == "none":
        return None, frozenset()
    if family.windows == "all":
        if keys.is_null("sliding_window"):
            return None, frozenset()
        return keys.count("sliding_window"), frozenset(range(num_layers))
    first = int(keys.number("max_window_layers", 28, above=-1))
    kinds = keys.items("layer_types", num_layers)
    named = frozenset(i for i, kind in enumerate(kinds or ()) if kind == "sliding_attention")
    if any(kind not in ("full_attention", "sliding_attention") for kind in kinds or ()):
        raise keys.refusal("layer_types")
    if not keys.flag("use_sliding_window", False):
        keys.skip(["sliding_window"])
        if named:
            raise keys.refusal("layer_types")
        return None, frozenset()
    usual = unrotated if family.windows == "unrotated" else frozenset(range(first, num_layers))
    return keys.count("sliding_window"), usual if kinds is None else named


def _rope(keys: Keys, family: Family) -> tuple[Rope, int]:
    """RoPE, and the context that it makes of the declared one."""
    context = keys.count("max_position_embeddings")
    both = [
        (name, value)
        for name in ("rope_scaling", "rope_parameters")
        if (value := keys.value(name)) is not None
    ]
    name, value = both[0] if both else ("rope_parameters", {})
    if len(both) > 1 or not isinstance(value, dict):
        raise keys.refusal(name)
    inner = Keys(keys.path, {f"{name}.{key}": item for key, item in value.items()}, f"{name}.")
    inner.expect({"partial_rotary_factor": (1.0,)})
    base = inner.number(
        "rope_theta", keys.number("rope_theta", family.rope_base, above=1.0), above=1.0
    )
    original = keys.value("original_max_position_embeddings")
    if original is not None:
        original = keys.count("original_max_position_embeddings")
    scaling = _scaling(inner, context, original if isinstance(original, int) else None)
    inner.finish()
    if isinstance(scaling, Yarn | Dynamic) and context <= scaling.original_context:
        context = int(scaling.factor * scaling.original_context)
    return Rope(base=base, scaling=scaling), context


def _scaling(keys: Keys, context: int, outer: int | None) -> Scaling | None:
    """The scaling that the keys name.

    Args:
        keys: those of RoPE.
        context: `max_position_embeddings`.
        outer: `original_max_position_embeddings` beside it, which comes before the inner one.
    """
    kinds = [kind for key in ("rope_type", "type") if (kind := keys.value(key)) is not None]
    kind = kinds[0] if kinds else "default"
    if kind == "default":
        return None
    if kind not in ("linear", "dynamic", "yarn", "llama3"):
        raise keys.refusal("rope_type" if "rope_type" in keys else "type")
    if kind == "linear":
        return Linear(factor=keys.number("factor"))
    if kind == "dynamic":
        return Dynamic(factor=keys.number("factor"), original_context=context)
    original = keys.count("original_max_position_embeddings", context)
    original = original if outer is None else outer
    if kind == "yarn":
        return _yarn(keys, context, original)
    low, high = keys.number("low_freq_factor"), keys.number("high_freq_factor")
    if low >= high:
        raise keys.fault("low_freq_factor", f"not below high_freq_factor = {high:g}")
    return Llama3(
        factor=keys.number("factor"),
        original_context=original,
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(keys: Keys, context: int, original: int) -> Yarn:
    factor = keys.number("factor", context / original)
    weights = [keys.number(key, 0.0, above=-1.0) for key in ("mscale", "mscale_all_dim")]
    magnitude = yarn_magnitude(factor)
    if all(weights):
        magnitude = yarn_magnitude(factor, weights[0]) / yarn_magnitude(factor, weights[1])
    return Yarn(
        factor=factor,
        original_context=original,
        beta_fast=keys.number("beta_fast", 32.0),
        beta_slow=keys.number("beta_slow", 1.0),
        truncate=keys.flag("truncate", True),
        attention_factor=keys.number("attention_factor", magnitude),
    )
