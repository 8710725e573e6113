"""Options of nodes: whether each is of the kind that its class declares.

A text for a number, a list for a tuple, nothing where there has to be something: whatever a node's
own checks do not look for is told by the option's name. What is declared as anything but plain
values is left to them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

__all__ = ["kind_faults"]

_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    NoneType: "None",
}


def kind_faults(options: Any) -> dict[str, str]:
    """What is wrong with values of a dataclass, by the name of the option."""
    faults = {}
    kind: Any = type(options)
    for name, hint in _hints(kind).items():
        value = getattr(options, name)
        if not _fits(value, hint):
            faults[name] = f"{name} is {_named(hint)}, not {value!r}"
    return faults


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The declared kinds of a class's options, those that can be told."""
    if not is_dataclass(kind):
        return {}
    found = {}
    for field in fields(kind):
        hint: Any = field.type
        if isinstance(hint, str):
            told = (c for c in kind.__mro__ if field.name in vars(c).get("__annotations__", {}))
            alone = SimpleNamespace(__annotations__={field.name: hint})
            try:
                hint = get_type_hints(alone, vars(sys.modules[next(told).__module__]))[field.name]
            except NameError:  # a name that is imported for type checkers alone
                continue
        if _is_plain(hint):
            found[field.name] = hint
    return found


def _is_plain(hint: Any) -> bool:
    """Whether it says no more than which plain values there may be."""
    if hint in _NAMES or get_origin(hint) is Literal:
        return True
    parts = [part for part in get_args(hint) if part is not Ellipsis]
    return get_origin(hint) in (Union, UnionType, tuple) and all(map(_is_plain, parts))


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(value is part or (type(value) is type(part) and value == part) for part in parts)
    if origin is tuple:
        rest = [part for part in parts if part is not Ellipsis]
        return isinstance(value, tuple) and all(any(_fits(v, p) for p in rest) for v in value)
    if origin is not None:
        return any(_fits(value, part) for part in parts)
    if isinstance(value, bool):
        return hint is bool
    return isinstance(value, int | float) if hint is float else isinstance(value, hint)


def _named(hint: Any) -> str:
    """A kind in words: `a whole number or None`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a tuple, each {_named(parts[0])}"
    return _NAMES[hint] if origin is None else " or ".join(map(_named, parts))
