r"""Extraction: the answer that a text states, or `None`.

The latest statement decides. Where it is unclosed, cut off or empty there is no answer: there is no
falling back to an earlier one, and never to the whole text.

Known limits: a stated answer ends with its sentence or its line; a reasoning block is recognised by
`<think>` and `</think>` alone; numbers that are written as words are not seen.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice

from ttc.answers.blocks import last_code, last_json, lone_choice, read_choice
from ttc.answers.keys import answer_key
from ttc.answers.numbers import read_number
from ttc.types import AnswerFormat, FinishReason

__all__ = ["extract_answer"]

_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)\s*+(?:\{|\Z)|\\.|[{}]", re.DOTALL)
_MARKUP = re.compile(r"(?<!\S)[*_`]++(?=\S)|(?<=[^\s*_`])[*_`]++(?!\w)|(?<!\\)\\[()\[\]]|\$\$")
_LABEL = re.compile(
    r"^[ \t]*+(?:[#>*+-]++[ \t]++)?+(?:(?:step|part|case)[ \t])?[0-9]{1,3}[.):]++[ \t]++(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_SENTENCE = re.compile(r"[^\n]+?(?:(?<![.!?])[.!?]++(?=\s|\Z)|(?=\n)|\Z)")
_MARKER = re.compile(
    r"####[ \t]*+(?=[-+$\\0-9.])|\banswer[ \t]*+(?:is\b(?![ \t]*+not\b)[ \t]*+:?+|:)", re.IGNORECASE
)
_STATES = re.compile(
    r"\b(?:is|are|was|were|equals?|makes?|gives?|gets?|yields?|becomes?)\b(?!\s*+not\b)",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"\b(?:no|not|never|cannot|unable|unsure|sorry)\b|n['\u2019]t\b", re.IGNORECASE
)
_HEDGES = re.compile(r"\bor\b", re.IGNORECASE)
_FILLER = re.compile(
    r"\b(?:indeed|exactly|simply|just|thus|therefore|about|approximately|equal to|the number)\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"[;(]|,[ \t](?!and\b|or\b)(?=[A-Za-z])|\b(?:because|since|as|which|where|so)\b", re.IGNORECASE
)
_AROUND = "*_` \t"
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}+")
_LETTER = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")

_DIGITS = r"[0-9]++(?:(?:,|\{,\}|\\,)[0-9]++)*+"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+"
_ARGUMENT = r"\s?+(?:\{[-+0-9., ]*+\}|[0-9])"
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_^{.\\])(?:(?<![)\]}%$])[-+\u2212])?+(?:\\?\$|[€£¥])?+[-+\u2212]?+"
    rf"(?:(?:[0-9]++\s?+)?+\\[dt]?frac{_ARGUMENT}{_ARGUMENT}"
    rf"|[0-9]++\x20[0-9]++/[0-9]++|{_DECIMAL}(?:/{_DECIMAL})?+)(?:\s?\\?%)?+"
)
_EXPRESSION_BEFORE = re.compile(r"(?:[-+*/^\u00d7\u00f7\u00b7\u2212]|\w\()\Z")
_EXPRESSION_AFTER = re.compile(
    r"\s*+(?:[+*/^\u00d7\u00f7\u00b7<>=!]|[-\u2212]\s?[\w\\(]|\\(?!text|mathrm|quad)[A-Za-z]"
    r"|(?:hundred|thousand|million|billion|trillion|dozen)\b)|[A-Za-z0-9_]|\.[0-9]",
    re.IGNORECASE,
)


def extract_answer(
    text: str, format: AnswerFormat = "auto", *, finish_reason: FinishReason | None = None
) -> str | None:
    r"""The answer that `text` states.

    Only what follows the last `</think>` counts, and a `<think>` that stays open leaves no answer.

    Args:
        text: what the model wrote; never the prompt.
        format: what counts as a statement.

            - `"boxed"`: the last `\boxed{...}` or `\fbox{...}`, and nothing else.
            - `"marked"`: a box, else the last `#### 17`, `answer is X` or `Answer: X`.
            - `"number"`: as marked, where the statement holds one number, else the last number of
              the text. Lenient: it finds a number in almost any text.
            - `"auto"`: as marked, else a number that the text asserts: after its last `=`, or in
              the last sentence with a number in it. A list of numbers asserts none of them.
            - `"choice"`: the letter that a box or a marker states, or that the last line is.
            - `"code"`: the last fenced block.
            - `"json"`: the last JSON object or array.
            - `"text"`: the whole text.

            `"boxed"`, `"marked"`, `"code"` and `"json"` are strict: a text without the form that
            they ask for has no answer, however plain it is. The others are lenient, and none of
            them takes one guess out of a list of several.
        finish_reason: how the text ended. After anything but `"stop"` or `None` it was cut: a
            statement that runs into the cut is no answer, nor is a number that touches it, nor a
            whole text.

    Returns:
        The answer as it was written, less markup around it; it always has an `answer_key`.
    """
    text = text.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    is_cut = finish_reason not in {None, "stop"}
    match format:
        case "text":
            answer = None if is_cut else text.strip()
        case "choice":
            answer = _extract_choice(text, is_cut=is_cut)
        case "code":
            answer = last_code(text)
        case "json":
            answer = last_json(text)
        case _:
            answer = _extract_statement(text, format, is_cut=is_cut)
    return answer if answer_key(answer, format) is not None else None


def _extract_choice(text: str, *, is_cut: bool) -> str | None:
    stated = _extract_statement(text, "marked", is_cut=is_cut)
    if stated is not None:
        return read_choice(stated) or lone_choice(stated)
    is_open = _last_box(text) is not None  # a box that is not closed, or states nothing
    return None if is_cut or is_open else lone_choice(text)


def _extract_statement(text: str, format: AnswerFormat, *, is_cut: bool) -> str | None:
    box = _last_box(text)
    if box is not None or format == "boxed":
        return box
    text = _LABEL.sub("", _MARKUP.sub("", text))
    sentences = [match[0] for match in _SENTENCE.finditer(text) if match[0].strip()]
    is_last_open = is_cut and text.endswith(sentences[-1]) if sentences else False
    value = _last_marked(sentences, is_last_open=is_last_open)
    if value is not None and format != "marked":
        return _stated_number(value) or (value if format == "auto" else None)
    if value is not None or format == "marked":
        return value
    if is_cut and _ends_in_number(text):
        return None
    return _last_number(text) if format == "number" else _asserted_number(sentences)


def _last_box(text: str) -> str | None:
    """The content of the box that opens last; `""` if it never closes, `None` without any box."""
    opened: list[int] = []  # where the content of a box starts, 0 for any other brace
    last, content = 0, None
    for match in _BOX_OR_BRACE.finditer(text):
        if match[0] == "}":
            start = opened.pop() if opened else 0
            if start and start == last:
                content = text[start : match.start()].strip()
        elif match[0] == "{":
            opened.append(0)
        elif match[0].startswith((r"\boxed", r"\fbox")):
            opened.append(match.end())
            last, content = match.end(), ""
    return content


def _last_marked(sentences: list[str], *, is_last_open: bool) -> str | None:
    """What the last marker states; `""` if that is cut or missing, `None` without any marker."""
    for index in range(len(sentences) - 1, -1, -1):
        start = max((marker.end() for marker in _MARKER.finditer(sentences[index])), default=None)
        if start is None:
            continue
        value = sentences[index][start:].strip()
        if not value:
            index += 1
            value = sentences[index].strip() if index < len(sentences) else ""
        if value.endswith("?"):
            continue
        return "" if is_last_open and index >= len(sentences) - 1 else _strip(value)
    return None


def _asserted_number(sentences: list[str]) -> str | None:
    """The number of the latest sentence that asserts one."""
    numeric = [s for s in sentences if _NUMBER.search(s) and not s.endswith("?")]
    if not numeric:
        return None
    last = numeric[-1]
    if "=" not in last and (number := _number_after_verb(last)):
        return number
    for sentence in reversed(numeric):
        if not _HEDGES.search(sentence) and (number := _number_after_equals(sentence)):
            return number
    return _leading_number(last) if _STATES.search(last) else _only_number(last)


def _number_after_verb(sentence: str) -> str | None:
    """The number that a sentence says something is, equals or gives."""
    last_number = max(match.start() for match in _NUMBER.finditer(sentence))
    verbs = (verb.end() for verb in _STATES.finditer(sentence))
    stated = max((end for end in verbs if end <= last_number), default=None)
    return None if stated is None else _only_number(sentence[stated:])


def _stated_number(value: str) -> str | None:
    """The number that a marked value comes to: the one that it begins with, or `... = 17`."""
    return _leading_number(value) or _number_after_equals(value)


def _number_after_equals(text: str) -> str | None:
    """The number after the last `=`, where the left side is arithmetic or one variable."""
    left, equals, right = text.rpartition("=")
    if not equals or left.endswith(("<", ">", "!")):
        return None
    words = list(_WORD.finditer(left))
    left = left[words[-1].end() if words else 0 :].rpartition("=")[2].strip(" \t$:,")
    if len(left) > 1 and _LETTER.search(left):
        return None  # an equation such as 2x + y = 0 states no value
    return _leading_number(right)


def _leading_number(text: str) -> str | None:
    """The number that `text` begins with, where its first clause asserts no other."""
    end = _CLAUSE_END.search(text)
    clause = text[: end.start()] if end else text
    first = _NUMBER.search(clause)
    if first is None or _FILLER.sub("", clause[: first.start()]).strip(" \t$"):
        return None
    return _only_number(text, until=len(clause))


def _only_number(text: str, until: int | None = None) -> str | None:
    """The one number of `text`, unless it is part of an expression, denied or one of several."""
    clause = text[:until]
    numbers = list(islice(_NUMBER.finditer(clause), 2))
    if len(numbers) != 1 or "=" in clause or _DENIES.search(clause) or _HEDGES.search(clause):
        return None
    start, end = numbers[0].span()
    before = clause[:start].rstrip()[-2:]
    if _EXPRESSION_BEFORE.search(before) or _EXPRESSION_AFTER.match(text, end):
        return None
    return _as_written(numbers[0])


def _last_number(text: str) -> str | None:
    last = deque(_NUMBER.finditer(text), maxlen=1)
    return _as_written(last[0]) if last else None


def _ends_in_number(text: str) -> bool:
    last = deque(_NUMBER.finditer(text), maxlen=1)
    return bool(last) and not text[last[0].end() :].strip(" \t.,/")


def _as_written(number: re.Match[str]) -> str | None:
    text = number[0]
    if number.string.startswith("$", number.end()):
        text = text.removeprefix("$")  # it opened a formula, not an amount
    return text if read_number(text) is not None else None


def _strip(value: str) -> str:
    value = value.strip(_AROUND).rstrip(_AROUND + ".,;:!").lstrip(_AROUND)
    inner = value[1:-1]
    return inner.strip() if value == f"${inner}$" and "$" not in inner else value
