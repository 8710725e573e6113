"""A conversation as the API writes it, as the messages of a problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ttc.messages import Message, ToolCall
from ttc.serve.fields import Fields, choice, mapping, text
from ttc.serve.refusal import invalid, unsupported

__all__ = ["MAX_MESSAGES", "conversation"]

MAX_MESSAGES = 2_000

_ROLES = ("system", "developer", "user", "assistant", "tool")
_NOTHING: tuple[Any, ...] = ({}, [], "")


def conversation(name: str, given: Any) -> tuple[Message, ...]:
    """The messages of a request.

    Raises:
        Refusal: by the place of what is wrong.
    """
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_MESSAGES:
        raise invalid(name, f"{name} are a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(f"{name}[{place}]", one) for place, one in enumerate(given))


def _message(where: str, given: Any) -> Message:
    fields = Fields(given, where)
    role = fields.need("role", choice(_ROLES))
    calls = fields.take("tool_calls", _tool_calls, ()) if role == "assistant" else ()
    is_empty = bool(calls) and given.get("content") is None
    message = Message(
        role="system" if role == "developer" else role,  # type: ignore[arg-type]
        content="" if is_empty else fields.need("content", _content),
        tool_calls=calls,
        tool_call_id=fields.need("tool_call_id", text) if role == "tool" else None,
        reasoning_content=(
            fields.take("reasoning_content", text, None) if role == "assistant" else None
        ),
    )
    # What the SDK's own messages hold when they are sent back.
    fields.inert(dict.fromkeys(("annotations", "refusal", "tool_calls"), _NOTHING.__contains__))
    fields.end()
    return message


def _content(where: str, given: Any) -> str:
    if isinstance(given, str):
        return given
    if not isinstance(given, list) or not given:
        raise invalid(where, f"{where} is a text, or a list of parts")
    return "".join(_part(f"{where}[{place}]", part) for place, part in enumerate(given))


def _part(where: str, given: Any) -> str:
    fields = Fields(given, where)
    kind = fields.need("type", text)
    if kind != "text":
        raise unsupported(f"{where}.type", f"{where} is no text; this server reads texts alone")
    said = fields.need("text", text)
    fields.end()
    return said


def _tool_calls(where: str, given: Any) -> tuple[ToolCall, ...]:
    if not isinstance(given, list):
        raise invalid(where, f"{where} are a list")
    return tuple(_tool_call(f"{where}[{place}]", one) for place, one in enumerate(given))


def _tool_call(where: str, given: Any) -> ToolCall:
    fields = Fields(given, where)
    fields.take("type", choice(("function",)), "function")
    fields.take("index", lambda _, value: value, None)  # streamed calls that are sent back have it
    name = fields.take("id", text, None)
    function = Fields(fields.need("function", mapping), f"{where}.function")
    called, written = function.need("name", text), function.need("arguments", text)
    function.end()
    fields.end()
    try:
        arguments = json.loads(written or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, Mapping):
        raise invalid(f"{where}.function.arguments", f"{where}: the arguments are no JSON object")
    return ToolCall(name=called, arguments=arguments, id=name)
