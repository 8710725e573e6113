"""JSON that every reader takes: it has no numbers that are not finite.

A file that is read again keeps such a number as `{"not finite": "-inf"}`; what is only shown has
`null` in its place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["decode", "encode", "pretty"]

_MARK = "not finite"
_MARKED = [{_MARK: text} for text in ("inf", "-inf", "nan")]
_decoder = json.JSONDecoder(object_hook=lambda found: _marked(found))


def encode(values: Any, *, default: Callable[[Any], Any] | None = None) -> str:
    """Values in one line, out of which `decode` makes them again.

    Args:
        values: what to encode.
        default: what to put in the place of something that is no JSON.
    """
    encoder = _encoder(default)
    try:
        return encoder.encode(values)
    except ValueError:
        return encoder.encode(_with(values, lambda number: {_MARK: str(number)}))


@lru_cache(maxsize=8)
def _encoder(default: Callable[[Any], Any] | None) -> json.JSONEncoder:
    return json.JSONEncoder(separators=(",", ":"), default=default, allow_nan=False)


def decode(text: str | bytes) -> Any:
    """The values that a text was made of.

    Raises:
        ValueError: it is no JSON.
    """
    text = text if isinstance(text, str) else text.decode()
    return _decoder.decode(text) if f'"{_MARK}"' in text else json.loads(text)


def pretty(values: Any) -> str:
    """Values for whoever reads them, in many lines."""
    return json.dumps(_with(values, lambda number: None), indent=2, allow_nan=False)


def _marked(found: dict[str, Any]) -> Any:
    return float(found[_MARK]) if found in _MARKED else found


def _with(value: Any, stand_in: Any) -> Any:
    """Values with something else in the place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else stand_in(value)
    if isinstance(value, Mapping):
        return {key: _with(item, stand_in) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with(item, stand_in) for item in value]
    return value
