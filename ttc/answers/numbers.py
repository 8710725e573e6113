r"""Numbers: the exact value of an answer that is one number from end to end.

`0.5`, `1/2`, `\frac12`, `50\%` and `$0.50` are one number. Percent is the number (`50%` is 1/2 and
not 50). A comma groups digits by exactly three after a head of one to three that does not begin
with 0; any other comma makes a list or a pair. A mixed number is the sum of its parts under one
sign, and no number at all where its fraction is 1 or more.

Known limits: words are not numbers (`five`), and nothing is computed. What has more than
`MAX_DIGITS` digits, or an exponent larger than that, is no number here, so that none is ever
costly.
"""

from __future__ import annotations

import re
from fractions import Fraction

from ttc.answers.algebra import MAX_DIGITS

__all__ = ["peel", "read_number", "read_peeled"]

_MAX_LENGTH = 4 * MAX_DIGITS
_MAX_LAYERS = 8
_MARKUP = "*_` \t\r\n\f\v\u00a0"
_TRAILING = ".,;:"

_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        ("[\u2212\u2010\u2011]", "-"),
        (r"\\[dt]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\!", ""),
        (r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*+\{([^{}]*+)\}", r"\1"),
        (r"(?<=[0-9])(?:\{,\}|\\,)(?=[0-9])", ","),
        (r"\\[,;: ]|\\q?quad(?![A-Za-z])|~", " "),
        (r"\\([%$])", r"\1"),
    )
)
_LAYERS = (
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("{", "}"),
    ('"', '"'),
    ("'", "'"),
    ("\u201c", "\u201d"),
)
_PARENTHESES = re.compile(r"\(\s*+([A-Za-z]|[-+]?[0-9./]++)\s*+\)")
_SHORT_FRACTION = re.compile(
    r"([0-9]?)\s*+\\frac\s*+(?:\{\s*+([-+]?[0-9.,]++)\s*+\}|([0-9]))"
    r"\s*+(?:\{\s*+([0-9.,]++)\s*+\}|([0-9]))(?!\s*+[0-9.])"
)
_SIGNED = re.compile(r"([-+]?)\s*+[$€£¥]?\s*+([-+]?)([^%€£¥]+)(%?)\s*+[€£¥]?", re.DOTALL)
_QUOTIENT = re.compile(
    r"(?:([0-9]++)\s++(?=[0-9]++\s*+/\s*+[0-9]++\Z))?+([^\s/]++)\s*+/\s*+([^\s/]++)"
)
_DECIMAL = re.compile(
    r"([0-9]++|[1-9][0-9]{0,2}(?:,[0-9]{3})++|(?=\.[0-9]))(?:\.([0-9]++))?(?:[eE]([-+]?[0-9]{1,9}))?"
)


def read_number(answer: str) -> Fraction | None:
    """The exact value of an answer that is one number from end to end, and otherwise `None`."""
    if answer.isdecimal() and answer.isascii() and len(answer) <= MAX_DIGITS:
        return Fraction(int(answer))  # most of them, and nothing surrounds it
    return read_peeled(peel(answer))


def read_peeled(text: str) -> Fraction | None:
    """The exact value of what `peel` left of an answer, or `None`."""
    if len(text) > _MAX_LENGTH:
        return None
    text = _SHORT_FRACTION.sub(_with_a_slash, text).strip()
    match = _SIGNED.fullmatch(text)
    if match is None or (match[1] and match[2]):
        return None
    value = _read_magnitude(match[3].strip())
    if value is None:
        return None
    if match[4]:
        value /= 100
    return -value if "-" in (match[1], match[2]) else value


def _read_magnitude(text: str) -> Fraction | None:
    quotient = _QUOTIENT.fullmatch(text)
    if quotient is None:
        return _read_decimal(text)
    above, below = _read_decimal(quotient[2]), _read_decimal(quotient[3])
    if above is None or not below:
        return None
    if quotient[1] is None:
        return above / below
    whole = _read_decimal(quotient[1])
    return None if whole is None or above >= below else whole + above / below


def _read_decimal(text: str) -> Fraction | None:
    match = _DECIMAL.fullmatch(text)
    if match is None:
        return None
    digits, decimals, exponent = match[1].replace(",", ""), match[2] or "", int(match[3] or 0)
    if len(digits) + len(decimals) > MAX_DIGITS or abs(exponent) > MAX_DIGITS:
        return None
    return int(digits + decimals) * Fraction(10) ** (exponent - len(decimals))


def _with_a_slash(match: re.Match[str]) -> str:
    whole, above, below = match[1], match[2] or match[3], match[4] or match[5]
    return f"{whole} {above}/{below}"


def peel(text: str) -> str:
    """Takes off what surrounds an answer without being part of it, layer by layer."""
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    for _ in range(_MAX_LAYERS):
        before, text = text, _peel_once(text)
        if text == before:
            break
    return " ".join(text.split())


def _peel_once(text: str) -> str:
    text = text.strip(_MARKUP).rstrip(_TRAILING + _MARKUP)
    for opening, closing in _LAYERS:
        inner = text[len(opening) : -len(closing)]
        if text == opening + inner + closing and opening not in inner and closing not in inner:
            return inner
    match = _PARENTHESES.fullmatch(text)
    return match[1] if match else text
