"""Reads GGUF files: metadata, and tensors that are dequantised a few rows at a time.

Source: the GGUF specification (ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian. A
file may come from anywhere, so no count or offset in it is believed: each is compared with the
bytes that are left before anything is allocated. The tensors stay in the file, which is mapped.
Knows nothing of models.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ttc.engine.local.files.dequantise import FORMATS, NAMES
from ttc.engine.local.files.digest import sha256_of
from ttc.engine.local.files.tensor import Tensor
from ttc.errors import ModelFileError

__all__ = ["GGUFFile", "Value", "read_gguf"]

Value = str | int | float | bool | list[str] | list[int] | list[float]

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
_MAX_VALUES = 1 << 22
"""Values in a header: eight times those of the largest vocabulary."""
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf")


@dataclass(frozen=True, kw_only=True)
class GGUFFile:
    """An open GGUF file; the bytes of its tensors stay on disk until they are read."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, Tensor]
    parts: tuple[Path, ...] = ()
    """All files that it consists of."""

    def fingerprint(self) -> str:
        """The SHA-256 of the file, in hex; of all its parts, where it has several."""
        return sha256_of(self.parts)


def read_gguf(path: Path) -> GGUFFile:
    """Opens a GGUF file, or all parts of a split one by its first, and reads the headers.

    Raises:
        ModelFileError: it cannot be read, is damaged, or is of a kind that is not supported.
    """
    first = _read_part(path)
    count = first.metadata.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return first
    name = _PART.search(path.name)
    if name is None or int(name[2]) != count or not _is_number(first, "split.no", 0):
        raise ModelFileError(
            f"{path} is one of {count} files of a split model; open the first, whose name ends in "
            f"-00001-of-{count:05}.gguf"
        )
    tensors, parts = dict(first.tensors), [path]
    for number in range(1, count):
        other = path.with_name(f"{path.name[: name.start()]}-{number + 1:05}-of-{count:05}.gguf")
        part = _read_part(other)
        if not (_is_number(part, "split.no", number) and _is_number(part, "split.count", count)):
            raise ModelFileError(f"{other} is no part {number + 1} of {count} of {path}")
        if twice := tensors.keys() & part.tensors.keys():
            raise ModelFileError(f"{other}: the tensor {min(twice)!r} is in two files")
        tensors |= part.tensors
        parts.append(other)
    if not _is_number(first, "split.tensors.count", len(tensors)):
        raise ModelFileError(
            f"{path}: all parts together have {len(tensors)} tensors, and split.tensors.count is "
            f"{first.metadata.get('split.tensors.count')!r}; fetch the files again"
        )
    return GGUFFile(path=path, metadata=first.metadata, tensors=tensors, parts=tuple(parts))


def _is_number(file: GGUFFile, key: str, value: int) -> bool:
    found = file.metadata.get(key)
    return isinstance(found, int) and not isinstance(found, bool) and found == value


def _read_part(path: Path) -> GGUFFile:
    """Opens one file."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    cursor = _Cursor(mapped, path)
    if cursor.take(4) != b"GGUF":
        raise ModelFileError(f"{path} is no GGUF file: it does not begin with 'GGUF'")
    version = cursor.number("I")
    if version not in (2, 3):
        raise ModelFileError(
            f"{path} has GGUF version {version}; versions 2 and 3 are supported, little-endian"
        )
    num_tensors, num_pairs = cursor.number("Q"), cursor.number("Q")
    if num_tensors + num_pairs > _MAX_VALUES:
        raise ModelFileError(
            f"{path} claims {num_tensors} tensors and {num_pairs} keys; fetch the file again"
        )
    metadata: dict[str, Value] = {}
    for _ in range(num_pairs):
        key = cursor.string()
        if key in metadata:
            raise ModelFileError(f"{path}: the key {key!r} is there twice; fetch the file again")
        metadata[key] = cursor.value(cursor.number("I"), key)
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment < 1:
        raise ModelFileError(f"{path}: general.alignment is {alignment!r}, not a positive number")
    headers = [_header(cursor) for _ in range(num_tensors)]
    data = np.frombuffer(mapped, dtype=np.uint8)
    tensor_data = data[-(-cursor.position // alignment) * alignment :]
    tensors: dict[str, Tensor] = {}
    for header in headers:
        if header.name in tensors:
            raise ModelFileError(f"{path}: the tensor {header.name!r} is there twice")
        tensors[header.name] = _tensor(path, header, tensor_data)
    return GGUFFile(path=path, metadata=metadata, tensors=tensors, parts=(path,))


@dataclass(frozen=True)
class _Header:
    """What a header says of a tensor."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int
    """Within the tensor data."""


