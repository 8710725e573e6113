"""JSON as calls of tools are written in: what is read, what is refused, and what is equal.

JSON is strict, but that line breaks may stand in its texts. A value ends where a scanner that knows
texts finds its end; what follows is another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ttc.messages import ToolCall

__all__ = [
    "BEGINNINGS",
    "BadCall",
    "Call",
    "CallDelta",
    "canonical",
    "glued",
    "join_deltas",
    "read_arguments",
    "short",
    "spelt",
    "unique",
    "unread",
    "value_at",
    "whole",
]

BEGINNINGS = ("{", "[", '"')
"""How the JSON of a call begins."""

_MOST_DEPTH = 100
_PLAIN = (str, int, float, type(None))
_MEANT = re.compile(r'\A[\[{\s]*"name"\s*:\s*"([^"\\]+)"')


@dataclass(frozen=True, kw_only=True)
class BadCall:
    """What was meant as a call and cannot be read."""

    text: str
    """What the model wrote."""
    reason: str
    """What is wrong with it, for whoever wrote it."""
    name: str | None = None
    """The tool, where that is known."""
    id: str | None = None


Call: TypeAlias = ToolCall | BadCall


def read_arguments(given: Any) -> dict[str, Any]:
    """A call's arguments: an object, or a text that holds one, once or twice encoded.

    Raises:
        ValueError: they are none.
    """
    for _ in range(2):
        if not isinstance(given, str):
            break
        given = whole(given) if given.strip() else None
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError(f"arguments are a JSON object, not {short(json.dumps(given))}")
    return given


def canonical(call: ToolCall, *, ignoring: Collection[str] = ()) -> str:
    """A call as one text that equal calls share: keys in order, and 2.0 is 2.

    Args:
        call: the call.
        ignoring: arguments that change from call to call and mean nothing.
    """
    given = {key: value for key, value in call.arguments.items() if key not in ignoring}
    return json.dumps([call.name, _plain(given)], sort_keys=True, separators=(",", ":"))


def spelt(call: Call) -> str:
    """A call between tags, as Hermes writes it. One that cannot be read cannot be so there, too."""
    given = call.text if isinstance(call, BadCall) else dict(call.arguments)
    fields = {"name": call.name, "arguments": given} | ({"id": call.id} if call.id else {})
    return f"<tool_call>\n{json.dumps(fields, ensure_ascii=False)}\n</tool_call>"


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of pairs.

    Raises:
        ValueError: a key comes twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {short(twice)!r} comes twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if abs(number) == float("inf"):
        raise ValueError(f"the number {short(digits)} is beyond a float")
    return number


_DECODER = json.JSONDecoder(
    strict=False, object_pairs_hook=unique, parse_constant=_no_constant, parse_float=_finite
)


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins there, and where it ends.

    Raises:
        ValueError: there is none.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} at character {error.pos - start}") from None
    except UnicodeEncodeError:
        raise ValueError("a text of the JSON holds half a character") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    if _is_deep(value):
        raise ValueError(f"the JSON is nested deeper than {_MOST_DEPTH}")
    return value, end


def _is_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than who walks through it may go."""
    level = [value]
    for _ in range(_MOST_DEPTH + 1):
        inner = [one.values() if isinstance(one, dict) else one for one in level]
        level = [part for parts in inner if not isinstance(parts, _PLAIN) for part in parts]
        if not level:
            return False
    return True


def whole(text: str) -> Any:
    """The JSON value that a text is.

    Raises:
        ValueError: it is none, or more than one.
    """
    text = text.strip()
    value, end = value_at(text, 0)
    if end < len(text):
        raise ValueError(f"{short(text[end:])!r} follows the JSON")
    return value


