"""Calls of tools, read out of what a model wrote: in the forms of model families, and as ReAct.

What a model writes is data: nothing of it is evaluated, and nothing is repaired. The rules:

- JSON is strict, but that line breaks may stand in its texts. NaN, Infinity, numbers beyond a
  float, halves of characters and a key that comes twice are faults.
- A call ends where its JSON value ends, by a scanner that knows texts: what follows is another one.
- Arguments that are a text which holds an object were encoded twice, and are read once more; `null`
  and nothing are no arguments. Whatever else is no object is a fault.
- What was meant as a call and cannot be read is a `BadCall` in its place, with the reason, so that
  it can be answered. It is never dropped, and never guessed at.
- Where a model's marks are control tokens, which spell no text, or lines that it did not write, a
  turn of calls of known tools and nothing else is these calls. So is one of objects that have a
  name and arguments and nothing else, whatever the name: a tool that there is not can be answered.
- What stands in a thought (`<think>`) is no call.

Source: the chat templates of Qwen 2.5 and Hermes, Qwen3-Coder, Llama 3, and Mistral; for ReAct Yao
et al. 2022, arXiv 2210.03629.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from ttc.call_grammars import schema_of_calls
from ttc.call_json import (
    BEGINNINGS,
    BadCall,
    Call,
    CallDelta,
    canonical,
    glued,
    join_deltas,
    read_arguments,
    short,
    unique,
    unread,
    value_at,
    whole,
)
from ttc.messages import ToolCall

__all__ = [
    "BadCall",
    "Call",
    "CallDelta",
    "Form",
    "SpokenTurn",
    "Tools",
    "call_schema",
    "canonical",
    "form_of",
    "join_deltas",
    "parameters_of",
    "read_arguments",
    "read_turn",
]

Form = Literal["hermes", "xml", "llama", "mistral", "react"]
"""How a model writes calls: JSON between tags (Qwen, Hermes), elements (Qwen3-Coder), plain JSON or
after `<|python_tag|>` (Llama 3), JSON after `[TOOL_CALLS]` (Mistral), or lines (ReAct)."""

Tools: TypeAlias = Sequence[Mapping[str, Any]]
"""Tools as chat APIs describe them: `{"type": "function", "function": {"name": ...}}`."""

Known: TypeAlias = Mapping[str, Mapping[str, Any]]

_WHITE = " \t\r\n"
_MAX_TEXT = 1_000_000
_MAX_CALL = 2_000
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_PYTHON_TAG, _TOOL_CALLS = "<|python_tag|>", "[TOOL_CALLS]"
_FENCE = re.compile(r"\A```[A-Za-z0-9_-]*\n(.*?)\n?```\Z", re.DOTALL)
_TAG = re.compile(r"</?tool_call>")
_NAMED = re.compile(r"\s*+([\w.-]++)\s*+(?:\[CALL_ID\]\s*+([\w-]++)\s*+)?(?:\[ARGS\])?\s*+(?=\{)")
_FUNCTION = re.compile(r"<function=([^<>\n]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(
    r"<parameter=([^<>\n]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL
)
_ACTION = re.compile(r"^[ \t*]*Action(?:[ ][0-9]+)?[ \t*]*:[ \t*]*(.*)$", re.MULTILINE)
_INPUT = re.compile(r"^[ \t*]*Action Input(?:[ ][0-9]+)?[ \t*]*:[ \t*]*", re.MULTILINE)
_FINAL = re.compile(r"^[ \t*]*Final Answer[ \t*]*:[ \t*]*", re.MULTILINE)
_OBSERVATION = re.compile(r"^[ \t*]*Observation(?:[ ][0-9]+)?[ \t*]*:", re.MULTILINE)
_BRACKETED = re.compile(r"\A([\w.-]+)[ \t]*\[(.*)\]\Z", re.DOTALL)
_PYTHON = ("python", "code_interpreter")
_FINISH = ("finish", "final_answer")


@dataclass(frozen=True, kw_only=True)
class SpokenTurn:
    """What an assistant's turn says."""

    content: str
    """Its words, without thought and calls."""
    calls: tuple[Call, ...] = ()
    """In the order in which they were written."""
    thought: str | None = None
    """What it thought before it spoke."""
    final: str | None = None
    """What ReAct marks as the final answer."""


def form_of(template: str | None) -> Form:
    """How a model with this chat template writes calls; ReAct where the template knows no tools."""
    text = template or ""
    marks: tuple[tuple[Form, tuple[str, ...]], ...] = (
        ("mistral", (_TOOL_CALLS,)),
        ("xml", ("<function=",)),
        ("hermes", (_OPEN,)),
        ("llama", (_PYTHON_TAG,)),
        ("llama", ("ipython", '"parameters"')),
    )
    return next((form for form, all_of in marks if all(m in text for m in all_of)), "react")


