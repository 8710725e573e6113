"""One line of a journal: a JSON object behind its checksum."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

from ttc.strict_json import decode, encode

__all__ = ["begins", "entry_of", "is_whole", "line_of"]


def line_of(values: Mapping[str, Any]) -> bytes:
    """A line of a journal, without its newline."""
    body = encode(values, default=repr).encode()
    return b"%08x %s" % (zlib.crc32(body), body)


def entry_of(line: bytes) -> dict[str, Any] | None:
    """What a line says; `None` where it is not what was written."""
    checksum, _, body = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    return decode(body)  # type: ignore[no-any-return]


def begins(rest: bytes) -> bool:
    """Whether bytes may be the beginning of a line."""
    return re.fullmatch(rb"[0-9a-f]{1,7}|[0-9a-f]{8}(?: (?:\{.*)?)?", rest, re.DOTALL) is not None


def is_whole(line: bytes) -> bool:
    """Whether a line is all that was written of it."""
    return entry_of(line) is not None