def _header(cursor: _Cursor) -> _Header:
    name = cursor.string()
    num_dimensions = cursor.number("I")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ModelFileError(f"{cursor.path}: the tensor {name!r} has {num_dimensions} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(num_dimensions))
    return _Header(name, shape[::-1], cursor.number("I"), cursor.number("Q"))


def _tensor(path: Path, header: _Header, data: npt.NDArray[np.uint8]) -> Tensor:
    """The place of a tensor in the tensor data."""
    name, shape = header.name, header.shape
    kind = NAMES.get(header.type, f"number {header.type}")
    format_ = FORMATS.get(kind)
    if format_ is None:
        raise ModelFileError(
            f"{path}: the tensor {name!r} has the type {kind}, which is not supported; use a file "
            f"of {', '.join(FORMATS)} tensors"
        )
    num_values = math.prod(shape)
    if num_values < 1 or shape[-1] % format_.block:
        raise ModelFileError(
            f"{path}: the tensor {name!r} of shape {shape} is no whole number of {kind} blocks"
        )
    num_bytes = num_values // format_.block * format_.block_bytes
    end = header.offset + num_bytes
    if end > len(data):
        raise ModelFileError(
            f"{path}: the tensor {name!r} ends at byte {end} of the tensor data, which has "
            f"{len(data)}; the file is incomplete: fetch it again"
        )
    if len(shape) == 1 and format_.block > 1:
        raise ModelFileError(f"{path}: the vector {name!r} has the type {kind}: not supported")
    raw = data[header.offset : end].reshape(shape[0], -1)
    return Tensor(shape=shape, format=format_, raw=raw)


class _Cursor:
    """Reads forwards through a file, and never past its end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self._room = _MAX_VALUES

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise self._cut()
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def number(self, code: str) -> int:
        (value,) = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))
        return int(value)

    def string(self) -> str:
        return self.take(self.number("Q")).decode(errors="surrogateescape")

    def value(self, kind: int, key: str) -> Value:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(self.number("I"), self.number("Q"), key)
        (value,) = self._scalars(kind, 1, key)
        return value

    def _array(self, kind: int, count: int, key: str) -> Value:
        self._room -= count
        if self._room < 0:
            raise ModelFileError(
                f"{self.path}: the key {key!r} takes the header beyond {_MAX_VALUES} values; "
                "fetch the file again"
            )
        return self._strings(count) if kind == _STRING else list(self._scalars(kind, count, key))

    def _strings(self, count: int) -> list[str]:
        """Strings, of which a vocabulary has hundreds of thousands: one loop without calls."""
        data, position, limit = self.data, self.position, len(self.data)
        read = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        for _ in range(count):
            start = position + 8
            if start > limit:
                raise self._cut()
            position = start + read(data, position)[0]
            if position > limit:
                raise self._cut()
            strings.append(data[start:position].decode(errors="surrogateescape"))
        self.position = position
        return strings

    def _scalars(self, kind: int, count: int, key: str) -> tuple[int, ...]:
        code = _SCALARS.get(kind)
        if code is None:
            raise ModelFileError(
                f"{self.path}: the key {key!r} has the type {kind}, which is not supported"
            )
        return struct.unpack(f"<{count}{code}", self.take(count * struct.calcsize("<" + code)))

    def _cut(self) -> ModelFileError:
        return ModelFileError(f"{self.path} ends inside its header; fetch the file again")
