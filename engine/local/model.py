"""The forward pass of every supported family, a decoder after Llama (arXiv 2302.13971).

What sets the families apart is data: see `config`. Every row of a step is a token at a position of
a sequence; decoding and prefill differ in nothing but how many rows a sequence has. Each result
depends on its own sequence alone, to the bit: see `linear` and `attention`; norms, rotations and
activations work row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F

from ttc.costs import Costs
from ttc.engine.local.attention import CHUNK, Attention
from ttc.engine.local.config import ModelConfig, RewardHead
from ttc.engine.local.files.loader import Loader, Rows, Weights, vector
from ttc.engine.local.kv import KVPool
from ttc.engine.local.linear import Linear, LinearFactory
from ttc.engine.local.logprobs import token_logprobs
from ttc.engine.local.plan import Plan, Span
from ttc.engine.local.rotation import Rotation
from ttc.engine.local.sample import Draw, Drawn, draw_tokens

__all__ = ["Llama", "Model", "reward_layers", "stacked_bias", "stacked_qk_norm"]


class Model(Protocol):
    """A model, ready to compute."""

    config: ModelConfig
    costs: Costs
    """What it spends on each token."""
    numerics: str
    """The types and kernels that decide the bits of a result."""
    bytes_per_weight: float
    """Of the linear layers, scales included; below two, their products are of bytes."""

    def make_pool(self, num_pages: int) -> KVPool:
        """Memory for keys and values, as the model reads them."""

    def forward(
        self, token_ids: torch.Tensor, plan: Plan, pool: KVPool, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Computes a step; see `Llama.forward`."""

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        """What the head reads of rows of the step that ran last: (n, hidden) float32."""

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws a token for each row; see `sample.draw_tokens`."""

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """The log probabilities of some tokens of each row; see `logprobs.token_logprobs`."""


@dataclass(frozen=True)
class _Layer:
    attention_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    """(H + K, head_dim)"""
    is_rotated: bool
    window: int | None
    output: Linear
    feed_forward_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Llama:
    """A model, ready to compute.

    Args:
        config: what it is made of.
        weights: its tensors. The rows of the embedding are read from them when they are needed; all
            else is read once.
        dtype: the type of weights and products; everything else is float32.
        progress: is told how many of how many layers are loaded.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        dtype: torch.dtype,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.config, self.costs = config, config.costs(kv_number_bytes=4)
        make = LinearFactory(dtype)
        self._embedding = weights["token_embd.weight"]  # (vocab, hidden)
        self._norm = vector(weights["output_norm.weight"])
        # The head is the largest matrix, so it comes first, while there is nothing else yet.
        with Loader(dtype) as loader:
            if config.reward is not None:
                self._head = reward_layers(config.reward, weights, dtype)
            else:
                head = self._embedding if config.tied else weights["output.weight"]
                self._head = make(loader.stacked([head]))
        self._layers: list[_Layer] = []
        with Loader(dtype) as loader:
            for i in range(config.num_layers):
                progress(i, config.num_layers)
                start = f"blk.{i}."
                block = {
                    n.removeprefix(start): r for n, r in weights.items() if n.startswith(start)
                }
                self._layers.append(_layer(config, i, block, lambda p: make(loader.stacked(p))))
        progress(config.num_layers, config.num_layers)
        self._windows = {layer.window for layer in self._layers}
        self._group_rows = Attention.probe(
            num_kv_heads=config.num_kv_heads, group=config.group, head_dim=config.head_dim
        )
        self._rotation = Rotation(config.rope, config.head_dim)
        self._residual = torch.empty(0, config.hidden)  # of the step that ran last
        self.numerics = (
            f"{str(dtype).removeprefix('torch.')} linear={'+'.join(make.names)} "
            f"attention={CHUNK}/{self._group_rows} threads={torch.get_num_threads()}"
        )
        """What decides the bits of a result: types, kernels, and PyTorch's threads."""
        self.bytes_per_weight = float(dtype.itemsize)

    def attention(self, spans: Sequence[Span], window: int | None = None) -> Attention:
        """The plan of one step's attention, in layers of one window."""
        return Attention(
            spans,
            num_kv_heads=self.config.num_kv_heads,
            group=self.config.group,
            head_dim=self.config.head_dim,
            group_rows=self._group_rows,
            window=window,
        )

    def make_pool(self, num_pages: int) -> KVPool:
        """Memory for keys and values, in float32."""
        return KVPool(self.config, num_pages)

    def forward(
        self, token_ids: torch.Tensor, plan: Plan, pool: KVPool, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Computes a step: writes its keys and values, and returns logits, or rewards.

        Args:
            token_ids: (rows,) the tokens of all spans, one after another.
            plan: where they stand.
            pool: keys and values, those of earlier positions computed.
            wanted: (n,) the rows whose logits are wanted.

        Returns:
            (n, vocab), or (n, labels) of a reward model; they may be overwritten by the next step
        """
        config = self.config
        plans = {window: self.attention(plan.spans, window) for window in self._windows}
        turn = self._rotation(next(iter(plans.values())).positions)
        scale = config.head_dim**-0.5
        num_queries, num_turned = config.num_heads, config.num_heads + config.num_kv_heads
        x = self._embedding[token_ids]  # (rows, hidden)
        for layer, keys, values in zip(self._layers, pool.keys, pool.values, strict=True):
            attention = plans[layer.window]
            qkv = layer.qkv(self._normalise(x, layer.attention_norm))
            heads = qkv.view(len(x), -1, config.head_dim)  # (rows, H + 2 K, head_dim)
            turned = heads[:, :num_turned]
            if layer.qk_norm is not None:
                turned = F.rms_norm(turned, (config.head_dim,), None, config.norm_eps)
                turned = turned * layer.qk_norm
            if layer.is_rotated:
                turned = turn(turned)
            attention.write(turned[:, num_queries:], heads[:, num_turned:], keys, values)
            x = x + layer.output(attention(turned[:, :num_queries] * scale, keys, values))
            gate, up = layer.gate_up(self._normalise(x, layer.feed_forward_norm)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        self._residual = x
        return self._head(self._normalise(x[wanted], self._norm))

    def hidden(self, rows: torch.Tensor) -> torch.Tensor:
        """What the head reads of rows of the step that ran last: (n, hidden) float32."""
        return self._normalise(self._residual[rows], self._norm).float()

    def draw(self, logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
        """Draws a token for each row."""
        return draw_tokens(logits, draws)

    def logprobs(
        self, logits: torch.Tensor, wanted: Sequence[Sequence[int]]
    ) -> list[dict[int, float] | None]:
        """The log probabilities of some tokens of each row; `None` of one that is not finite."""
        return token_logprobs(logits, wanted)

    def _normalise(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.config.norm_eps)


def reward_layers(head: RewardHead, weights: Weights, dtype: torch.dtype) -> Linear:
    """The layers of a reward head, one after another."""
    make = LinearFactory(dtype)
    layers = []
    for name in head.layers:
        bias = vector(weights[f"{name}.bias"]) if head.has_bias else torch.zeros(())
        layers.append((make(vector(weights[f"{name}.weight"])), bias))

    def rewards(x: torch.Tensor) -> torch.Tensor:
        (first, bias), *others = layers
        x = first(x) + bias
        for layer, bias in others:
            x = layer(F.relu(x)) + bias
        return x

    return rewards


def stacked_bias(config: ModelConfig, block: Weights, names: Sequence[str]) -> torch.Tensor | None:
    """The biases of linear layers that are stacked, zeros where one has none."""
    if config.biases.isdisjoint(names):
        return None
    return torch.cat(
        [
            vector(block[f"{name}.bias"])
            if name in config.biases
            else torch.zeros(block[f"{name}.weight"].shape[0])
            for name in names
        ]
    )


def stacked_qk_norm(config: ModelConfig, block: Weights) -> torch.Tensor | None:
    """The norms of queries and keys, head by head, (H + K, head_dim)."""
    if not config.qk_norm:
        return None
    norms = [(config.num_heads, "attn_q_norm"), (config.num_kv_heads, "attn_k_norm")]
    return torch.cat([vector(block[f"{name}.weight"]).expand(n, -1) for n, name in norms])


def _layer(
    config: ModelConfig, layer: int, block: Weights, make: Callable[[Sequence[Rows]], Linear]
) -> _Layer:
    def linear(*names: str) -> Linear:
        matrices = [block[f"{name}.weight"] for name in names]
        product, bias = make(matrices), stacked_bias(config, block, names)
        return product if bias is None else lambda x: product(x).add_(bias)

    return _Layer(
        attention_norm=vector(block["attn_norm.weight"]),
        qkv=linear("attn_q", "attn_k", "attn_v"),
        qk_norm=stacked_qk_norm(config, block),
        is_rotated=layer not in config.unrotated,
        window=config.window_of(layer),
        output=linear("attn_output"),
        feed_forward_norm=vector(block["ffn_norm.weight"]),
        gate_up=linear("ffn_gate", "ffn_up"),
        down=linear("ffn_down"),
    )
