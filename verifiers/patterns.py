"""Regular expressions that cannot hang: RE2, in time linear in the text, and bounded even so.

Source: Cox 2010, "Regular expression matching in the wild" (RE2). What needs backtracking, such as
lookaround and back references, is no part of its language, and is refused when a pattern is made.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from ttc.registry import install_hint

__all__ = ["TooMuchWork", "compiled", "fits"]

_MAX_WORK = 20_000_000
"""Characters times instructions of a pattern: at the most a few tenths of a second."""


class TooMuchWork(Exception):
    """A text that is too long for its pattern."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """A pattern, ready to search.

    Raises:
        ValueError: it is no regular expression of RE2, or RE2 is not installed.
    """
    try:
        re2 = import_module("re2")
    except ModuleNotFoundError:
        raise ValueError(
            f"regular expressions need google-re2, which is missing: {install_hint('verify')}"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if len(error.args) == 1 else error
        told = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"the pattern {pattern!r} is not in the language of RE2: {told}") from None


def fits(pattern: Any, text: str, *, whole: bool) -> bool:
    """Whether a text matches: as a whole, or somewhere in it.

    Raises:
        TooMuchWork: it is too long for the pattern, whatever it holds.
        UnicodeEncodeError: it holds half a surrogate pair.
    """
    work = len(text) * pattern.programsize
    if work > _MAX_WORK:
        raise TooMuchWork(
            f"{len(text)} characters are too many for a pattern of {pattern.programsize} steps"
        )
    found = pattern.fullmatch(text) if whole else pattern.search(text)
    return found is not None
