"""Whether a program's output is the expected one: integers and words exactly, floats nearly.

*Differs:* many graders compare tokens as decimals, which fails right floats, or everything with one
tolerance, which accepts two different long integers.
"""

from __future__ import annotations

import math
import re
from typing import Literal

__all__ = ["Layout", "same_output"]

Layout = Literal["lines", "tokens"]
"""Whether line breaks count, or only the order of the tokens."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_LONGEST_NUMBER = 400


def same_output(
    expected: str,
    got: str,
    *,
    tolerance: float = 1e-6,
    layout: Layout = "lines",
    ignore_case: bool = False,
) -> bool:
    """Whether `got` says what `expected` says.

    Two tokens are the same if they are equal; or if both are numbers, the expected one is written
    as a float, and they differ by at most `tolerance`, absolutely or relative to the expected one.
    Spaces between tokens and at the ends do not count; blank lines at the end neither.
    """
    mine, theirs = _rows(expected, layout), _rows(got, layout)
    if [len(row) for row in mine] != [len(row) for row in theirs]:
        return False
    return all(
        _same_token(a, b, tolerance, ignore_case)
        for row, other in zip(mine, theirs, strict=True)
        for a, b in zip(row, other, strict=True)
    )


def _rows(text: str, layout: Layout) -> list[list[str]]:
    if layout == "tokens":
        return [text.split()]
    rows = [line.split() for line in text.splitlines()]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _same_token(expected: str, got: str, tolerance: float, ignore_case: bool) -> bool:
    if expected == got or (ignore_case and expected.casefold() == got.casefold()):
        return True
    if _INTEGER.fullmatch(expected):
        return False
    mine, theirs = _number(expected), _number(got)
    if mine is None or theirs is None:
        return False
    return abs(mine - theirs) <= tolerance * max(1.0, abs(mine))


def _number(token: str) -> float | None:
    if len(token) > _LONGEST_NUMBER or not _FLOAT.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None
