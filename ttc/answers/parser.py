r"""Parser: the typed answer that a text states.

It reads LaTeX and plain text alike and never evaluates: names and operators come from an
allow-list, and whatever is not wholly read is a text. `(1).__class__.__base__` is a text.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import lru_cache

from ttc.answers.algebra import (
    INFINITY,
    Number,
    Symbol,
    Tree,
    Unreadable,
    multiply,
    negate,
    symbols,
)
from ttc.answers.blocks import read_json
from ttc.answers.expressions import Reader
from ttc.answers.kinds import (
    Answer,
    Call,
    Choice,
    Code,
    Collection,
    Expression,
    Interval,
    Matrix,
    Pair,
    Relation,
    Text,
    Union,
)
from ttc.answers.lexer import MAX_LENGTH, ROW_END, Token, tokenize
from ttc.answers.names import FUNCTIONS, NAMES
from ttc.answers.numbers import peel, read_peeled
from ttc.types import AnswerFormat

__all__ = ["parse_answer"]

_MAX_JSON = 100_000
_MAX_PARTS = 100
_MAX_WRAPPED = 4 * MAX_LENGTH
_CHOICE = re.compile(r"\(?([A-Z])\)?|\(([a-z])\)|([a-z])\)")
_QUOTED = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*+\{[^{}]*+\}")
_LETTER = r"[^\W\d_\u00b2\u00b3\u00b9\u00bc-\u00be\u03b1-\u03c9]"
_LETTERS = re.compile(rf"{_LETTER}{{2,}}(?:[\s'-]+{_LETTER}+)*")
_DECIMAL = re.compile(r"[-+]?[$]?(?:[0-9,]*)\.([0-9]+)")
_RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\lt": "<", r"\gt": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!="
}  # fmt: skip
_FLIPPED = {">": "<", ">=": "<="}
_OPENING, _CLOSING = "([", ")]"
_DROPPED = frozenset({"dollar", "euro", "degree", "unit"})
_UNITS = {
    "in": "inch", "ft": "foot", "feet": "foot", "cm": "centimeter", "mm": "millimeter",
    "km": "kilometer", "kg": "kilogram", "hr": "hour", "hrs": "hour", "min": "minute",
    "mins": "minute", "sec": "second", "secs": "second", "lb": "pound", "lbs": "pound",
    "yd": "yard",
}  # fmt: skip
"""Short names of units, and their long ones."""
_UNIT = re.compile(r"[a-z]+\.?(?:[ /]+(?:per )?[a-z]+){0,2}")


@lru_cache(maxsize=4096)
def parse_answer(text: str, format: AnswerFormat = "auto") -> Answer | None:
    """The typed answer of a text; `None` where it holds nothing but markup.

    Args:
        text: an answer, as `extract_answer` gives it.
        format: `"choice"`, `"code"` and `"json"` say what it is; any other lets its form decide.
    """
    if format == "code":
        return _code(text)
    if format == "json" or text.lstrip().startswith(('{"', "[{")):
        call = _json(text)
        if call is not None:
            return call
    bare = peel(text)
    if not bare:
        return None
    number = read_peeled(bare)
    if number is not None:
        decimal = _DECIMAL.fullmatch(bare)
        return Expression(
            Number(number),
            decimals=len(decimal[1]) if decimal else None,
            is_percent=bare.endswith("%"),
        )
    formula = _unwrapped(text) if len(text) <= _MAX_WRAPPED else bare
    choice = _choice(bare) or _choice(formula)
    if choice is not None:
        return choice
    if _is_words(bare):
        return _text(bare)
    try:
        answer = _Parser(bare if _QUOTED.fullmatch(formula) else formula).answer()
    except Unreadable:
        return _text(bare)
    return _choice(str(answer)) or answer


def _choice(text: str) -> Choice | None:
    found = _CHOICE.fullmatch(text)
    return Choice((found[1] or found[2] or found[3]).upper()) if found else None


def _text(text: str) -> Text:
    return Text(re.sub(r" ?([^\w\s]) ?", r"\1", text.casefold()))


def _is_words(text: str) -> bool:
    if len(text) > MAX_LENGTH:
        return True
    return bool(_LETTERS.fullmatch(text)) and not any(
        word in NAMES or word in FUNCTIONS for word in text.split()
    )


def _unwrapped(text: str) -> str:
    """The text without what stands around a formula."""
    text = _without_ending(text.strip("*_` \t\r\n\f\v"))
    for opening, closing in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) > len(opening) * 2 and text.startswith(opening) and text.endswith(closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner:
                return _without_ending(inner.strip())
    return text


def _without_ending(text: str) -> str:
    """The text without the punctuation and the spaces of LaTeX at its end."""
    while True:
        shorter = text.removesuffix("\\!").rstrip(".,;: \t\r\n")
        if len(shorter) < len(text) and shorter.endswith("\\"):
            shorter = shorter[:-1]
        if shorter == text:
            return text
        text = shorter


def _code(text: str) -> Code | None:
    lines = [line.rstrip() for line in text.strip("\r\n").splitlines()]
    program = "\n".join(line for line in lines if line)
    return Code(program) if program.strip() else None


def _json(text: str) -> Call | None:
    """A tool call or any other JSON; `None` where it is none."""
    value = read_json(text.strip()) if len(text) <= _MAX_JSON else None
    if not isinstance(value, dict | list):
        return None
    name, arguments = "", value
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        given = value.get("arguments", value.get("parameters"))
        if isinstance(given, dict):
            name, arguments = value["name"], given
    return Call(name, json.dumps(arguments, sort_keys=True, separators=(",", ":")))


class _Parser:
    """Reads lists, sets, intervals, matrices and relations out of expressions."""

    def __init__(self, text: str) -> None:
        self.reader = Reader(tokenize(text))
        self.commas = _commas(self.reader.tokens)
        self.depth = 0

    def answer(self) -> Answer:
        """The whole answer.

        Raises:
            Unreadable: something is left over, or was never begun.
        """
        parts = self._parts(is_top=True)
        if self.reader.token.kind != "end":
            raise Unreadable(f"{self.reader.token.text!r} is left over")
        variables = {str(part.left) for part in parts if isinstance(part, Relation)}
        if len(variables) < 2:
            parts = [_reduced(part) for part in parts]
        return parts[0] if len(parts) == 1 else Collection(tuple(parts), is_set=False)

    def _parts(self, *, is_top: bool = False) -> list[Answer]:
        """Answers with commas, and at the top also `and` or `or`, between them."""
        parts = self._element(is_top=is_top)
        while self._passes_comma(is_top=is_top):
            parts += self._element(is_top=is_top)
            if len(parts) > _MAX_PARTS:
                raise Unreadable(f"more than {_MAX_PARTS} parts")
        return parts

    def _passes_comma(self, *, is_top: bool) -> bool:
        found = self.reader.accepts(",", ";")
        word = self.reader.token
        if is_top and word.kind in {"word", "quoted"} and word.text.lower() in {"and", "or"}:
            self.reader.at += 1
            return True
        return found

    def _element(self, *, is_top: bool) -> list[Answer]:
        """One answer, or both that a sign of plus or minus in it makes."""
        reader, start, tokens = self.reader, self.reader.at, list(self.reader.tokens)
        outer, reader.saw_plus_minus = reader.saw_plus_minus, False
        first = self._item(is_top=is_top)
        if not reader.saw_plus_minus:
            reader.saw_plus_minus = outer
            return [first]
        if outer or reader.plus_minus < 0 or self.depth > 1:
            raise Unreadable("signs that depend on each other")
        reader.tokens, reader.at, reader.plus_minus = tokens, start, -1
        second = self._item(is_top=is_top)
        reader.plus_minus, reader.saw_plus_minus = 1, False
        return [first, second]

    def _item(self, *, is_top: bool) -> Answer:
        self.depth += 1
        if self.depth > 8:
            raise Unreadable("lists nested too deep")
        item = self._simple(is_top=is_top)
        others = [item]
        while self.reader.accepts(r"\cup"):
            others.append(self._simple(is_top=False))
        self.depth -= 1
        if len(others) == 1:
            return item
        return Union(tuple(_as_interval(part) for part in others))

    def _simple(self, *, is_top: bool) -> Answer:
        token = self.reader.token
        if token.text in {r"\emptyset", r"\varnothing"} and token.kind == "command":
            self.reader.at += 1
            return Collection(())
        if token.text == r"\{" or (token.text == "{" and self._has_comma()):
            return self._set(r"\}" if token.text == r"\{" else "}")
        if token.text in {"(", "["} and token.kind == "sign" and self._has_comma():
            return self._assigned(self._bracketed())
        if token.text == r"\begin":
            return self._matrix()
        return self._relation(is_top=is_top)

    def _has_comma(self) -> bool:
        return self.commas.get(len(self.reader.tokens) - self.reader.at, False)

    def _set(self, closing: str) -> Collection:
        self.reader.at += 1
        if self.reader.accepts(closing):
            return Collection(())
        parts = self._parts()
        self.reader.expects(closing)
        return Collection(tuple(_reduced(part) for part in parts))

    def _assigned(self, answer: Answer) -> Answer:
        """An answer, or what stands after `=` where it is a row of variables."""
        if not isinstance(answer, Pair) or not self.reader.accepts("="):
            return answer
        trees = [part.tree for part in answer.parts if isinstance(part, Expression)]
        if len(trees) < len(answer.parts) or not all(isinstance(tree, Symbol) for tree in trees):
            raise Unreadable("an equation of something other than variables")
        return self._simple(is_top=False)

    def _bracketed(self) -> Answer:
        opening = self.reader.token.text
        self.reader.at += 1
        parts = tuple(_reduced(part) for part in self._parts())
        closing = self.reader.token.text
        if not self.reader.accepts(*_CLOSING):
            raise Unreadable(f"a bracket that {closing!r} closes")
        ends = [part.tree for part in parts if isinstance(part, Expression)]
        is_mixed = opening == "[" or closing == "]"
        if opening + closing == "[]" and parts and all(map(_is_row, parts)):
            return _rows([_entries(part) for part in parts])
        if len(ends) == len(parts) == 2 and (is_mixed or any(map(_is_infinite, ends))):
            return Interval(ends[0], ends[1], opening == "[", closing == "]")
        return Pair(parts)

    def _matrix(self) -> Matrix:
        reader = self.reader
        reader.at += 1
        name = self._braced()
        if name.removesuffix("matrix") not in {"", "p", "b", "v", "B", "small"} and name != "array":
            raise Unreadable(f"{name} is no matrix")
        if name == "array" and reader.token.text == "{":
            self._braced()
        rows: list[list[Answer]] = [[]]
        while True:
            rows[-1].append(_reduced(self._relation(is_top=False)))
            if reader.accepts(ROW_END):
                if reader.token.text == r"\end":
                    break
                rows.append([])
            elif not reader.accepts("&"):
                break
        reader.expects(r"\end")
        if self._braced() != name:
            raise Unreadable("a matrix that is not closed")
        return _rows(rows)

    def _braced(self) -> str:
        self.reader.expects("{")
        text = ""
        while not self.reader.accepts("}"):
            if self.reader.token.kind == "end":
                raise Unreadable("a brace that is not closed")
            text += self.reader.token.text
            self.reader.at += 1
        return text

    def _relation(self, *, is_top: bool) -> Answer:
        """An expression, or two or three of them with signs between."""
        reader = self.reader
        trees, operators = [reader.expression()], list[str]()
        while reader.token.kind in {"sign", "command"} and reader.token.text in _RELATIONS:
            sign = _RELATIONS[reader.token.text]
            reader.at += 1
            operators.append(sign + "=" if sign in "<>" and reader.accepts("=") else sign)
            trees.append(reader.expression())
        if reader.accepts(r"\in"):
            if operators or not isinstance(trees[0], Symbol):
                raise Unreadable("something other than a variable in a set")
            return self._item(is_top=False)
        if not operators:
            is_constant = is_top and not symbols(trees[0])
            return _with_unit(trees[0], self._unit() if is_constant else "")
        return _related(trees, operators)

    def _unit(self) -> str:
        """The words after a value, and a power of them."""
        reader, words = self.reader, list[str]()
        while reader.token.kind in {"word", "quoted"} and reader.token.text.lower() not in {
            "and",
            "or",
        }:
            words.append(reader.token.text)
            reader.at += 1
        unit = " ".join(" ".join(words).casefold().split())
        if not unit:
            return ""
        if not _UNIT.fullmatch(unit):
            raise Unreadable(f"{unit!r} is no unit")
        singular = " ".join(_singular(word) for word in unit.split())
        if reader.accepts("^"):
            return f"{singular}^{reader._exponent()}"
        return singular


def _commas(tokens: list[Token]) -> dict[int, bool]:
    """For each opening bracket, counted from the end, whether its own level holds a comma."""
    found: dict[int, bool] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind not in {"sign", "command"}:
            continue
        if token.text in {"(", "[", "{", r"\{"}:
            opened.append(len(tokens) - index)
        elif token.text in {")", "]", "}", r"\}"} and opened:
            opened.pop()
        elif token.text == "," and opened:
            found[opened[-1]] = True
    return found


def _related(trees: list[Tree], operators: list[str]) -> Answer:
    if all(operator == "=" for operator in operators):
        return Relation("=", trees[0], trees[-1])
    if len(operators) == 1:
        left, right, operator = trees[0], trees[1], operators[0]
        if operator in _FLIPPED:
            left, right, operator = right, left, _FLIPPED[operator]
        interval = _half_line(left, right, has_end=operator == "<=")
        return interval if interval and operator != "!=" else Relation(operator, left, right)
    if len(operators) == 2 and isinstance(trees[1], Symbol):
        if set(operators) <= set(_FLIPPED):
            trees = trees[::-1]
            operators = [_FLIPPED[operator] for operator in operators[::-1]]
        if set(operators) <= {"<", "<="} and not symbols(trees[0]) | symbols(trees[2]):
            return Interval(trees[0], trees[2], operators[0] == "<=", operators[1] == "<=")
    raise Unreadable("a chain of relations")


def _half_line(left: Tree, right: Tree, *, has_end: bool) -> Interval | None:
    """The interval of `x < 5` or `5 < x`; `None` where neither side is one variable."""
    if isinstance(left, Symbol) and symbols(left) and not symbols(right):
        return Interval(negate(INFINITY), right, False, has_end)
    if isinstance(right, Symbol) and symbols(right) and not symbols(left):
        return Interval(left, INFINITY, has_end, False)
    return None


def _reduced(answer: Answer) -> Answer:
    """An answer without `x =` before a constant, and without infinity inside an expression."""
    if isinstance(answer, Relation):
        value = answer.value
        if value is not None and not symbols(value):
            answer = Expression(value)
    is_finite = isinstance(answer, Expression) and not _is_infinite(answer.tree)
    if is_finite and "infinity" in str(answer):
        raise Unreadable("infinity is no number")
    return answer


def _is_infinite(tree: Tree) -> bool:
    return tree in (INFINITY, negate(INFINITY))


def _as_interval(answer: Answer) -> Answer:
    """A pair in a union is an open interval."""
    if isinstance(answer, Pair) and len(answer.parts) == 2:
        low, high = answer.parts
        if isinstance(low, Expression) and isinstance(high, Expression):
            return Interval(low.tree, high.tree, False, False)
    return answer


def _is_row(answer: Answer) -> bool:
    return isinstance(answer, Pair) or (
        isinstance(answer, Interval) and answer.has_low and answer.has_high
    )


def _entries(row: Answer) -> list[Answer]:
    """The entries of a row that was read as a point or as a closed interval."""
    if isinstance(row, Interval):
        return [Expression(row.low), Expression(row.high)]
    return list(row.parts) if isinstance(row, Pair) else []


def _rows(rows: list[list[Answer]]) -> Matrix:
    entries = [tuple(part for part in row if isinstance(part, Expression)) for row in rows]
    if len({len(row) for row in rows}) != 1 or any(
        len(entry) != len(row) for entry, row in zip(entries, rows, strict=True)
    ):
        raise Unreadable("a matrix with rows of different lengths")
    return Matrix(tuple(entries))


def _with_unit(tree: Tree, unit: str) -> Expression:
    if unit in {"percent", "percentage"}:
        return Expression(multiply((tree, Number(Fraction(1, 100)))), is_percent=True)
    return Expression(tree, unit="" if unit in _DROPPED else unit)


def _singular(word: str) -> str:
    word = word.rstrip(".")
    word = _UNITS.get(word, word)
    if word.endswith(("ches", "shes", "sses")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") else word
