"""The tensors that a model is made of: their names, their shapes, and the order of their rows.

Names are those of GGUF files; a folder's are translated (`folder`). Tensors stay in their files
until rows of them are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ttc.engine.local.config import LINEARS, ModelConfig
from ttc.engine.local.files.tensor import Tensor
from ttc.errors import ModelFileError

__all__ = ["checked", "expected_shapes", "in_halves"]


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model, by its name."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden = config.hidden
    linears = dict(
        zip(
            LINEARS,
            (
                (queries, hidden),
                (keys, hidden),
                (keys, hidden),
                (hidden, queries),
                (config.feed_forward, hidden),
                (config.feed_forward, hidden),
                (hidden, config.feed_forward),
            ),
            strict=True,
        )
    )
    block: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "ffn_norm.weight": (hidden,),
        **{f"{name}.weight": shape for name, shape in linears.items()},
        **{f"{name}.bias": linears[name][:1] for name in config.biases},
    }
    if config.qk_norm:
        block |= {f"attn_{part}_norm.weight": (config.head_dim,) for part in "qk"}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (config.vocab, hidden),
        "output_norm.weight": (hidden,),
    }
    if config.reward is not None:
        *inner, last = config.reward.layers
        sizes = {**dict.fromkeys(inner, hidden), last: len(config.reward.labels)}
        shapes |= {f"{name}.weight": (size, hidden) for name, size in sizes.items()}
        if config.reward.has_bias:
            shapes |= {f"{name}.bias": (size,) for name, size in sizes.items()}
    elif not config.tied:
        shapes["output.weight"] = (config.vocab, hidden)
    for layer in range(config.num_layers):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return shapes


def checked(
    path: Path,
    tensors: Mapping[str, Tensor],
    config: ModelConfig,
    label: Callable[[str], str] = lambda name: name,
) -> dict[str, Tensor]:
    """The tensors that a model needs, all of them there and no other.

    Args:
        path: their file or folder, for messages.
        tensors: what it holds.
        config: the model.
        label: what a tensor is called there.

    Raises:
        ModelFileError: a tensor is missing, has another shape, or is one that the model has no use
            for: passed over, it would change results without a word.
    """
    shapes = expected_shapes(config)
    for name in tensors:
        if name not in shapes:
            raise ModelFileError(
                f"{path}: the tensor {label(name)!r} is not supported: the model has no use for it"
            )
    for name, shape in shapes.items():
        if name not in tensors:
            raise ModelFileError(
                f"{path}: the tensor {label(name)!r} is missing; fetch the model again"
            )
        if (found := tensors[name].shape) != shape:
            raise ModelFileError(
                f"{path}: the tensor {label(name)!r} has the shape {found}, not {shape}"
            )
    return {name: tensors[name] for name in shapes}


def in_halves(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Queries and keys, weights and biases, in the order that a rotation by halves takes.

    In the file, row i of a head's first half and of its second are neighbours. The order in the
    file of a head of 8 is 0 4 1 5 2 6 3 7.
    """
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}

    def ordered(name: str, tensor: Tensor) -> Tensor:
        count = heads.get(name.split(".")[-2])
        if count is None:
            return tensor
        places = np.arange(count * config.head_dim).reshape(count, config.head_dim // 2, 2)
        return replace(tensor, places=places.swapaxes(1, 2).flatten())

    return {name: ordered(name, tensor) for name, tensor in tensors.items()}
