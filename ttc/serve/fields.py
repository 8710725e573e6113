"""Fields of a request's body: each is taken by its rule, and whatever is left over is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ttc.serve.refusal import Refusal, invalid, unsupported

__all__ = ["Fields", "boolean", "choice", "integer", "mapping", "number", "text"]

T = TypeVar("T")
D = TypeVar("D")
Rule = Callable[[str, Any], T]


class Fields:
    """A JSON object whose fields are taken one by one. `null` is as good as absent."""

    def __init__(self, body: Any, within: str = "") -> None:
        if not isinstance(body, Mapping):
            raise invalid(within or None, f"{within or 'the body'} is a JSON object")
        self._left = {key: value for key, value in body.items() if value is not None}
        self._within = f"{within}." if within else ""

    def take(self, name: str, rule: Rule[T], default: D) -> T | D:
        """A field's value by its rule, or the default where it is absent."""
        if name not in self._left:
            return default
        return rule(self._within + name, self._left.pop(name))

    def need(self, name: str, rule: Rule[T]) -> T:
        """A field that has to be there."""
        if name not in self._left:
            whole = self._within + name
            raise invalid(whole, f"{whole} is missing", code="missing_required_parameter")
        return rule(self._within + name, self._left.pop(name))

    def inert(self, allowed: Mapping[str, Callable[[Any], bool]]) -> None:
        """Takes fields that change nothing, as long as their values do not ask for anything."""
        for name, is_inert in allowed.items():
            if name in self._left and not is_inert(self._left.pop(name)):
                whole = self._within + name
                raise unsupported(whole, f"this server does not serve this {whole}; leave it out")

    def end(self) -> None:
        """Refuses what was not taken."""
        for name in self._left:
            whole = (self._within + name)[:80]
            raise unsupported(whole, f"this server does not know {whole}; leave it out")


def _refuse(name: str, wanted: str, given: Any) -> Refusal:
    shown = repr(given)
    return invalid(name, f"{name} is {wanted}, not {shown if len(shown) <= 80 else shown[:77]}...")


def number(low: float, high: float) -> Rule[float]:
    """A number in a range."""

    def rule(name: str, given: Any) -> float:
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not math.isfinite(given) or not low <= given <= high:
            raise _refuse(name, f"a number from {low:g} to {high:g}", given)
        return float(given)

    return rule


def integer(low: int, high: int) -> Rule[int]:
    """A whole number in a range."""

    def rule(name: str, given: Any) -> int:
        if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
            raise _refuse(name, f"a whole number from {low} to {high}", given)
        return given

    return rule


def boolean(name: str, given: Any) -> bool:
    """True or false."""
    if not isinstance(given, bool):
        raise _refuse(name, "true or false", given)
    return given


def text(name: str, given: Any) -> str:
    """A text."""
    if not isinstance(given, str):
        raise _refuse(name, "a text", given)
    return given


def mapping(name: str, given: Any) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(given, Mapping):
        raise _refuse(name, "an object", given)
    return given


def choice(options: Sequence[str]) -> Rule[str]:
    """One of some texts."""

    def rule(name: str, given: Any) -> str:
        if not isinstance(given, str) or given not in options:
            raise _refuse(name, f"one of {', '.join(options)}", given)
        return given

    return rule
