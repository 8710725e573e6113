r"""Lexer: an answer as tokens, with the spellings of LaTeX, Unicode and plain text made one.

Every substitution is linear in the text, and a text of more than `MAX_LENGTH` characters or
`MAX_TOKENS` tokens is no expression.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ttc.answers.algebra import Unreadable

__all__ = ["MAX_LENGTH", "MAX_TOKENS", "ROW_END", "Token", "tokenize"]

MAX_LENGTH = 2400
"""The longest text that is read as an expression, in characters."""
MAX_TOKENS = 800
ROW_END = "\ue002"
"""What ends the row of a matrix, in place of two backslashes."""

_UNICODE = str.maketrans(
    {
        "\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2013": "-",
        "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ", "\u00f7": r"\div ",
        "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ",
        "\u2260": r"\ne ", "\u00b1": r"\pm ", "\u2213": r"\mp ", "\u00b0": r"^\circ ",
        "\u222a": r"\cup ", "\u2208": r"\in ", "\u2205": r"\emptyset ", "\u221a": r"\sqrt ",
        "\u00b2": "^2", "\u00b3": "^3", "\u03b8": r"\theta ", "\u03b1": r"\alpha ",
        "\u03b2": r"\beta ", "\u00bd": r"\frac12 ", "\u00bc": r"\frac14 ", "\u00be": r"\frac34 ",
        "\u00a0": " ", "~": " ",
    }
)  # fmt: skip
_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\\\", ROW_END),
        (r"(?<=[0-9])(?:\{,\}|,\\!\s*+|\\,)(?=[0-9]{3}(?![0-9]))", ""),
        (r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|mathopen|mathclose)"
         r"(?![A-Za-z])\.?", ""),
        (r"\\[!,;:> ]|\\q?quad(?![A-Za-z])|\\thinspace(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:operatorname|mathrm|mathbf|mathit|boldsymbol|bm)\s*+\*?\{([A-Za-z]++)\}", r" \1 "),
        (r"\\(?:text|textbf|textit|textrm|mbox|hbox)\s*+\{([^{}]*+)\}", "\ue000\\1\ue001"),
        (r"\\[$]|[$€£¥]", ""),
        (r"\*\*", "^"),
        (r"<=|\\leq?(?:slant|q)?(?![A-Za-z])", r"\\le "),
        (r">=|\\geq?(?:slant|q)?(?![A-Za-z])", r"\\ge "),
        (r"!=|\\neq?(?![A-Za-z])", r"\\ne "),
        (r"\^\s*+\{?\s*+\\(?:circ|degree)(?![A-Za-z])\s*+\}?", r"\\degree "),
        (r"\\(?:[lr]vert|mid)(?![A-Za-z])", "|"),
        (r"\\l?dots(?![A-Za-z])|\.\.\.", r"\\dots "),
    )
)  # fmt: skip
_TOKEN = re.compile(
    r"(\s*+)(?:"
    r"(?P<number>[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)"
    r"|(?P<command>\\[A-Za-z]++|\\.)"
    r"|(?P<word>[A-Za-z]++)"
    "|\ue000(?P<quoted>[^\ue000\ue001]*+)\ue001"
    r"|(?P<sign>.))",
    re.DOTALL,
)


class Token(NamedTuple):
    """A piece of an answer."""

    kind: str
    """`number`, `command`, `word`, `quoted` for text inside a formula, or `sign`."""
    text: str
    is_spaced: bool = False
    """Whether white space stands before it."""


def tokenize(text: str) -> list[Token]:
    """The tokens of an answer.

    Raises:
        Unreadable: it is too long.
    """
    if len(text) > MAX_LENGTH:
        raise Unreadable(f"more than {MAX_LENGTH} characters")
    text = text.translate(_UNICODE)
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    tokens = [
        Token(str(match.lastgroup), match[str(match.lastgroup)].strip(), bool(match[1]))
        for match in _TOKEN.finditer(text.strip())
    ]
    if len(tokens) > MAX_TOKENS:
        raise Unreadable(f"more than {MAX_TOKENS} tokens")
    return tokens
