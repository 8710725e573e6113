r"""Keys of answers: equal answers share one, and it says of what kind they are.

A rational in any spelling has the key `("number", Fraction)`: `0.5`, `1/2`, `\frac12`, `50\%`,
`$0.50` and `2^{-1}` are one number. Expressions, sets, intervals and the other kinds of
`ttc.answers.kinds` have keys of their normal forms: order and spelling are no difference, but
products of sums are not multiplied out, and no identity is used. Everything else has the key
`("text", ...)`, of its text without outer markup, case and idle white space.
"""

from __future__ import annotations

from collections.abc import Hashable

from ttc.answers.parser import parse_answer
from ttc.types import AnswerFormat

__all__ = ["answer_key"]


def answer_key(answer: str | None, format: AnswerFormat = "auto") -> Hashable | None:
    """What equal answers share; `None` for no answer, an empty one, or nothing but markup.

    Args:
        answer: an answer, as `extract_answer` gives it.
        format: the format by which it was extracted.
    """
    parsed = None if answer is None else parse_answer(answer, format)
    return None if parsed is None else parsed.key
