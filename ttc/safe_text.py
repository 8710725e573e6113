"""Texts of models, verifiers, servers and files, as a terminal and a log may show them.

Whoever wrote such a text may want it to steer the terminal, to begin a line that looks like one of
ours, or to be read in another order than it is written in. What is kept or computed with is never
changed: only what is shown.
"""

from __future__ import annotations

import logging
import traceback
import unicodedata
from collections.abc import Mapping

__all__ = ["one_line", "printable", "safe_logger", "traceback_of"]

_REORDERS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""What makes a terminal show characters in another order.

Source: Boucher and Anderson 2021, Trojan Source, arXiv 2111.00169.
"""
_MOST = 1_000
"""Characters of one text in a line of the log."""


def printable(text: str) -> str:
    """The text with a mark in the place of whatever steers a terminal."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if _steers(character) else character for character in text
    )


def _steers(character: str) -> bool:
    if character in "\n\t":
        return False
    return unicodedata.category(character) in ("Cc", "Cs") or character in _REORDERS


def one_line(text: str, at_most: int | None = None) -> str:
    """The text on one line, cut where it is longer than `at_most`."""
    line = printable(" ".join(text.split()))
    return line if at_most is None or len(line) <= at_most else line[: at_most - 3] + "..."


def traceback_of(error: BaseException) -> str:
    """A traceback in which no line begins at the margin, as those of a log do."""
    lines = printable("".join(traceback.format_exception(error))).splitlines()
    return "\n".join(f"  {line}" for line in lines)


def safe_logger(name: str) -> logging.Logger:
    """The logger of a module: each text that is put into a line stays on it, printable."""
    found = logging.getLogger(name)
    found.addFilter(_plain)
    return found


def _plain(record: logging.LogRecord) -> bool:
    """Changes what a record shows, and lets it pass."""
    if isinstance(record.args, Mapping):
        record.args = {name: _shown(value) for name, value in record.args.items()}
    elif record.args:
        record.args = tuple(_shown(value) for value in record.args)
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = traceback_of(record.exc_info[1])  # which formatters take as it is
    return True


def _shown(value: object) -> object:
    return value if isinstance(value, int | float) else one_line(str(value), _MOST)
