"""Reads `tokenizer.model`, the file that SentencePiece writes, as the keys of a GGUF file.

Source: google/sentencepiece, sentencepiece_model.proto; the wire format is Protocol Buffers'. Every
length in it is compared with the bytes that are left. Byte-pair models alone are supported.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ttc.engine.local.files.gguf import GGUFFile, Value
from ttc.errors import ModelFileError

__all__ = ["AddedPiece", "read_sentencepiece"]

_MAX_BYTES = 1 << 26
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _UNKNOWN_ID, _BOS_ID, _EOS_ID = 3, 40, 41, 42
_CHARSMAP, _PREFIX, _SQUEEZE = 2, 3, 4
_KINDS = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = range(1, 5)

_Fields = dict[int, list[int | bytes]]


class AddedPiece(NamedTuple):
    """A token that another file adds to the pieces, or says more of."""

    id: int
    text: str
    is_control: bool


def read_sentencepiece(path: Path, added: Sequence[AddedPiece] = ()) -> GGUFFile:
    """The vocabulary in a file, under the keys that `gguf_vocabulary` reads.

    Raises:
        ModelFileError: it cannot be read, is damaged, or is no byte-pair model.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ModelFileError(f"{path} is larger than any such file; fetch it again")
        return GGUFFile(path=path, metadata=_metadata(path, path.read_bytes(), added), tensors={})
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise ModelFileError(f"{path} cannot be read: {error}; fetch it again") from error


def _metadata(path: Path, data: bytes, added: Sequence[AddedPiece]) -> Mapping[str, Value]:
    model = _fields(data)
    trainer, normalizer = (
        _fields(_bytes(model, part)) if part in model else {} for part in (_TRAINER, _NORMALIZER)
    )
    kind = _number(trainer, _MODEL_TYPE, 1)
    if kind != 2:
        raise ModelFileError(
            f"{path} is a {_KINDS.get(kind, kind)} model, which is not supported; use a model with "
            "a BPE tokenizer"
        )
    pieces = [_fields(piece) for piece in model.get(_PIECES, []) if isinstance(piece, bytes)]
    tokens = [_bytes(piece, _TEXT).decode() for piece in pieces]
    scores = [struct.unpack("<f", _bytes(piece, _SCORE, bytes(4)))[0] for piece in pieces]
    types = [_number(piece, _TYPE, _NORMAL) for piece in pieces]
    for token in sorted(added):
        if token.id > len(tokens) or (token.id < len(tokens) and tokens[token.id] != token.text):
            raise ModelFileError(
                f"{path} has {len(tokens)} pieces, and a file beside it puts {token.text!r} at "
                f"{token.id}; fetch the model again"
            )
        type_ = _CONTROL if token.is_control else _USER_DEFINED
        if token.id == len(tokens):
            tokens, scores, types = [*tokens, token.text], [*scores, 0.0], [*types, type_]
        elif types[token.id] != _UNKNOWN:
            types[token.id] = type_
    values: dict[str, Value] = {
        "model": "llama",
        "tokens": tokens,
        "scores": scores,
        "token_type": types,
        "add_space_prefix": bool(_number(normalizer, _PREFIX, 1)),
        "remove_extra_whitespaces": bool(_number(normalizer, _SQUEEZE, 1)),
        "precompiled_charsmap": len(_bytes(normalizer, _CHARSMAP, b"")),
    }
    ids = (("unknown", _UNKNOWN_ID, 0), ("bos", _BOS_ID, 1), ("eos", _EOS_ID, 2))
    for name, field, default in ids:
        if (number := _number(trainer, field, default)) < len(tokens):  # -1, in 64 bits, is none
            values[f"{name}_token_id"] = number
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def _number(fields: _Fields, field: int, default: int) -> int:
    value = fields.get(field, [default])[-1]
    if isinstance(value, bytes):
        raise ValueError(f"field {field} is no number")
    return value


def _bytes(fields: _Fields, field: int, default: bytes | None = None) -> bytes:
    value = fields.get(field, [default] if default is not None else [0])[-1]
    if not isinstance(value, bytes):
        raise ValueError(f"field {field} is missing or no text")
    return value


def _fields(data: bytes) -> _Fields:
    """The fields of a message: numbers, and bytes of anything else."""
    found: _Fields = {}
    for field, value in _read(data):
        found.setdefault(field, []).append(value)
    return found


def _read(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == 0:
            number, position = _varint(data, position)
            yield tag >> 3, number
            continue
        if kind == 2:
            length, position = _varint(data, position)
        else:
            length = {1: 8, 5: 4}.get(kind, -1)
        if not 0 <= length <= len(data) - position:
            raise ValueError("it is cut, or no SentencePiece model")
        yield tag >> 3, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    number = 0
    for shift in range(0, 64, 7):
        if position == len(data):
            break
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
    raise ValueError("it is cut, or no SentencePiece model")
