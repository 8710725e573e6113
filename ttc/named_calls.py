"""Values as the calls of registered names that make them: what the text form and files share.

A node, a verifier or a rule is written as a name and the arguments that are not its defaults. Only
what the registry knows has a name, and a name leads to nothing else: no module is imported for it
and no attribute is looked up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, signature
from typing import Any, NamedTuple

from ttc.function_node import FunctionNode
from ttc.graph import Node, snake_case
from ttc.registry import lookup, names, third_parties

__all__ = ["GROUPS", "Call", "Unnamed", "call_of", "made", "maker"]

GROUPS = ("nodes", "verifiers")
"""The groups of the registry whose names graphs are made of."""
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Unnamed(Exception):
    """A value that nothing registered makes, a name that nothing has, or arguments that it refuses.

    Its message says which, and what to do.
    """


class Call(NamedTuple):
    """A registered name, and what it is called with."""

    name: str
    parts: Sequence[Any]
    options: Mapping[str, Any]


def maker(name: str) -> Callable[..., Any]:
    """What a name stands for.

    Raises:
        Unnamed: nothing registered is called so.
    """
    for group in GROUPS:
        if name in names(group):
            found = lookup(group, name)
            return partial(_itself, found) if isinstance(found, Node) else found
    known = [known for group in GROUPS for known in names(group)]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise Unnamed(f"nothing is called {name!r}; {hint}there is {', '.join(known)}")


def made(maker: Callable[..., Any], parts: Iterable[Any], options: Mapping[str, Any]) -> Any:
    """What a call gives.

    Raises:
        Unnamed: it does not take these arguments.
        GraphError: it takes them, and refuses what they hold.
    """
    known, parts = signature(maker).parameters, list(parts)
    kinds = [parameter.kind for parameter in known.values()]
    most = sum(kind in _BY_PLACE for kind in kinds)
    if len(parts) > most and Parameter.VAR_POSITIONAL not in kinds:
        raise Unnamed(
            f"takes {most or 'nothing'} without a name, and is given {len(parts)}; name its "
            f"options, which are {', '.join(known) or 'none'}"
        )
    if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        unknown = [name for name in options if name not in known]
        if unknown:
            raise Unnamed(
                f"got an unexpected keyword argument {unknown[0]!r}; its options are "
                f"{', '.join(known) or 'none'}"
            )
    try:
        return maker(*parts, **options)
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        plain = re.sub(r"^(<lambda>|\w+(\.\w+)*)\(\) ", "", str(error))  # no Python name
        raise Unnamed(plain or type(error).__name__) from None


def call_of(value: Any) -> Call:
    """The call that makes a value, with the arguments that are not its defaults.

    Raises:
        Unnamed: nothing registered makes it.
    """
    for name in _names_of(value):
        call = _call(name, value)
        if call is not None:
            return call
    raise Unnamed(
        f"{_described(value)} is not registered, so nothing names it; register it by the entry "
        f"point ttc.nodes or ttc.verifiers"
    )


def _itself(node: Node) -> Node:
    return node


def _names_of(value: Any) -> Iterator[str]:
    """The registered names that may make a value: its class in snake_case, or what leads to it."""
    own = snake_case(type(value).__name__)
    for group in GROUPS:
        if own in names(group):
            yield own
        for name in third_parties(group):
            found = lookup(group, name)
            if name != own and (found is type(value) or isinstance(value, FunctionNode)):
                yield name


def _call(name: str, value: Any) -> Call | None:
    """The call of a name that gives a value; `None` where it gives something else."""
    found = maker(name)
    if isinstance(value, FunctionNode):
        return Call(name, (), {}) if found() == value else None
    if isinstance(found, type) and found is not type(value):
        return None
    parts, options = _arguments(found, value)
    again = made(found, parts, options)
    return Call(name, parts, options) if type(again) is type(value) and again == value else None


def _arguments(maker: Callable[..., Any], value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    parts: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    for parameter in signature(maker).parameters.values():
        own = getattr(value, parameter.name, MISSING)
        if own is MISSING:
            raise Unnamed(f"{value!r} does not keep {parameter.name}, which it was made with")
        if parameter.kind is Parameter.VAR_POSITIONAL:
            parts = tuple(own)
        elif own != _default(value, parameter):
            options[parameter.name] = own
    return parts, options


def _default(value: Any, parameter: Parameter) -> Any:
    """What a parameter is if it is not given."""
    for field in fields(value) if is_dataclass(value) else ():
        if field.name == parameter.name and field.default_factory is not MISSING:
            return field.default_factory()
    return parameter.default


def _described(value: Any) -> str:
    """A function or the class of a value, by its full name."""
    if isinstance(value, FunctionNode):
        value = value.function
    is_function = callable(value) and hasattr(value, "__qualname__")
    named = value if is_function else type(value)
    kind = "class" if isinstance(named, type) else "function"
    module = getattr(named, "__module__", None)
    own = "" if module in (None, "builtins", "__main__") else f"{module}."
    return f"the {kind} {own}{named.__qualname__}"
