"""Values between two processes that do not trust each other: tagged JSON, exact types, no pickle.

What crosses is data of the built-in and a few standard types, and `type(value)` decides, so no
subclass with methods of its own ever arrives. Anything else stays where it is, behind a number.
Decoding makes plain values only and never runs code of the other side.
"""

from __future__ import annotations

import json
import os
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = [
    "MAX_DEPTH",
    "MAX_FRAME_BYTES",
    "PREFIX_BYTES",
    "CodecError",
    "decode",
    "encode",
    "length_of",
    "pack",
    "receive",
    "send",
    "serve",
    "unpack",
]

MAX_FRAME_BYTES = 1 << 20
"""The longest frame that is accepted from a process."""
MAX_DEPTH = 50
"""The deepest nesting of a value that crosses."""
PREFIX_BYTES = 4
"""The bytes before a frame that tell its length."""

_MOST_PARTS = 1 << 17


class CodecError(Exception):
    """A value that cannot cross, or a frame that no honest process sends."""


_ATOMS: Mapping[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    type(None): ("none", lambda _: 0, lambda _: None),
    bool: ("bool", int, bool),
    int: ("int", hex, lambda text: int(text, 16)),
    float: ("float", float.hex, float.fromhex),
    complex: (
        "complex",
        lambda z: [z.real.hex(), z.imag.hex()],
        lambda pair: complex(*map(float.fromhex, pair)),
    ),
    str: ("str", str, str),
    bytes: ("bytes", bytes.hex, bytes.fromhex),
    bytearray: ("bytearray", bytearray.hex, bytearray.fromhex),
    range: (
        "range",
        lambda r: [hex(r.start), hex(r.stop), hex(r.step)],
        lambda three: range(*(int(text, 16) for text in three)),
    ),
    Decimal: ("Decimal", str, Decimal),
    Fraction: (
        "Fraction",
        lambda q: [hex(q.numerator), hex(q.denominator)],
        lambda two: Fraction(*(int(text, 16) for text in two)),
    ),
}
_SEQUENCES: Mapping[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
}
_MAPPINGS: Mapping[type, str] = {
    dict: "dict",
    OrderedDict: "OrderedDict",
    defaultdict: "defaultdict",
    Counter: "Counter",
}
_READ_ATOM = {tag: read for tag, _, read in _ATOMS.values()}
_MAKE_SEQUENCE = {tag: kind for kind, tag in _SEQUENCES.items()}
_MAKE_MAPPING: Mapping[str, Callable[[Any], Any]] = {
    **{tag: kind for kind, tag in _MAPPINGS.items()},
    "defaultdict": lambda pairs: defaultdict(None, pairs),
}


def encode(value: object, keep: Callable[[object], Any] | None = None) -> list[Any]:
    """The tagged form of a value.

    Args:
        value: what is to cross.
        keep: takes what is not plain data and gives what the other side is told instead of it.

    Raises:
        CodecError: it is nested too deeply or too large; or it is not plain, and `keep` is `None`.
    """
    parts = _MOST_PARTS

    def tagged(value: Any, depth: int) -> list[Any]:
        nonlocal parts
        parts -= 1
        if depth > MAX_DEPTH or parts < 0:
            raise CodecError("a value is nested too deeply, or too large, to cross")
        kind = type(value)
        if (atom := _ATOMS.get(kind)) is not None:
            return [atom[0], atom[1](value)]
        if (tag := _SEQUENCES.get(kind)) is not None:
            return [tag, [tagged(item, depth + 1) for item in value]]
        if (tag := _MAPPINGS.get(kind)) is not None:
            pairs = dict.items(value)
            return [tag, [[tagged(k, depth + 1), tagged(v, depth + 1)] for k, v in pairs]]
        if keep is None:
            raise CodecError(f"a {kind.__name__} cannot cross")
        return ["kept", keep(value)]

    return tagged(value, 0)


def decode(form: Any, kept: Callable[[Any], Any] | None = None) -> Any:
    """The value of a tagged form.

    Args:
        form: what `encode` gave, or what somebody forged.
        kept: makes a value of what stands for an object that stayed on the other side.

    Raises:
        CodecError: the form is not one that `encode` gives.
    """
    try:
        return _untagged(form, kept, 0)
    except CodecError:
        raise
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise CodecError(f"no tagged form: {error}") from error


def _untagged(form: Any, kept: Callable[[Any], Any] | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise CodecError("a form is nested too deeply")
    tag, content = form
    if (read := _READ_ATOM.get(tag)) is not None:
        return read(content)
    if (make := _MAKE_SEQUENCE.get(tag)) is not None:
        return make([_untagged(item, kept, depth + 1) for item in content])
    if (make_mapping := _MAKE_MAPPING.get(tag)) is not None:
        return make_mapping(
            {_untagged(k, kept, depth + 1): _untagged(v, kept, depth + 1) for k, v in content}
        )
    if tag != "kept" or kept is None:
        raise CodecError(f"no tag {tag!r}")
    return kept(content)


def pack(message: object) -> bytes:
    """A frame: four bytes of length, and JSON."""
    data = json.dumps(message).encode("ascii")
    return len(data).to_bytes(PREFIX_BYTES, "big") + data


def length_of(prefix: bytes, limit: int | None = MAX_FRAME_BYTES) -> int:
    """How many bytes of a frame follow.

    Raises:
        CodecError: there is no whole prefix, or more than `limit` follow.
    """
    length = int.from_bytes(prefix, "big")
    if len(prefix) < PREFIX_BYTES or (limit is not None and length > limit):
        raise CodecError(f"a frame of {length} bytes is longer than {limit}, or cut short")
    return length


def unpack(data: bytes) -> Any:
    """The message of a frame without its length.

    Raises:
        CodecError: it is not JSON, or nested beyond all reason.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError("a frame is not JSON") from error


def send(descriptor: int, message: object, *, limit: int | None = MAX_FRAME_BYTES) -> None:
    """Writes a frame to a blocking descriptor.

    Raises:
        CodecError: it is longer than `limit`.
    """
    data = memoryview(pack(message))
    if limit is not None and len(data) - PREFIX_BYTES > limit:
        raise CodecError(f"a frame of {len(data)} bytes is longer than {limit}")
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int, *, limit: int | None = MAX_FRAME_BYTES) -> Any:
    """Reads a frame from a blocking descriptor.

    Raises:
        EOFError: the other side has closed.
        CodecError: the frame is too long, or no frame.
    """
    return unpack(_exactly(descriptor, length_of(_exactly(descriptor, PREFIX_BYTES), limit)))


def serve(descriptor: int, answer: Callable[[Any], object]) -> None:
    """Answers the frames of a blocking descriptor, one after the other, until its end."""
    while True:
        try:
            request = receive(descriptor)
        except EOFError:
            return
        send(descriptor, answer(request))


def _exactly(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError("the other side has closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
