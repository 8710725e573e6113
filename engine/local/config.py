"""What a model is made of: one description for every family, and what sets the families apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ttc.costs import Costs, decoder_costs
from ttc.engine.local.rope import Rope

__all__ = ["FAMILIES", "LINEARS", "MAX_LAYERS", "Family", "ModelConfig", "RewardHead"]

MAX_LAYERS = 1024
"""More than any model has; a greater number is a damaged file."""

LINEARS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
"""The linear layers of a block."""
_QKV = frozenset(LINEARS[:3])
_ATTENTION = frozenset(LINEARS[:4])
_FEED_FORWARD = frozenset(LINEARS[4:])
_NONE: frozenset[int] = frozenset()
_PLAIN = Rope()


@dataclass(frozen=True, kw_only=True)
class RewardHead:
    """A head that gives rewards of what was read, in place of the next token's logits."""

    labels: tuple[str, ...]
    """What its outputs are called."""
    layers: tuple[str, ...]
    """The names of its linear layers, as the folder has them, with a ReLU between each two."""
    has_bias: bool = True

    def width(self, hidden: int) -> int:
        """The outputs of all its layers, each of `hidden` inputs."""
        return (len(self.layers) - 1) * hidden + len(self.labels)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A decoder of the Llama kind: RMS norms, rotary positions, grouped queries, a SwiGLU.

    Raises:
        ValueError: the sizes do not fit one another.
    """

    num_layers: int
    hidden: int
    """Width of the residual stream."""
    num_heads: int
    num_kv_heads: int
    """Key and value heads; each serves `num_heads / num_kv_heads` query heads."""
    head_dim: int
    feed_forward: int
    vocab: int
    context: int
    """The most tokens that the model is made for."""
    norm_eps: float = 1e-5
    rope: Rope = _PLAIN
    unrotated: frozenset[int] = _NONE
    """Layers whose queries and keys know no position."""
    window: int | None = None
    """How many positions the windowed layers see: a token's own, and those just before it."""
    windowed: frozenset[int] = _NONE
    """Layers that see the window alone."""
    biases: frozenset[str] = frozenset()
    """Which of `LINEARS` add a bias."""
    qk_norm: bool = False
    """Whether each head of queries and keys is normalised before it is turned."""
    tied: bool = True
    """Whether the embedding is the output head, too."""
    reward: RewardHead | None = None
    """The head of a reward model, which has no other."""

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_heads} heads cannot share {self.num_kv_heads} keys evenly")
        if self.head_dim % 2 or self.head_dim < 4:
            raise ValueError(
                f"heads of size {self.head_dim} cannot be turned: it is no even number from 4 on"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.num_heads // self.num_kv_heads

    def costs(self, kv_number_bytes: int) -> Costs:
        """What it spends on each token, with so many bytes for each number of keys and values."""
        return decoder_costs(
            windows=[self.window_of(layer) for layer in range(self.num_layers)],
            hidden=self.hidden,
            queries=self.num_heads * self.head_dim,
            keys=self.num_kv_heads * self.head_dim,
            feed_forward=self.feed_forward,
            vocab=self.vocab if self.reward is None else self.reward.width(self.hidden),
            kv_number_bytes=kv_number_bytes,
        )

    def window_of(self, layer: int) -> int | None:
        """How many positions a layer sees, or `None` for all."""
        return self.window if layer in self.windowed else None


@dataclass(frozen=True, kw_only=True)
class Family:
    """What sets a family apart from Llama."""

    gguf: str | None
    """`general.architecture` of its GGUF files."""
    architecture: str
    """`architectures` of its configuration."""
    interleaved: bool = False
    """Whether GGUF files have the rows of q and k reordered for a rotation of neighbours.

    llama.cpp's converter does that to every family whose rotation it runs that way
    (convert_hf_to_gguf.py, `LlamaModel.permute`).
    """
    qk_norm: bool = False
    biases: frozenset[str] = frozenset()
    """Linear layers that always have a bias."""
    bias_flags: Mapping[str, frozenset[str]]
    """Keys of the configuration that give biases to linear layers."""
    head_dim: int | None = None
    """The head size where the configuration is silent; else `hidden / num_heads`."""
    rope_base: float = 10_000.0
    tied: bool = False
    """Whether embedding and head are one where the configuration is silent."""
    unrotated_every: int | None = None
    """Every how many layers one knows no position, where the configuration is silent."""
    windows: Literal["none", "all", "upper", "unrotated"] = "none"
    """Which layers see a window where the configuration names one without naming layers."""


_FLAGS = {"attention_bias": _ATTENTION, "mlp_bias": _FEED_FORWARD}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(
        gguf="llama", architecture="LlamaForCausalLM", interleaved=True, bias_flags=_FLAGS
    ),
    "mistral": Family(gguf=None, architecture="MistralForCausalLM", bias_flags={}, windows="all"),
    "qwen2": Family(
        gguf="qwen2", architecture="Qwen2ForCausalLM", biases=_QKV, bias_flags={}, windows="upper"
    ),
    "qwen3": Family(
        gguf="qwen3",
        architecture="Qwen3ForCausalLM",
        qk_norm=True,
        bias_flags={"attention_bias": _ATTENTION},
        head_dim=128,
        windows="upper",
    ),
    "smollm3": Family(
        gguf="smollm3",
        architecture="SmolLM3ForCausalLM",
        interleaved=True,
        bias_flags=_FLAGS,
        rope_base=2_000_000.0,
        tied=True,
        unrotated_every=4,
        windows="unrotated",
    ),
}
"""By `model_type` of their configuration. Mistral's GGUF files say that they are `llama`."""
