"""Blocks: choices, programs and JSON values that a text states.

As with every statement the last one decides, and one that is not closed is no answer: a list that
was cut is never repaired into a shorter one.
"""

from __future__ import annotations

import json
import re

__all__ = [
    "MAX_DEPTH",
    "last_code",
    "last_json",
    "lone_choice",
    "nesting",
    "read_choice",
    "read_json",
]

MAX_DEPTH = 50
"""The deepest nesting of JSON that is read."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*$", re.MULTILINE)
_CHOICE = re.compile(
    r"(?:the[ ])?(?:option|choice)?\s*+[*_`$]*+(?:\\text\{)?"
    r"(?:\(([A-Za-z])\)|([A-Z])(?=[.,:;)}*_`$]|\s*+\Z|\s+(?:because|since|as)\b))",
    re.IGNORECASE,
)
_LONE = re.compile(r"[*_`$(]*([A-Z])[*_`$).:]*")
_JSON_PIECE = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\]]', re.DOTALL)


def read_choice(value: str) -> str | None:
    """The letter that a stated value begins with."""
    match = _CHOICE.match(value.strip())
    letter = match and (match[1] or match[2])
    if not letter or (match and match[2] and not match[2].isupper()):
        return None
    return letter.upper()


def lone_choice(text: str) -> str | None:
    """The letter that the last line of a text consists of."""
    lines = text.strip().splitlines()
    match = _LONE.fullmatch(lines[-1].strip()) if lines else None
    return match[1] if match else None


def last_code(text: str) -> str | None:
    """The content of the last fenced block; `None` without one, or if it never closes."""
    opening: re.Match[str] | None = None
    content: str | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening, content = fence, None
        elif fence[1].startswith(opening[1]) and fence[0].strip() == fence[1]:
            content = text[opening.end() + 1 : fence.start()]
            opening = None
    return content if content and content.strip() else None


def last_json(text: str) -> str | None:
    """The last JSON object or array of a text; `None` without one, or if it never closes."""
    depth, start = 0, 0
    found: str | None = None
    for piece in _JSON_PIECE.finditer(text):
        if piece[0] in "{[":
            if depth == 0:
                start, found = piece.start(), None
            depth += 1
        elif piece[0] in "}]" and depth:
            depth -= 1
            if depth == 0:
                found = text[start : piece.end()]
    if found is None or depth or read_json(found) is None:
        return None
    return found


def read_json(text: str) -> object | None:
    """The value of a JSON text; `None` where it is none, or nested too deep. NaN is no JSON."""
    if nesting(text) > MAX_DEPTH:
        return None
    try:
        return json.loads(text, parse_constant=_refuse)  # type: ignore[no-any-return]
    except ValueError:
        return None


def nesting(text: str) -> int:
    """How deep the brackets of a text nest."""
    depth = deepest = 0
    for piece in _JSON_PIECE.finditer(text):
        if piece[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif piece[0] in "]}":
            depth -= 1
    return deepest


def _refuse(name: str) -> float:
    raise ValueError(name)
