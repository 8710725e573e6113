"""Grammars of turns that may call tools: words, or calls whose arguments their schemas allow.

A grammar is a text in llguidance's dialect of Lark. What it allows, `ttc.tool_calls.read_turn`
reads as words without a call, or as calls of known tools alone: after a mark comes nothing but a
call, and words hold no mark.

Where a family's mark is a control token, which spells no text, the grammar names its id, and allows
the same call without it.

ReAct's turns are not closed by an end token, so its grammar is that of the whole conversation, with
the observations that were appended.

Differs: a turn that calls is words and then calls, and nothing follows them. It has at most eight,
and as ReAct one. Words begin with nothing that begins JSON, which could be a call without its mark;
as ReAct they may. A number that its schema leaves unbounded is at most 2^53, and an object has only
keys that its schema lists.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

__all__ = ["JSON_OPTIONS", "call_grammar", "schema_of_calls"]

Known: TypeAlias = Mapping[str, Mapping[str, Any]]

_MOST_CALLS = 8
_MOST_NUMBER = 2**53
JSON_OPTIONS = {"whitespace_pattern": r"( |\n {0,16})", "json_allowed_escapes": 'nrbtf\\"'}
"""White space is bounded; and no `\\u`, by which a key could be written twice in other letters."""

_TEXT_KEYWORDS = {"type", "enum", "const", "minLength", "maxLength", "title", "description"}
_TEXT_KEYWORDS |= {"default", "examples"}
"""What the schema of a text may say that stands between elements, and not in JSON."""

_JSON_FIRST = r'[ \t\r\n]*(```[A-Za-z0-9_-]*\n[ \t\r\n]*)?[\[{"]'
"""How JSON begins that stands for a whole turn."""
_BARE = [r'bare: body | FENCE body "\n"? "```"', r"FENCE: /```(json)?\n/"]
_ELEMENTS = r"<parameter=|<\/parameter>|<\/function>|<\/?tool_call>"
_WORDS = "WORDS: /(?s:.*)/ & ~"
_THOUGHT = r"""
UNENDED: /(?s:.*)/ & ~/(?s:.*)<\/think>(?s:.*)/
thought[lazy]: /[ \t\r\n]*<think>(?s:.*)<\/think>/
begun[lazy]: /(?s:.*)<\/think>/
"""
_REACT = r"""
HEAD: /((?s:.*)\n)?[ \t*]*/
LEFT: HEAD /(Final Answer|Observation( [0-9]+)?)[ \t*]*:(?s:.*)/
DONE: HEAD /(Final Answer|Action( [0-9]+)?)[ \t*]*:(?s:.*)/
ACTION: (HEAD /Action( [0-9]+)?[ \t*]*:/) & ~LEFT
OBSERVED: (HEAD /Observation( [0-9]+)?[ \t*]*:/) & ~DONE
WORDS: /(?s:.*)/ & ~(ACTION /(?s:.*)/ | OBSERVED /(?s:.*)/ | /(?s:.*)<\/think>(?s:.*)/)
action[lazy]: ACTION
observed[lazy]: OBSERVED
"""


def call_grammar(
    form: str,
    known: Known,
    control: Mapping[str, int],
    *,
    is_thinking: bool = False,
    may_call: bool = True,
) -> str:
    """The grammar of a turn.

    Args:
        form: how the model writes calls, as `ttc.tool_calls.Form` has it.
        known: the schemas of the tools' arguments, by name.
        control: the ids of the vocabulary's control tokens, by their text.
        is_thinking: whether the turn begins within a thought, since its prompt has opened one.
        may_call: whether it may call something; else it is words that could be no call.

    Raises:
        ValueError: the form has no grammar for a schema.
    """
    lines: Iterable[str]
    if form == "react":
        lines = _lines_of_actions(known)
    elif form == "xml":
        lines = _tags("", _elements(known))
    elif form == "hermes" and "<tool_call>" not in control:
        lines = [*_tags("| bare ", _json("body", schema_of_calls(known))), *_BARE]
    else:
        lines = _unmarked(form, known, control)
    turn = "turn" if may_call else "WORDS"
    start = f"begun {turn} | UNENDED" if is_thinking else f"thought? {turn}"
    return "\n".join([f"start: {start}", _THOUGHT, *lines]) + "\n"


def schema_of_calls(known: Known, key: str = "arguments") -> dict[str, Any]:
    """The JSON schema of one call of one of some tools.

    Args:
        known: the schemas of their arguments, by name.
        key: what the model calls a call's arguments: Llama 3 has `parameters`.
    """
    each: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for place, (name, parameters) in enumerate(known.items()):
        own, defs = _hoisted(parameters, f"{place}.")
        shared |= defs
        each.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, key: own},
                "required": ["name", key],
                "additionalProperties": False,
            }
        )
    one: dict[str, Any] = each[0] if len(each) == 1 else {"anyOf": each}
    return {**one, "$defs": shared} if shared else one


def _hoisted(schema: Mapping[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema without the parts that it refers to, and those parts, under names of their own."""

    def moved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: _named(v, prefix) if k == "$ref" else moved(v) for k, v in value.items()}
        return [moved(part) for part in value] if isinstance(value, list) else value

    own = moved({k: v for k, v in schema.items() if k not in ("$schema", "$defs", "definitions")})
    parts = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    return own, {prefix + name: moved(part) for name, part in parts.items()}


