"""What a judge decided, read from the end of its own words and from nowhere else.

The last line must be the verdict, to the letter that was asked for, less bold marks and a full
stop. Anything else is unknown: prose, a second thought after it, a cut text, a number off the
scale. A verdict is text; it is never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ttc.errors import EngineError
from ttc.ports import Scope
from ttc.prompts import prompt
from ttc.types import Branch, Sampling

__all__ = ["Verdict", "ask", "choice_on", "grade_on", "index_on", "said", "verdict_of"]

_LINE = re.compile(r"\**verdict:\**\s*\**([a-z0-9]{1,12})\**\.?\**", re.IGNORECASE | re.ASCII)
_SHOWN = 200


class Verdict(NamedTuple):
    """What was decided, or why that is not known."""

    value: float | None
    reason: str | None = None


Reader = Callable[[str], float | None]
"""The value of a verdict's word, or `None` where it is none of those asked for."""


def grade_on(scale: tuple[int, int]) -> Reader:
    """Reads a whole number on a scale, as a fraction of it."""
    low, high = scale

    def read(word: str) -> float | None:
        if not word.isdecimal() or not low <= int(word) <= high:
            return None
        return (int(word) - low) / (high - low)

    return read


def choice_on(first: Literal["A", "B"]) -> Reader:
    """Reads A, B or tie: 1 where the one shown as `first` is better, 0 where the other one is."""

    def read(word: str) -> float | None:
        word = word.upper()
        if word == "TIE":
            return 0.5
        return float(word == first) if word in ("A", "B") else None

    return read


def index_on(count: int) -> Reader:
    """Reads the number of one of so many things, counted from 1; its place, counted from 0."""

    def read(word: str) -> float | None:
        return float(int(word) - 1) if word.isdecimal() and 1 <= int(word) <= count else None

    return read


async def ask(
    scope: Scope,
    role: str,
    paragraphs: tuple[str, ...],
    *,
    read: Reader,
    index: int,
    max_tokens: int,
    temperature: float,
) -> Verdict:
    """Asks a judge, and reads its verdict. A judge that fails, or has no room, gives none."""
    try:
        branch = await scope.generate(
            prompt(scope, role, *paragraphs),
            index=index,
            max_tokens=max_tokens,
            sampling=Sampling(temperature=temperature),
        )
    except EngineError as error:
        return Verdict(None, f"{type(error).__name__}: {error}")
    return verdict_of(branch, read)


def said(branch: Branch) -> str | None:
    """A model's words after its thoughts; `None` where it never ended to think."""
    _, ended, words = branch.text.rpartition("</think>")
    thinks = next(branch.lineage()).text.rstrip().endswith("<think>") and not ended
    return None if thinks or "<think>" in words else words


def verdict_of(branch: Branch, read: Reader) -> Verdict:
    """What a judge's words end with."""
    if branch.finish_reason != "stop":
        return Verdict(None, f"the judge did not end: {branch.finish_reason}")
    words = said(branch)
    if words is None:
        return Verdict(None, "the judge ended inside a thought")
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    if not lines:
        return Verdict(None, "the judge said nothing")
    found = _LINE.fullmatch(lines[-1])
    value = read(found[1]) if found is not None else None
    if value is None:
        return Verdict(None, f"the judge's last line is no verdict: {lines[-1][:_SHOWN]!r}")
    return Verdict(value)
