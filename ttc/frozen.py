"""Frozen values, copied with other values for some fields: thousands a second, for every call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

__all__ = ["changed"]

T = TypeVar("T")


def changed(value: T, **fields: Any) -> T:
    """A copy with other values for some fields, as `dataclasses.replace` makes it.

    Where a class checks nothing when it is made, its `__init__`, which sets field by field, is
    passed over, and with it nine tenths of the cost.
    """
    if hasattr(value, "__post_init__"):
        return replace(value, **fields)  # type: ignore[type-var]
    copy = object.__new__(type(value))
    copy.__dict__.update(value.__dict__, **fields)
    return copy