def _named(ref: Any, prefix: str) -> Any:
    """A reference to a part of a schema, where that part has moved to."""
    return re.sub(r"^#/(\$defs|definitions)/", f"#/$defs/{prefix}", str(ref))


# The forms of model families


def _tags(bare: str, body: Iterable[str]) -> list[str]:
    """Calls between tags that spell text, behind any words; or one that has no tags."""
    return [
        f"turn: WORDS {bare}| pre call (sep call){{0,{_MOST_CALLS - 1}}}",
        rf"{_WORDS}/((?s:.*)(<tool_call>|<\/think>)|{_JSON_FIRST})(?s:.*)/",
        rf"PRE: /(?s:.*)<tool_call>/ & ~/((?s:.*)<think>|{_JSON_FIRST})(?s:.*)/",
        "pre[lazy]: PRE",
        r'sep: "\n"? "<tool_call>"',
        r'call: "\n"? body "\n"? "</tool_call>"',
        *body,
    ]


def _unmarked(form: str, known: Known, control: Mapping[str, int]) -> list[str]:
    """Calls whose mark is a control token, or none: the whole turn is calls, or words."""
    names = {"hermes": "<tool_call>", "llama": "<|python_tag|>", "mistral": "[TOOL_CALLS]"}
    mark = f"<[{control[names[form]]}]>" if names[form] in control else None
    optional = f"{mark}? " if mark else '"[TOOL_CALLS]"? ' if form == "mistral" else ""
    if form == "mistral" and mark and "[ARGS]" in control:
        return [*_words(known, names[form]), *_names(known, mark, f"<[{control['[ARGS]']}]>")]
    schema = schema_of_calls(known, "parameters" if form == "llama" else "arguments")
    if form == "mistral":
        shared = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        array = {"type": "array", "items": schema, "minItems": 1, "maxItems": _MOST_CALLS}
        return [
            *_words(known, names[form]),
            f"calls: {optional}body",
            *_json("body", array | shared),
        ]
    more = f"(/[; \\n]{{1,4}}/ {optional}body){{0,{_MOST_CALLS - 1}}}"
    return [
        *_words(known, names[form]),
        f"calls: {optional}body {more}",
        *_json("body", schema),
    ]


def _words(known: Known, mark: str) -> list[str]:
    """A turn of words, none of which could be a call without its mark."""
    white, names = r"[ \t\r\n]*", "|".join(map(re.escape, known))
    marked = rf"(?s:.*)({re.escape(mark)}|<\/think>)"
    return [
        "turn: WORDS | calls",
        rf"{_WORDS}/({_JSON_FIRST}|{marked}|{white}({names}){white}[\[{{])(?s:.*)/",
    ]


def _names(known: Known, mark: str, border: str) -> Iterator[str]:
    """Mistral's later form: a name, and its arguments after a border."""
    each = [f"{mark} {_text(name)} {border} a{n}" for n, name in enumerate(known)]
    yield f"calls: call{{1,{_MOST_CALLS}}}"
    yield f"call: {' | '.join(each)}"
    for n, schema in enumerate(known.values()):
        yield from _json(f"a{n}", schema)


