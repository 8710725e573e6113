"""ReAct: tools in plain lines, for models whose chat template knows none.

What may be called stands in an instruction, a call in two lines of the assistant's, and what came
of it in a line that begins with a label. Such a line is one JSON text, which no line can end.

Source: Yao et al. 2022, ReAct (arXiv 2210.03629), section 2 and appendix C.
Differs: arguments are JSON, and so are observations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ttc.messages import Message, ToolCall
from ttc.tool_calls import Tools

__all__ = ["NEXT_LINE", "OBSERVATION", "in_lines", "instruction", "observed"]

OBSERVATION = "Observation:"
"""What stands before the result of a call."""
NEXT_LINE = f"\n{OBSERVATION}"
"""What ends a turn. No JSON text can hold it."""

_REACT = """You may use these tools:
{tools}

Write in this form, and stop after an action's input:
Thought: what to do next
Action: the name of one tool
Action Input: its arguments, as a JSON object
Observation: what came of it, which you are told
(these four lines as often as needed)
Thought: what you know now
Final Answer: the answer"""
_MUST = """You have these tools:
{tools}

Call one of them. Write nothing but the call, as a JSON object with its name and its arguments:
{{"name": the name of the tool, "arguments": its arguments}}"""


def instruction(tools: Tools, *, must_call: bool = False) -> str:
    """What a model is told of tools.

    Args:
        tools: the tools.
        must_call: whether its turn has to be a call, which is then JSON alone.
    """
    lines = "\n".join(_line(tool["function"]) for tool in tools)
    return (_MUST if must_call else _REACT).format(tools=lines)


def observed(results: Iterable[str]) -> str:
    """What came of calls, as JSON in one line."""
    return " ".join(json.dumps(text, ensure_ascii=False) for text in results)


def in_lines(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A conversation whose calls and results are lines: of results in a row one message."""
    told: list[Message] = []
    results: list[str] = []
    for message in (*messages, None):
        if message is not None and message.role == "tool":
            results.append(message.content)
            continue
        if results:
            told.append(Message(role="user", content=f"{OBSERVATION} {observed(results)}"))
            results = []
        if message is not None:
            told.append(_spoken(message))
    return tuple(told)


def _spoken(message: Message) -> Message:
    if not message.tool_calls:
        return message
    calls = [_acted(call) for call in message.tool_calls]
    words = [message.content] if message.content else []
    return replace(message, content="\n".join([*words, *calls]), tool_calls=())


def _acted(call: ToolCall) -> str:
    given = json.dumps(dict(call.arguments), ensure_ascii=False, default=dict)
    return f"Action: {call.name}\nAction Input: {given}"


def _line(function: Mapping[str, Any]) -> str:
    """A tool as one line of a prompt, without its schema, which small models copy as an input."""
    schema = function.get("parameters") or {}
    needed = schema.get("required", ())
    each = [
        f"{json.dumps(name)}: {_kind(part)}{'' if name in needed else ' (may be left out)'}"
        for name, part in schema.get("properties", {}).items()
    ]
    more = f" where {json.dumps(schema['$defs'], default=dict)}" if "$defs" in schema else ""
    described = f" {function['description']}" if function.get("description") else ""
    return f"- {function['name']}:{described} Input: {{{', '.join(each)}}}{more}"


def _kind(schema: Any) -> str:
    """What an argument is, in a word where there is one."""
    if not isinstance(schema, Mapping):
        return "anything"
    if isinstance(options := schema.get("enum"), list):
        return " or ".join(json.dumps(option, ensure_ascii=False) for option in options)
    kind = schema.get("type")
    if kind == "string":
        return json.dumps(schema.get("description", "a text"), ensure_ascii=False)
    known = kind in ("integer", "number", "boolean")
    return str(kind) if known else json.dumps(dict(schema), ensure_ascii=False, default=dict)
