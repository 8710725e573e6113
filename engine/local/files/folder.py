"""Reads model folders as Hugging Face lays them out: `config.json` and safetensors files.

Nothing is ever unpickled. The safetensors library checks a file's header; it is told to map the
file, so tensors stay on disk until rows of them are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from ttc.engine.local.config import LINEARS, ModelConfig
from ttc.engine.local.files.dequantise import FORMATS
from ttc.engine.local.files.digest import sha256_of
from ttc.engine.local.files.folder_config import folder_config
from ttc.engine.local.files.tensor import Tensor
from ttc.engine.local.files.weights import checked
from ttc.errors import ModelFileError

__all__ = ["Folder", "folder_weights", "read_folder"]

_CONFIG, _SINGLE = "config.json", "model.safetensors"
_INDEX = "model.safetensors.index.json"
_MAX_JSON_BYTES = 1 << 26
_ROWS = 1024  # compared at once
_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}

_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_BLOCK = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    **dict(
        zip(
            (
                "self_attn.q_proj",
                "self_attn.k_proj",
                "self_attn.v_proj",
                "self_attn.o_proj",
                "mlp.gate_proj",
                "mlp.up_proj",
                "mlp.down_proj",
            ),
            LINEARS,
            strict=True,
        )
    ),
}
"""What tensors of a block are called here, and in GGUF files."""
_IN_BLOCK = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_BUFFER = "rotary_emb.inv_freq"
"""The end of names of tensors that old checkpoints hold and that follow from the configuration."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """An open model folder."""

    path: Path
    config: ModelConfig
    tensors: Mapping[str, Tensor]
    """By their own names, mapped."""
    files: tuple[Path, ...]
    """All files that decide results."""

    def fingerprint(self) -> str:
        """The SHA-256 of the configuration and all weights, in hex."""
        return sha256_of(self.files)


def read_folder(path: Path) -> Folder:
    """Opens a folder.

    Raises:
        ModelFileError: it is incomplete, damaged or of a kind that is not supported.
    """
    if (path / "adapter_config.json").exists():
        raise ModelFileError(
            f"{path} holds an adapter (LoRA), which is not supported; merge it into its model first"
        )
    config = folder_config(path / _CONFIG, _json(path / _CONFIG))
    tensors: dict[str, Tensor] = {}
    files = _files(path)
    for file in files:
        for name, tensor in _tensors(file).items():
            if name in tensors:
                raise ModelFileError(f"{file}: the tensor {name!r} is in two files")
            tensors[name] = tensor
    return Folder(path=path, config=config, tensors=tensors, files=(path / _CONFIG, *files))


def folder_weights(folder: Folder) -> dict[str, Tensor]:
    """The tensors of a folder's model under the names of GGUF files, checked.

    Raises:
        ModelFileError: one is missing, superfluous or misshapen.
    """
    found = {_name(own): tensor for own, tensor in folder.tensors.items()}
    labels = {_name(own): own for own in folder.tensors}
    if folder.config.reward is not None:
        found.pop("output.weight", None)  # some reward models keep the head that they grew out of
    elif folder.config.tied and (head := found.pop("output.weight", None)) is not None:
        embedding = found.get("token_embd.weight")
        if embedding is None or not _is_equal(embedding, head):
            raise ModelFileError(
                f"{folder.path}: tie_word_embeddings is true, and 'lm_head.weight' is not "
                "'model.embed_tokens.weight'; set the key to false if the head is the model's own"
            )
    return checked(folder.path, found, folder.config, lambda name: labels.get(name) or _own(name))


def _is_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same bytes, compared a few rows at a time."""
    return (first.shape, first.format) == (second.shape, second.format) and all(
        np.array_equal(first.raw[start : start + _ROWS], second.raw[start : start + _ROWS])
        for start in range(0, len(first.raw), _ROWS)
    )


def _name(own: str) -> str:
    """The name in GGUF files of a tensor here; its own, where there is none."""
    found = _IN_BLOCK.fullmatch(own)
    if found is None or found[2] not in _BLOCK:
        return _TOP.get(own, own)
    return f"blk.{found[1]}.{_BLOCK[found[2]]}.{found[3]}"


def _own(name: str) -> str:
    """The name here of a tensor in GGUF files."""
    for own, other in _TOP.items():
        if other == name:
            return own
    if not name.startswith("blk."):
        return name
    _, layer, part, kind = name.split(".")
    own = next(own for own, other in _BLOCK.items() if other == part)
    return f"model.layers.{layer}.{own}.{kind}"


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise ModelFileError(f"{path} is larger than any such file; fetch it again")
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} holds no JSON object; fetch it again")
    return value


def _files(path: Path) -> list[Path]:
    """The files with weights: one, or those that the index names."""
    if (path / _SINGLE).exists():
        return [path / _SINGLE]
    if not (path / _INDEX).exists():
        pickled = sorted(p.name for end in ("bin", "pt", "pth") for p in path.glob(f"*.{end}"))
        if pickled:
            raise ModelFileError(
                f"{path} has its weights in {pickled[0]}, which can run code when it is opened and "
                f"is never read; convert them to {_SINGLE}"
            )
        raise ModelFileError(f"{path} has neither {_SINGLE} nor {_INDEX}; fetch the model again")
    index = _json(path / _INDEX).get("weight_map")
    names = set(index.values()) if isinstance(index, dict) else {None}
    plain = sorted(name for name in names if isinstance(name, str) and Path(name).name == name)
    if len(plain) != len(names) or not plain:
        raise ModelFileError(f"{path / _INDEX}: weight_map does not name files of this folder")
    return [path / name for name in plain]


def _tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, mapped."""
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}; fetch it again") from error
    tensors = {}
    for name, tensor in found.items():
        if name.endswith(_BUFFER):
            continue
        kind = _TYPES.get(tensor.dtype)
        if kind is None or tensor.dim() == 0 or tensor.numel() == 0:
            raise ModelFileError(
                f"{path}: the tensor {name!r} has the type {tensor.dtype} and the shape "
                f"{tuple(tensor.shape)}, which is not supported; use a model of "
                f"{', '.join(_TYPES.values())} tensors"
            )
        raw = tensor.contiguous().view(len(tensor), -1).view(torch.uint8).numpy()
        tensors[name] = Tensor(shape=tuple(tensor.shape), format=FORMATS[kind], raw=raw)
    return tensors
