r"""Game of 24: four numbers, each used once, with + - * / to give 24.

A solution is checked exactly, in fractions. It may be a formula, `formula = 24`, or written in
LaTeX's `\times`, `\div` and `\frac`. Nothing is evaluated by Python.

Source: Yao et al. 2023, Tree of Thoughts, arXiv 2305.10601, section 4.1; the hard puzzles that it
tests are those of the ranks 901 to 1,000.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ttc.benchmarks.tasks import Item, Reference, Task
from ttc.errors import RecordError
from ttc.types import Candidate, Problem, Score

__all__ = ["Game24", "game24", "solves"]

_QUESTION = (
    "Use the numbers {} and the operations + - * / to obtain 24. Use each number exactly once; "
    "parentheses are allowed. End with a line of the form: Answer: (formula) = 24"
)
_MAX_LENGTH = 200
_MAX_DEPTH = 50
_TARGET = 24
_TOKEN = re.compile(r"\s*(?:(\d+)|([-+*/()]))")
_SPELLINGS = {
    r"\times": "*", r"\cdot": "*", r"\div": "/",
    "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2212": "-",
    r"\left": "", r"\right": "", "[": "(", "]": ")", "$": "", r"\(": "", r"\)": "", "`": "",
}  # fmt: skip
_FRACTION = re.compile(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}")


@dataclass(frozen=True, kw_only=True)
class Game24:
    """Right is a formula of exactly the given numbers that gives 24.

    The reference's `answer` holds the numbers, so the grade says what anybody could check.
    """

    def __call__(self, reference: Reference, candidate: Candidate) -> Score:
        """1 or 0."""
        numbers = [int(number) for number in reference.answer.split()]
        right = candidate.answer is not None and solves(candidate.answer, numbers)
        return Score(value=float(right), verifier="game24")


def game24(path: Path, *, first: int = 0, num_problems: int | None = None) -> Task:
    """The puzzles of a CSV file with a column `Puzzles`, in its order.

    Args:
        path: the file.
        first: puzzles that are left out before the first.
        num_problems: how many; all that follow by default.

    Raises:
        RecordError: it cannot be read, or has no puzzles there.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            puzzles = [row["Puzzles"].strip() for row in csv.DictReader(file)]
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is not in UTF-8: {error}; save it anew in that") from error
    except (KeyError, AttributeError):
        raise RecordError(f"{path} has no column 'Puzzles'") from None
    for line, puzzle in enumerate(puzzles, 2):
        if not all(map(str.isdecimal, puzzle.split())) or not puzzle:
            raise RecordError(f"{path}: line {line} holds no numbers, but {puzzle!r}")
    end = None if num_problems is None else first + num_problems
    if not puzzles[first:end]:
        raise RecordError(f"{path} has {len(puzzles)} puzzles, none from place {first} on")
    items = tuple(
        Item(
            Problem.ask(_QUESTION.format(puzzle), id=f"game24-{place}", answer_format="marked"),
            Reference(answer=puzzle),
        )
        for place, puzzle in enumerate(puzzles[first:end], first)
    )
    return Task(name="game24", items=items, grader=Game24())


def solves(text: str, numbers: list[int]) -> bool:
    """Whether a formula uses exactly these numbers and gives 24."""
    if len(text) > _MAX_LENGTH:
        return False
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    text = _FRACTION.sub(r"((\1)/(\2))", text)
    formula, sign, rest = text.partition("=")
    if sign and rest.strip().rstrip(".") != str(_TARGET):
        return False
    try:
        reader = _Reader(formula)
        value = reader.sum(0)
        reader.end()
    except (ValueError, ZeroDivisionError):
        return False
    return value == _TARGET and Counter(reader.numbers) == Counter(numbers)


class _Reader:
    """A formula of whole numbers, read from left to right."""

    def __init__(self, text: str) -> None:
        self.numbers: list[int] = []
        """The numbers that it has used."""
        self._tokens: list[str] = []
        text = text.strip()
        place = 0
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise ValueError(text[place])
            self._tokens.append(found[1] or found[2])
            place = found.end()
        self._tokens.reverse()

    def sum(self, depth: int) -> Fraction:
        """Terms between + and -."""
        value = self._product(depth)
        while self._next() in {"+", "-"}:
            sign = 1 if self._tokens.pop() == "+" else -1
            value += sign * self._product(depth)
        return value

    def end(self) -> None:
        """Refuses what is left over."""
        if self._tokens:
            raise ValueError(self._tokens[-1])

    def _product(self, depth: int) -> Fraction:
        value = self._factor(depth)
        while self._next() in {"*", "/"}:
            if self._tokens.pop() == "*":
                value *= self._factor(depth)
            else:
                value /= self._factor(depth)
        return value

    def _factor(self, depth: int) -> Fraction:
        token = self._tokens.pop() if self._tokens else ""
        if depth > _MAX_DEPTH:
            raise ValueError(token)
        if token == "(":
            value = self.sum(depth + 1)
            if self._next() != ")":
                raise ValueError(token)
            self._tokens.pop()
            return value
        if token == "-":
            return -self._factor(depth + 1)
        self.numbers.append(int(token))
        return Fraction(int(token))

    def _next(self) -> str | None:
        return self._tokens[-1] if self._tokens else None
