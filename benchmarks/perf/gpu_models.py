"""Models of known shapes and random weights, for `gpu.py`: no file is needed to time a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ttc.engine.local.config import ModelConfig
from ttc.engine.local.files.loader import Rows
from ttc.engine.local.files.weights import expected_shapes

BLOCK_ROWS = 256


@dataclass(frozen=True)
class Shapes:
    """The sizes of a model."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocab: int

    @property
    def matrices(self) -> tuple[tuple[str, int, int], ...]:
        """Name, outputs and columns of what a layer multiplies with."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            ("qkv", queries + 2 * keys, self.hidden),
            ("output", self.hidden, queries),
            ("gate_up", 2 * self.feed_forward, self.hidden),
            ("down", self.hidden, self.feed_forward),
        )

    def config(self, layers: int) -> ModelConfig:
        """The engine's description, of some layers."""
        return ModelConfig(
            num_layers=layers,
            hidden=self.hidden,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            feed_forward=self.feed_forward,
            vocab=self.vocab,
            context=32768,
        )

    def transformers_model(self, transformers: Any, device: torch.device) -> Any:
        """A random Llama of transformers."""
        config = transformers.LlamaConfig(
            hidden_size=self.hidden,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            vocab_size=self.vocab,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
        )
        with torch.device(device):
            return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


SHAPES = (
    Shapes("qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 151936),
    Shapes("qwen2.5-1.5b", 28, 1536, 12, 2, 128, 8960, 151936),
    Shapes("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256),
)
TINY = Shapes("tiny", 2, 48, 6, 2, 8, 64, 261)


class _Repeated:
    """A tensor whose rows are a few random ones, again and again: made as fast as it is copied."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = torch.Size(shape)
        generator = torch.Generator().manual_seed(shape[-1])
        rows = min(shape[0], BLOCK_ROWS)
        if len(shape) == 1:
            self._rows = torch.ones(rows)
        else:
            self._rows = torch.randn(rows, shape[1], generator=generator) * shape[1] ** -0.5

    def __getitem__(self, where: slice | torch.Tensor) -> torch.Tensor:
        if isinstance(where, slice):
            where = torch.arange(*where.indices(self.shape[0]))
        return self._rows[where % len(self._rows)]


def random_weights(config: ModelConfig) -> Mapping[str, Rows]:
    """Random weights of a model, which take next to no memory."""
    return {name: _Repeated(shape) for name, shape in expected_shapes(config).items()}
