"""Kinds of answers: what a parsed answer is, and the key that equal ones share.

Policies: `2, 7` without brackets is unordered and keeps its doubles, `{2, 7}` is a set and drops
them, `(2, 7)` is ordered and stands for a point or, where the other side says so, an open interval.
Units are a part of the key, except currency signs and the degree sign, which are notation. The text
of an answer reads back as an answer with the same key.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from ttc.answers.algebra import (
    Number,
    Sum,
    Symbol,
    Tree,
    negate,
    primitive,
    subtract,
    symbols,
)

__all__ = [
    "Answer",
    "Call",
    "Choice",
    "Code",
    "Collection",
    "Expression",
    "Interval",
    "Kind",
    "Matrix",
    "Pair",
    "Relation",
    "Text",
    "Union",
]


class Kind(ABC):
    """A typed answer."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> tuple[Hashable, ...]:
        """What equal answers share; it begins with the name of their kind."""

    @property
    def kind(self) -> str:
        """The name of its kind, as `number`, `expression`, `set` or `text`."""
        return str(self.key[0])


@dataclass(frozen=True, slots=True)
class Expression(Kind):
    """A number or an expression, with its unit if it has one."""

    tree: Tree
    unit: str = ""
    decimals: int | None = None
    """How many decimals it was written with; `None` where it is no plain decimal."""
    is_percent: bool = False
    """Whether it was written as a percentage; its value is the hundredth part all the same."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Its value where it is a rational, and otherwise its normal form."""
        if self.unit:
            return ("quantity", str(self.tree), self.unit)
        if isinstance(self.tree, Number):
            return ("number", self.tree.value)
        return ("expression", str(self.tree))

    def __str__(self) -> str:
        unit, power, exponent = self.unit.partition("^")
        return f"{self.tree} \\text{{{unit}}}{power}{exponent}" if unit else str(self.tree)


@dataclass(frozen=True, slots=True)
class Relation(Kind):
    """An equation or an inequality of two trees."""

    operator: str
    """`=`, `!=`, `<` or `<=`."""
    left: Tree
    right: Tree

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What is left after everything is brought to one side and common numbers are divided."""
        difference = self.difference
        if isinstance(difference, Sum):
            content, difference = primitive(difference)
            if self.operator in {"<", "<="} and content < 0:
                difference = negate(difference)
        return ("relation", self.operator, str(difference))

    @property
    def difference(self) -> Tree:
        """The left side less the right one."""
        return subtract(self.left, self.right)

    @property
    def value(self) -> Tree | None:
        """The right side, where the left is one variable that does not stand in it."""
        if self.operator == "=" and isinstance(self.left, Symbol) and symbols(self.left):
            return None if self.left.name in symbols(self.right) else self.right
        return None

    def __str__(self) -> str:
        return f"{self.left}{self.operator}{self.right}"


@dataclass(frozen=True, slots=True)
class Pair(Kind):
    """Two or more answers in order: a point, a vector, or an open interval of two."""

    parts: tuple[Answer, ...]

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The keys of its parts."""
        return ("tuple", *(part.key for part in self.parts))

    def __str__(self) -> str:
        return f"({','.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Collection(Kind):
    """Answers in no order."""

    parts: tuple[Answer, ...]
    is_set: bool = True
    """Whether doubles count once."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The sorted keys of its parts."""
        keys = [part.key for part in self.parts]
        return ("set", *sorted(set(keys) if self.is_set else keys, key=repr))

    def __str__(self) -> str:
        text = ", ".join(map(str, self.parts))
        return f"\\{{{text}\\}}" if self.is_set else text


@dataclass(frozen=True, slots=True)
class Interval(Kind):
    """All numbers between two ends."""

    low: Tree
    high: Tree
    has_low: bool
    has_high: bool

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Its ends and its brackets."""
        left, right = "(["[self.has_low], ")]"[self.has_high]
        return ("interval", left, str(self.low), str(self.high), right)

    def __str__(self) -> str:
        return f"{'(['[self.has_low]}{self.low},{self.high}{')]'[self.has_high]}"


@dataclass(frozen=True, slots=True)
class Union(Kind):
    """Intervals and sets together, in no order."""

    parts: tuple[Answer, ...]

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The sorted keys of its parts."""
        return ("union", *sorted({part.key for part in self.parts}, key=repr))

    def __str__(self) -> str:
        return r" \cup ".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class Matrix(Kind):
    """Rows of expressions."""

    rows: tuple[tuple[Expression, ...], ...]

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The keys of its entries, row by row."""
        return ("matrix", *(tuple(entry.key for entry in row) for row in self.rows))

    def __str__(self) -> str:
        rows = r" \\ ".join(" & ".join(map(str, row)) for row in self.rows)
        return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of several options, by its letter."""

    letter: str

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The letter."""
        return ("choice", self.letter)

    def __str__(self) -> str:
        return f"({self.letter})"


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """Words, as they are compared: without case and idle white space."""

    text: str

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The text."""
        return ("text", self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Code(Kind):
    """A program, compared by its lines without idle white space at their ends."""

    text: str

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The program."""
        return ("code", self.text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Call(Kind):
    """A tool call: a name and its arguments as canonical JSON; any other JSON has no name."""

    name: str
    arguments: str

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Name and arguments."""
        return ("call", self.name, self.arguments) if self.name else ("json", self.arguments)

    def __str__(self) -> str:
        if not self.name:
            return self.arguments
        return f'{{"name":{json.dumps(self.name)},"arguments":{self.arguments}}}'


Answer: TypeAlias = (
    Expression
    | Relation
    | Pair
    | Collection
    | Interval
    | Union
    | Matrix
    | Choice
    | Text
    | Code
    | Call
)