def _plain(value: Any) -> Any:
    """A JSON value in which every number has one spelling."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def short(text: str) -> str:
    """The beginning of a text, for messages."""
    return text if len(text) <= 60 else text[:57] + "..."


def _calls_in(value: Any, text: str) -> Iterator[Call]:
    """The calls that a JSON value is: one, or a list of them."""
    for one in value if isinstance(value, list) else [value]:
        try:
            yield _call_of(read_arguments(one) if isinstance(one, str) else one)
        except ValueError as error:
            name = one.get("name") if isinstance(one, dict) else None
            yield BadCall(text=text, reason=str(error), name=name if type(name) is str else None)


def _call_of(value: Any) -> ToolCall:
    inner = value.get("function") if isinstance(value, dict) else None
    fields = {**value, **inner} if isinstance(inner, dict) else value
    name = fields.get("name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a call is an object with a name, not {short(json.dumps(value))}")
    given = fields.get("arguments", fields.get("parameters"))
    id_ = fields.get("id")
    return ToolCall(
        name=name.strip(), arguments=read_arguments(given), id=id_ if type(id_) is str else None
    )


def glued(text: str, start: int, border: Callable[[str, int], int]) -> tuple[list[Call], int]:
    """The calls that stand there one after the other, and where the last one ends.

    Args:
        text: what the model wrote.
        start: where the first begins.
        border: where a call that cannot be read, and whatever follows a call, ends.
    """
    calls: list[Call] = []
    at = _next(text, start)
    while text[at : at + 1] in BEGINNINGS and at < len(text):
        try:
            value, end = value_at(text, at)
        except ValueError as error:
            end = border(text, at)
            calls.append(unread(text[at:end], str(error)))
        else:
            calls += _calls_in(value, text[at:end])
        at = _next(text, end)
    return calls, at


def _next(text: str, at: int) -> int:
    """Where the next value begins: behind white space and what may stand between two."""
    while at < len(text) and text[at] in " \t\r\n;,":
        at += 1
    return at


def unread(text: str, reason: str) -> BadCall:
    """A call that cannot be read; the tool is told where its name can be."""
    named = _MEANT.match(text)
    return BadCall(text=text, reason=reason, name=named[1] if named else None)


# Calls that come piece by piece


@dataclass(frozen=True, kw_only=True)
class CallDelta:
    """A piece of a call, as chat APIs stream it."""

    index: int | None = None
    """Which call it is a piece of; not every server counts."""
    id: str | None = None
    name: str | None = None
    arguments: str | None = None


@dataclass(eq=False)
class _Begun:
    id: str | None
    name: str = ""
    text: str = ""
    others: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are there, up to the end of an object."""
        return bool(self.text.strip()) and _objects(self.text) is not None


def join_deltas(deltas: Iterable[CallDelta]) -> tuple[Call, ...]:
    """The calls that pieces are, in order of their index.

    A new call begins with another index, with another id, and with a name where the object of the
    call before has ended. Objects that follow one another are calls of the same tool.
    """
    begun: dict[int, list[_Begun]] = {}
    for delta in deltas:
        line = begun.setdefault(delta.index or 0, [])
        if not line or _is_another(line[-1], delta):
            line.append(_Begun(delta.id or None))
        call = line[-1]
        call.id = call.id or delta.id or None
        if delta.name and delta.name != call.name:
            call.name += delta.name
        call.text += delta.arguments or ""
    return tuple(c for _, line in sorted(begun.items()) for b in line for c in _ended(b))


def _is_another(call: _Begun, delta: CallDelta) -> bool:
    if delta.id and call.id and delta.id != call.id:
        return True
    return bool(delta.name) and call.is_whole


def _objects(text: str) -> list[Any] | None:
    """The JSON values that a text is made of; `None` where it is not."""
    values, at = [], 0
    while (at := _next(text, at)) < len(text):
        try:
            value, at = value_at(text, at)
        except ValueError:
            return None
        values.append(value)
    return values


def _ended(call: _Begun) -> Iterator[Call]:
    values = _objects(call.text)
    try:
        if not call.name:
            raise ValueError("a call has a name")
        for n, value in enumerate([call.text] if values is None else values or [None]):
            arguments = read_arguments(value)
            yield ToolCall(name=call.name, arguments=arguments, id=None if n else call.id)
    except ValueError as error:
        yield BadCall(text=call.text, reason=str(error), name=call.name or None, id=call.id)