def read_turn(text: str, form: Form, tools: Tools) -> SpokenTurn:
    """The words and the calls of a turn.

    Args:
        text: what the model wrote.
        form: how it writes calls; see `form_of`.
        tools: what it may call. A call of another tool is read, too, where marks show it as one.
    """
    thought, spoken = _without_thought(text)
    known = parameters_of(tools)
    if len(spoken) > _MAX_TEXT:
        reason = f"a turn with calls has at most {_MAX_TEXT} characters, not {len(spoken)}"
        bad = BadCall(text=spoken[:_MAX_CALL], reason=reason)
        return SpokenTurn(content="", calls=(bad,), thought=thought)
    if form == "react":
        turn = _react(spoken, known, thought)
        bare = [] if turn.calls or turn.final is not None else _bare(spoken, known)
        return replace(turn, content="", calls=tuple(bare)) if bare else turn
    readers = {"hermes": _tagged, "xml": _tagged, "llama": _llama, "mistral": _mistral}
    content, calls = readers[form](spoken, known)
    if not calls:
        calls = _bare(spoken, known)
        content = "" if calls else content
    return SpokenTurn(content=content.strip(), calls=tuple(calls), thought=thought)


def call_schema(tools: Tools, key: str = "arguments") -> dict[str, Any]:
    """The JSON schema of one call of one of the tools, for engines with grammars.

    Args:
        tools: the tools.
        key: what the model calls a call's arguments: Llama 3 has `parameters`.
    """
    return schema_of_calls(parameters_of(tools), key)


def parameters_of(tools: Tools) -> dict[str, Mapping[str, Any]]:
    """The schemas of the tools' parameters, by name."""
    functions = [tool.get("function", tool) for tool in tools]
    return {f["name"]: f.get("parameters") or {"type": "object"} for f in functions}


def _without_thought(text: str) -> tuple[str | None, str]:
    before, mark, after = text.rpartition("</think>")
    if mark:
        return before.strip().removeprefix("<think>").strip(), after
    if text.lstrip().startswith("<think>"):  # it never ended
        return text.strip().removeprefix("<think>").strip(), ""
    return None, text


def _end_of(text: str, _: int) -> int:
    return len(text)


# The forms of model families


def _tagged(text: str, known: Known) -> tuple[str, list[Call]]:
    """Hermes, Qwen and Qwen3-Coder: what stands between tags. The last tag may be left open."""
    calls: list[Call] = []
    words, at = [], 0
    while (tag := text.find(_OPEN, at)) >= 0:
        words.append(text[at:tag])
        start = tag + len(_OPEN)
        found, at = glued(text, start, _end_of_tag)
        end = _end_of_tag(text, at)
        rest = text[at:end]
        if not found:
            found = _elements(rest, known)
        elif rest.strip():
            reason = f"{short(rest.strip())!r} follows the JSON"
            found[-1] = unread(text[start:end].strip(), reason)
        calls += found
        at = end + (len(_CLOSE) if text.startswith(_CLOSE, end) else 0)
    return "".join([*words, text[at:]]), calls


def _end_of_tag(text: str, start: int) -> int:
    tag = _TAG.search(text, start)
    return len(text) if tag is None else tag.start()


def _elements(text: str, known: Known) -> list[Call]:
    """Calls as Qwen3-Coder writes them, `<function=name><parameter=key>value</parameter>`."""
    calls: list[Call] = []
    for name, body in _FUNCTION.findall(text):
        properties = known.get(name.strip(), {}).get("properties", {})
        given = _PARAMETER.findall(body)
        try:
            arguments = unique(
                [(k.strip(), _typed(v, properties.get(k.strip()))) for k, v in given]
            )
        except ValueError as error:
            calls.append(BadCall(text=text.strip(), reason=str(error), name=name.strip()))
        else:
            calls.append(ToolCall(name=name.strip(), arguments=arguments))
    return calls or [unread(text.strip(), "there is no call between the tags")]


def _typed(text: str, schema: Mapping[str, Any] | bool | None) -> Any:
    """What the text of an element says: a text where the schema asks for one, and else JSON."""
    if schema is None or (isinstance(schema, Mapping) and schema.get("type") == "string"):
        return text
    try:
        return whole(text)
    except ValueError:
        return text  # whoever checks the arguments says what it should have been


def _llama(text: str, known: Known) -> tuple[str, list[Call]]:
    """Llama 3: what follows `<|python_tag|>`, JSON or a call of a tool or a program."""
    words, mark, rest = text.partition(_PYTHON_TAG)
    if not mark:
        return text, []
    calls: list[Call] = []
    at = 0
    while rest[at:].lstrip()[:1] in BEGINNINGS and rest[at:].strip():
        found, at = glued(rest, at, _end_of)
        calls += found
        at += len(_PYTHON_TAG) if rest.startswith(_PYTHON_TAG, at) else 0
    if rest[at:].strip() or not calls:
        calls.append(_dotted(rest[at:].strip()) or _program(rest[at:].strip(), known))
    return words, calls


def _dotted(text: str) -> ToolCall | None:
    """`name.call(key="value")`, of which only literals are read."""
    if len(text) > _MAX_CALL:
        return None
    try:
        tree = ast.parse(text, mode="eval").body
        match tree:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="call"), args=[]):
                pairs = [(k.arg or "", ast.literal_eval(k.value)) for k in tree.keywords]
                return ToolCall(name=name, arguments=read_arguments(json.dumps(unique(pairs))))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return None


