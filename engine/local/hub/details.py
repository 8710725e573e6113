"""What a model is, by its headers alone: family, size, quantisation, context and licence.

Reads the metadata of a GGUF file, or `config.json`, the headers of safetensors and the front matter
of the model's card in a folder. No weights are read.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttc.engine.local.hub.files import CONFIG, INDEX, SINGLE, folder_files
from ttc.errors import ModelFileError

__all__ = ["FILE_TYPES", "Details", "read_details"]

_ORDERED = (
    "F32 F16 Q4_0 Q4_1 ? ? ? Q8_0 Q5_0 Q5_1 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M "
    "Q6_K IQ2_XXS IQ2_XS Q2_K_S IQ3_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ3_M IQ2_S IQ2_M IQ4_XS IQ1_M "
    "BF16 ? ? ? TQ1_0 TQ2_0"
)
FILE_TYPES = {i: name for i, name in enumerate(_ORDERED.split()) if name != "?"}
"""The quantisations that GGUF numbers in `general.file_type`."""

_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_LICENCE = re.compile(r"^license:[ \t]*['\"]?([^'\"\s]+)", re.MULTILINE)
_CARD_BYTES = 1 << 16
_MOST_HEADER_BYTES = 1 << 27
_DAMAGE = (OSError, ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Details:
    """What a model is; `None` is unknown."""

    family: str | None = None
    parameters: str | None = None
    """As in `135M` or `7.6B`."""
    quantisation: str | None = None
    context: int | None = None
    """The most tokens of a prompt and what follows it."""
    licence: str | None = None


def read_details(path: Path) -> Details:
    """What the model at a path is: a GGUF file, the first part of one, or a folder.

    Raises:
        ModelFileError: it is damaged, incomplete or not supported.
    """
    if not path.is_dir():
        return _of_gguf(path)
    try:
        return _of_folder(path)
    except _DAMAGE as error:
        raise ModelFileError(f"{path} is damaged ({error}); fetch it again") from error


def _of_gguf(path: Path) -> Details:
    from ttc.engine.local.files.gguf import read_gguf  # it needs torch, which takes seconds

    file = read_gguf(path)
    family, kind = _text(file.metadata, "general.architecture"), file.metadata.get
    context = kind(f"{family}.context_length")
    number = kind("general.file_type")
    count = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    return Details(
        family=family,
        parameters=_text(file.metadata, "general.size_label") or _short(count),
        quantisation=FILE_TYPES.get(number) if isinstance(number, int) else None,
        context=context if isinstance(context, int) else None,
        licence=_text(file.metadata, "general.license"),
    )


def _of_folder(path: Path) -> Details:
    config: dict[str, Any] = json.loads((path / CONFIG).read_bytes())
    quantised = config.get("quantization_config") or {}
    dtype = _text(config, "dtype") or _text(config, "torch_dtype")
    context = config.get("max_position_embeddings")
    count = _num_values(path)
    return Details(
        family=_text(config, "model_type"),
        parameters=None if quantised else _short(count),  # packed values are not parameters
        quantisation=_text(quantised, "quant_method") or _DTYPES.get(dtype or "", dtype),
        context=context if isinstance(context, int) else None,
        licence=_licence(path / "README.md"),
    )


def _text(values: Mapping[str, object], key: str) -> str | None:
    value = values.get(key)
    return value if isinstance(value, str) and value else None


def _short(count: int) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.3g}M"


def _licence(card: Path) -> str | None:
    """What the front matter of a model's card says, where there is one."""
    if not card.is_file():
        return None
    with card.open("rb") as file:
        text = file.read(_CARD_BYTES).decode(errors="replace").replace("\r\n", "\n")
    matter = text[4:].partition("\n---")[0] if text.startswith("---\n") else ""
    found = _LICENCE.search(matter)
    return found[1] if found else None


def _num_values(folder: Path) -> int:
    """The values in all safetensors of a folder."""
    names = {n for n in folder_files(os.listdir(folder), str(folder)) if n.endswith("safetensors")}
    if SINGLE not in names:
        named = set(json.loads((folder / INDEX).read_bytes())["weight_map"].values())
        if missing := named - names:
            raise ModelFileError(f"{folder} lacks {min(missing)}; fetch it again")
    return sum(_values_of(folder / name) for name in names)


def _values_of(path: Path) -> int:
    """The values in one file, whose header must account for every byte."""
    with path.open("rb") as file:
        (num_bytes,) = struct.unpack("<Q", file.read(8))
        if num_bytes > _MOST_HEADER_BYTES:
            raise ValueError(f"the header of {path.name} would have {num_bytes:,} bytes")
        header = json.loads(file.read(num_bytes))
    header.pop("__metadata__", None)
    end = 8 + num_bytes + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if end != path.stat().st_size:
        raise ValueError(f"{path.name} has {path.stat().st_size:,} bytes, not {end:,}")
    return sum(math.prod(entry["shape"]) for entry in header.values())
