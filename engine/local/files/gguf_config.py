"""The model in a GGUF file: its description, from its keys, and its tensors.

Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), and for what a file leaves unsaid the
defaults of llama.cpp, which wrote most of them.
"""

from __future__ import annotations

from ttc.engine.local.config import FAMILIES, LINEARS, MAX_LAYERS, Family, ModelConfig
from ttc.engine.local.files.gguf import GGUFFile
from ttc.engine.local.files.keys import ELSEWHERE, Keys
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.files.weights import checked, in_halves
from ttc.engine.local.rope import Divided, Linear, Rope, Scaling, Yarn, yarn_magnitude
from ttc.errors import ModelFileError

__all__ = ["ROPE_DIVISORS", "gguf_config", "gguf_family", "gguf_weights"]

ROPE_DIVISORS = "rope_freqs.weight"
"""The tensor that divides RoPE's frequencies, in files of Llama 3.1 and later."""

_NEUTRAL: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.scale": (0.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "logit_scale": (0.0, 1.0),
    "tensor_data_layout": ("Meta AI original pth",),
    "rope.scaling.yarn_ext_factor": (1.0, -1.0),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "use_parallel_residual": (False,),
}
"""Keys that are supported with these values alone."""


def gguf_family(file: GGUFFile) -> Family:
    """The family of a file's model.

    Raises:
        ModelFileError: it is none that is supported, or the file is no model.
    """
    kind = file.metadata.get("general.type", "model")
    if kind != "model" or "adapter.type" in file.metadata:
        raise ModelFileError(
            f"{file.path} holds no whole model (general.type = {kind!r}); adapters are not "
            "supported: merge it into its model first"
        )
    name = file.metadata.get("general.architecture")
    for family in FAMILIES.values():
        if family.gguf == name and name is not None:
            return family
    known = ", ".join(repr(f.gguf) for f in FAMILIES.values() if f.gguf)
    raise ModelFileError(
        f"{file.path}: the architecture {name!r} is not supported; {ELSEWHERE}, or take a file of "
        f"one of {known}"
    )


def gguf_config(file: GGUFFile) -> ModelConfig:
    """The description of the model in a file.

    Raises:
        ModelFileError: another architecture, or a key that would change the arithmetic.
    """
    family = gguf_family(file)
    keys = Keys(file.path, file.metadata, f"{family.gguf}.")
    hidden, num_heads = keys.count("embedding_length"), keys.count("attention.head_count")
    head_dim = keys.count("attention.key_length", max(1, hidden // num_heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.count(key, head_dim) != head_dim:
            raise keys.refusal(key)
    num_layers = keys.count("block_count", most=MAX_LAYERS)
    rope, context = _rope(file, keys, head_dim)
    has_window = keys.value("attention.sliding_window") not in (None, 0)
    keys.expect(_NEUTRAL)
    try:
        config = ModelConfig(
            num_layers=num_layers,
            hidden=hidden,
            num_heads=num_heads,
            num_kv_heads=keys.count("attention.head_count_kv", num_heads),
            head_dim=head_dim,
            feed_forward=keys.count("feed_forward_length"),
            vocab=keys.count("vocab_size", _num_tokens(file)),
            context=context,
            norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope=rope,
            unrotated=_unrotated(family, num_layers),
            window=keys.count("attention.sliding_window") if has_window else None,
            windowed=frozenset(range(num_layers if has_window else 0)),
            biases=_biases(family, file),
            qk_norm=family.qk_norm,
            tied="output.weight" not in file.tensors,
        )
    except ValueError as error:
        raise ModelFileError(f"{file.path}: {error}") from error
    keys.finish()
    return config


def gguf_weights(file: GGUFFile, config: ModelConfig) -> dict[str, Tensor]:
    """The tensors of a file's model, checked.

    Raises:
        ModelFileError: one is missing, superfluous or misshapen.
    """
    found = {name: tensor for name, tensor in file.tensors.items() if name != ROPE_DIVISORS}
    weights = checked(file.path, found, config)
    return in_halves(weights, config) if gguf_family(file).interleaved else weights


def _num_tokens(file: GGUFFile) -> int | None:
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    return len(tokens) if isinstance(tokens, list) else None


def _unrotated(family: Family, num_layers: int) -> frozenset[int]:
    every = family.unrotated_every
    return frozenset(range(every - 1, num_layers, every)) if every else frozenset()


def _biases(family: Family, file: GGUFFile) -> frozenset[str]:
    """Linear layers with a bias: those of the family, and where it has a choice those in the file.

    Any other bias is a tensor without use, which the weights refuse.
    """
    optional = frozenset[str]().union(*family.bias_flags.values())
    present = {name for name in LINEARS if f"blk.0.{name}.bias" in file.tensors}
    return family.biases | (optional & present)


def _rope(file: GGUFFile, keys: Keys, head_dim: int) -> tuple[Rope, int]:
    """RoPE, and the context that it makes of the declared one."""
    context = keys.count("context_length")
    base = keys.number("rope.freq_base", 10_000.0, above=1.0)
    keys.skip(["rope.scaling.finetuned"])
    scaling = _scaling(keys, context)
    if ROPE_DIVISORS in file.tensors:
        divisors = file.tensors[ROPE_DIVISORS][:]
        if scaling is not None:
            raise ModelFileError(
                f"{file.path}: {ROPE_DIVISORS!r} together with rope.scaling is not supported"
            )
        if len(divisors) != head_dim // 2:
            raise ModelFileError(
                f"{file.path}: {ROPE_DIVISORS!r} has {len(divisors)} numbers, not {head_dim // 2}"
            )
        if divisors.dim() != 1 or not bool((divisors > 0).all()):
            raise ModelFileError(f"{file.path}: {ROPE_DIVISORS!r} holds no positive numbers")
        scaling = Divided(divisors=tuple(divisors.tolist()))
    if isinstance(scaling, Yarn) and context <= scaling.original_context:
        context = int(scaling.factor * scaling.original_context)
    return Rope(base=base, scaling=scaling), context


def _scaling(keys: Keys, context: int) -> Scaling | None:
    """The scaling that the keys name; a factor without a kind is linear, as llama.cpp has it."""
    kind = keys.value("rope.scaling.type")
    legacy = keys.number("rope.scale_linear", 1.0)
    factor = keys.number("rope.scaling.factor", legacy, above=-1.0) or 1.0  # 0 stands for none
    original = keys.count("rope.scaling.original_context_length", context)
    if kind == "yarn":
        magnitude = yarn_magnitude(factor)
        for key in ("rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"):
            magnitude *= keys.number(key, 1.0)
        return Yarn(
            factor=factor,
            original_context=original,
            beta_fast=keys.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=keys.number("rope.scaling.yarn_beta_slow", 1.0),
            attention_factor=magnitude,
        )
    keys.expect({"rope.scaling.attn_factor": (1.0,), "rope.scaling.yarn_attn_factor": (1.0,)})
    if kind not in (None, "linear", "none"):
        raise keys.refusal("rope.scaling.type")
    return None if kind == "none" or factor == 1.0 else Linear(factor=factor)