def _elements(known: Known) -> Iterator[str]:
    """Qwen3-Coder: an element for each argument, in the order of the schema."""
    yield f"body: {' | '.join(f'f{n}' for n in range(len(known)))}"
    for n, (name, schema) in enumerate(known.items()):
        needed = schema.get("required", ())
        parts = []
        for k, (key, part) in enumerate(schema.get("properties", {}).items()):
            if not re.fullmatch(r"[^<>\s]+", key):
                raise ValueError(f"{name}: no element can be called {key!r}")
            parts.append(f"p{n}_{k}{'' if key in needed else '?'}")
            yield f'p{n}_{k}: {_text(f"<parameter={key}>{chr(10)}")} v{n}_{k} "\\n"?'
            yield from _value(f"v{n}_{k}", part, schema)
        yield f'f{n}: {_text(f"<function={name}>{chr(10)}")} {" ".join(parts)} "</function>"'


def _value(rule: str, part: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """An argument between elements: a text as it is, and all else as JSON."""
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    if part.get("type") != "string":
        yield f'{rule}: {rule}_json "\\n</parameter>"'
        yield from _json(f"{rule}_json", {**shared, **part})
        return
    if unknown := sorted(set(part) - _TEXT_KEYWORDS):
        raise ValueError(f"a text between elements is not held to {', '.join(unknown)}")
    options = [part["const"]] if "const" in part else part.get("enum")
    if options is not None:
        if bad := [o for o in options if re.search(_ELEMENTS, str(o)) or str(o) != str(o).strip()]:
            raise ValueError(f"{bad[0]!r} cannot stand between elements")
        yield f'{rule}: ({" | ".join(_text(str(o)) for o in options)}) "\\n</parameter>"'
        return
    least, most = part.get("minLength", 0), part.get("maxLength", "")
    count = "*" if (least, most) == (0, "") else f"{{{least},{most}}}"
    name, end = rule.upper(), r"\n<\/parameter>"
    yield f"{name}: /(?s:.){count}{end}/ & ~/(?s:.*)({_ELEMENTS})(?s:.*){end}/"
    yield f"{rule}[lazy]: {name}"


def _lines_of_actions(known: Known) -> Iterator[str]:
    """ReAct: thoughts, and then an action with its input, or an answer."""
    each = [
        f'{_text(f" {name}" + chr(10) + "Action Input:")} " "? a{n}' for n, name in enumerate(known)
    ]
    yield 'turn: (acted "\\nObservation:" /[^\\n]*\\n/)* (WORDS | observed | acted)'
    yield f"acted: action ({' | '.join(each)})"
    yield _REACT
    for n, schema in enumerate(known.values()):
        yield from _json(f"a{n}", schema)


# Its parts


def _json(rule: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """A rule for a JSON value."""
    held = _bounded({k: v for k, v in schema.items() if k != "$schema"})
    yield f"{rule}: %json {json.dumps({**held, 'x-guidance': JSON_OPTIONS})}"


def _bounded(value: Any) -> Any:
    """A schema whose numbers a float holds, and whose objects have the keys that it lists."""
    if isinstance(value, list):
        return [_bounded(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    held: dict[str, Any] = {}
    for key, part in value.items():
        if key in ("properties", "patternProperties", "$defs", "definitions"):
            held[key] = {name: _bounded(one) for name, one in part.items()}
        else:
            held[key] = part if key in ("const", "enum", "default", "examples") else _bounded(part)
    types = held.get("type")
    if not {"integer", "number"}.isdisjoint([types] if isinstance(types, str) else types or ()):
        if "minimum" not in held and "exclusiveMinimum" not in held:
            held["minimum"] = -_MOST_NUMBER
        if "maximum" not in held and "exclusiveMaximum" not in held:
            held["maximum"] = _MOST_NUMBER
    if "properties" in held and "patternProperties" not in held:
        held.setdefault("additionalProperties", False)  # of another key two could come
    return held


def _text(text: str) -> str:
    """A text as a grammar spells it."""
    return json.dumps(text, ensure_ascii=False)