def _program(text: str, known: Known) -> Call:
    """A program, for the tool that runs such, where there is one."""
    for name in _PYTHON:
        if (parameter := _lone_parameter(known.get(name))) is not None:
            return ToolCall(name=name, arguments={parameter: text})
    return BadCall(text=text, reason="it is no JSON, and there is no tool that runs programs")


def _mistral(text: str, known: Known) -> tuple[str, list[Call]]:
    """Mistral: after `[TOOL_CALLS]` a list of calls, or names with their arguments."""
    words, mark, rest = text.partition(_TOOL_CALLS)
    if not mark:
        return text, []
    calls: list[Call] = []
    for part in rest.split(_TOOL_CALLS) if not rest.lstrip().startswith("[") else [rest]:
        calls += glued(part, 0, _end_of)[0] or _named(part) or [unread(part, "no call follows")]
    return words, calls


def _named(text: str) -> list[Call]:
    """Calls as `name[ARGS]{"key": "value"}`; nothing where the text is not made of them."""
    calls: list[Call] = []
    at = 0
    while found := _NAMED.match(text, at):
        try:
            value, at = value_at(text, found.end())
            arguments = read_arguments(value)
        except ValueError as error:
            return [*calls, BadCall(text=text[found.start() :], reason=str(error), name=found[1])]
        calls.append(ToolCall(name=found[1], arguments=arguments, id=found[2]))
    return [] if text[at:].strip() else calls


def _bare(text: str, known: Known) -> list[Call]:
    """The calls that a turn without marks is, where it is nothing else."""
    text = text.strip(_WHITE)
    fenced = _FENCE.match(text)
    body = fenced[1].strip(_WHITE) if fenced else text
    calls, end = glued(body, 0, _end_of)
    if not calls:
        calls, end = _named(body), len(body)
    meant = calls[:-1] if len(calls) > 1 and isinstance(calls[-1], BadCall) else calls
    are_known = all(call.name in known for call in meant)
    is_whole = not body[end:].strip() and (are_known or _are_plainly_calls(body))
    return calls if is_whole else []


def _are_plainly_calls(text: str) -> bool:
    """Whether a text is JSON of objects with a name and arguments, and nothing else."""
    try:
        value = whole(text)
    except ValueError:
        return False
    each = value if isinstance(value, list) else [value]
    return bool(each) and all(
        isinstance(one, dict)
        and set(one) in ({"name", "arguments"}, {"name", "parameters"})
        and isinstance(one.get("arguments", one.get("parameters")), dict)
        for one in each
    )


# ReAct


def _react(text: str, known: Known, thought: str | None) -> SpokenTurn:
    """The first action, or the final answer, whichever comes first.

    What is observed after that the model only imagined.
    """
    if observed := _OBSERVATION.search(text):
        text = text[: observed.start()]
    action, final = _ACTION.search(text), _FINAL.search(text)
    if final and not (action and action.start() < final.start()):
        words = text[: final.start()].strip()
        return SpokenTurn(content=words, thought=thought, final=text[final.end() :].strip())
    if action is None:
        return SpokenTurn(content=text.strip(), thought=thought)
    words = text[: action.start()].strip()
    head = action[1].strip().rstrip("*").strip()
    given = _INPUT.search(text, action.end())
    if given is not None:
        call = _acted(head.strip("`"), text[given.end() :].strip(), known)
        return SpokenTurn(content=words, thought=thought, calls=(call,))
    whole = _BRACKETED.match(text[action.start(1) :].strip()) or _BRACKETED.match(head)
    if whole is None:
        bad = BadCall(text=head, reason="Action Input is missing", name=head or None)
        return SpokenTurn(content=words, thought=thought, calls=(bad,))
    if whole[1].lower() in _FINISH and whole[1] not in known:
        return SpokenTurn(content=words, thought=thought, final=whole[2].strip())
    call = _acted(whole[1], whole[2].strip(), known)
    return SpokenTurn(content=words, thought=thought, calls=(call,))


def _acted(name: str, given: str, known: Known) -> Call:
    """An action with its input: JSON, or the text of the tool's only argument."""
    try:
        if given.startswith("{"):
            return ToolCall(name=name, arguments=read_arguments(given))
    except ValueError as error:
        return BadCall(text=given, reason=str(error), name=name)
    if not given:
        return ToolCall(name=name, arguments={})
    parameter = _lone_parameter(known.get(name))
    if parameter is None:
        reason = 'the input of an action is a JSON object, such as {"key": "value"}'
        return BadCall(text=given, reason=reason, name=name)
    fenced = _FENCE.match(given)
    properties = known[name].get("properties", {})
    value = _typed(fenced[1] if fenced else given, properties.get(parameter))
    return ToolCall(name=name, arguments={parameter: value})


def _lone_parameter(schema: Mapping[str, Any] | None) -> str | None:
    """The parameter that a tool needs alone, or that it has alone."""
    properties = list((schema or {}).get("properties", {}))
    required = list((schema or {}).get("required", ()))
    return next((names[0] for names in (required, properties) if len(names) == 1), None)
