"""Frames: JSON messages over a socket, each behind its length."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

__all__ = ["HEADER", "MAX_BYTES", "decode", "decode_length", "encode", "read", "write"]

HEADER = struct.Struct("!I")
MAX_BYTES = 1 << 20
"""The longest message that is read."""


def encode(message: dict[str, Any]) -> bytes:
    """A message with its length before it."""
    body = json.dumps(message).encode()
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """A message without its length.

    Raises:
        ValueError: it is no JSON object.
    """
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError(f"a message is an object, not {type(message).__name__}")
    return message


def decode_length(header: bytes) -> int:
    """How many bytes follow.

    Raises:
        ValueError: more than `MAX_BYTES`.
    """
    (length,) = HEADER.unpack(header)
    if length > MAX_BYTES:
        raise ValueError(f"a message of {length} bytes, and {MAX_BYTES} is the most")
    return int(length)


def read(descriptor: int) -> dict[str, Any] | None:
    """The next message of a blocking descriptor; `None` at its end."""
    header = _exactly(descriptor, HEADER.size)
    if header is None:
        return None
    body = _exactly(descriptor, decode_length(header))
    return None if body is None else decode(body)


def write(descriptor: int, message: dict[str, Any]) -> None:
    """Writes a message whole to a blocking descriptor."""
    data = encode(message)
    while data:
        data = data[os.write(descriptor, data) :]


def _exactly(descriptor: int, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        piece = os.read(descriptor, count - len(data))
        if not piece:
            return None
        data += piece
    return data
