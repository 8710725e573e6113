r"""Expressions: a recursive descent over tokens that admits an allow-list of operators and names.

TeX takes one token for an argument (`\frac123` is 3/2), a digit run after `^` or `_` is taken
whole, a number before a fraction of whole numbers below 1 is mixed (`2\frac12` is 5/2), `21_5` is
written in base 5, and letters side by side are multiplied. Depth, length and digits are bounded.
"""

from __future__ import annotations

from fractions import Fraction

from ttc.answers.algebra import (
    HALF,
    MAX_DIGITS,
    ONE,
    PI,
    Number,
    Symbol,
    Tree,
    Unreadable,
    add,
    apply,
    multiply,
    negate,
    power,
)
from ttc.answers.lexer import Token
from ttc.answers.names import FUNCTIONS, NAMES, TRIGONOMETRIC, UNITS

__all__ = ["MAX_DEPTH", "MAX_POSTFIXES", "Reader"]

MAX_DEPTH = 40
MAX_POSTFIXES = 60
_MAX_BASE = 36
_END = Token("end", "")
_FENCES = {"(": ")", "[": "]", "{": "}", "|": "|", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_OPENING = frozenset({r"\frac", r"\binom", r"\lfloor", r"\lceil"})
_TIMES = frozenset({"*", r"\cdot", r"\times", r"\ast"})
_OVER = frozenset({"/", r"\div"})


class Reader:
    """Reads one expression after another from a list of tokens."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.plus_minus = 1
        """Which sign `\\pm` stands for."""
        self.saw_plus_minus = False
        self._is_tex = any(token.kind == "command" for token in tokens)
        self._depth = self._postfixes = 0
        self._in_function = 0
        self._in_bars = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def accepts(self, *texts: str) -> bool:
        """Whether the next token is one of some signs or commands; if so it is passed."""
        token = self.token
        if token.kind in {"sign", "command"} and token.text in texts:
            self.at += 1
            return True
        return False

    def expects(self, text: str) -> None:
        """Passes a sign.

        Raises:
            Unreadable: something else stands there.
        """
        if not self.accepts(text):
            raise Unreadable(f"{text} expected, found {self.token.text!r}")

    def expression(self) -> Tree:
        """A sum."""
        terms = [self._signed_term(1)]
        while self.token.text in {"+", "-", r"\pm", r"\mp"} and self.token.kind != "quoted":
            terms.append(self._signed_term(2))
        return add(terms)

    def _sign(self) -> int:
        sign = 1
        while True:
            if self.accepts("-"):
                sign = -sign
            elif self.token.text in {r"\pm", r"\mp"}:
                self.saw_plus_minus = True
                sign *= self.plus_minus if self.token.text == r"\pm" else -self.plus_minus
                self.at += 1
            elif not self.accepts("+"):
                return sign

    def _signed_term(self, most: int) -> Tree:
        first = self.at
        sign = self._sign()
        if self.at - first > most:
            raise Unreadable("a row of signs")
        term = self._term()
        return term if sign > 0 else negate(term)

    def _term(self) -> Tree:
        factors = [self._factor()]
        while True:
            if self.accepts(*_TIMES):
                factors.append(self._signed_factor())
            elif self.accepts(*_OVER):
                factors.append(power(self._signed_factor(), negate(ONE)))
            elif self._starts_factor():
                factors.append(self._factor())
            else:
                return multiply(factors)

    def _signed_factor(self) -> Tree:
        is_negative = self.accepts("-")
        factor = self._factor()
        return negate(factor) if is_negative else factor

    def _starts_factor(self) -> bool:
        """Whether a factor follows without a sign between; two bare numbers are none."""
        kind, text, is_spaced = self.token
        if kind == "number":
            before = self.tokens[self.at - 1]
            return before.text in {"}", ")", "]"} or before.kind == "argument"
        if kind == "word":
            is_run = (is_spaced and not self._is_tex and len(text) > 1) or text in UNITS
            return self._is_known(text) and (not is_run or text in FUNCTIONS or text in NAMES)
        if kind == "command":
            name = text[1:]
            return text in _OPENING or name in FUNCTIONS or name in NAMES
        return text in {"(", "[", "{"} or (text == "|" and not self._in_bars)

    @staticmethod
    def _is_known(word: str) -> bool:
        return len(word) <= 3 or word in FUNCTIONS or word in NAMES

    def _factor(self) -> Tree:
        """An atom with what is written after it: powers, `!`, `%`, a degree sign."""
        value = self._atom()
        while True:
            if self.accepts("^"):
                value = power(value, self._exponent())
            elif self.accepts("!"):
                if self.token.text == "!":
                    raise Unreadable("a double factorial")
                value = apply("factorial", (value,))
            elif self.accepts("%", r"\%"):
                value = multiply((value, Number(Fraction(1, 100))))
            elif self.accepts(r"\degree"):
                if self._in_function:
                    value = multiply((value, PI, Number(Fraction(1, 180))))
            else:
                return value
            self._postfixes += 1
            if self._postfixes > MAX_POSTFIXES:
                raise Unreadable(f"more than {MAX_POSTFIXES} powers and signs after a value")

    def _exponent(self) -> Tree:
        is_negative = self.accepts("-")
        base = self._closed("}") if self.accepts("{") else self._atom()
        if self.accepts("^"):
            self._depth += 1
            base = power(base, self._exponent())
            self._depth -= 1
        return negate(base) if is_negative else base

    def _closed(self, closing: str) -> Tree:
        value = self.expression()
        self.expects(closing)
        return value

    def _atom(self) -> Tree:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH}")
        value = self._whole_atom()
        self._depth -= 1
        return value

    def _whole_atom(self) -> Tree:
        kind, text, _ = self.token
        if kind == "number":
            return self._number()
        if kind == "word":
            return self._word()
        if kind == "sign" and text in {"(", "[", "{"}:
            self.at += 1
            return self._closed(_FENCES[text])
        if kind == "sign" and text == "|":
            return self._absolute()
        if kind == "command":
            return self._command()
        raise Unreadable(f"no value begins with {text!r}")

    def _absolute(self) -> Tree:
        self.at += 1
        self._in_bars += 1
        value = self._closed("|")
        self._in_bars -= 1
        return apply("abs", (value,))

    def _number(self) -> Tree:
        text = self.token.text
        self.at += 1
        if len(text) > MAX_DIGITS:
            raise Unreadable(f"a number of more than {MAX_DIGITS} digits")
        if self.token.text == "_" and self.token.kind == "sign":
            return self._in_base(text)
        value = Fraction(text)
        if self.token.kind == "number" or (self.token.text == r"\frac" and text.isdigit()):
            part = self._part()
            if part is not None:
                return Number(value + part)
        if self.token.kind == "word" and self.token.text in {"e", "E"} and self._is_scientific():
            self.at += 1
            sign = self._sign()
            exponent = multiply((Number(Fraction(sign)), self._number()))
            return multiply((Number(value), power(Number(Fraction(10)), exponent)))
        return Number(value)

    def _is_scientific(self) -> bool:
        if self.token.is_spaced:
            return False
        after = self.tokens[self.at + 1 : self.at + 3]
        signs = {"+", "-"}
        digits = after[1:] if after and after[0].text in signs else after[:1]
        is_tight = all(not token.is_spaced for token in after[: len(after) - 1 + bool(digits)])
        return bool(digits) and digits[0].kind == "number" and digits[0].text.isdigit() and is_tight

    def _part(self) -> Fraction | None:
        """The fraction of a mixed number that follows its whole; `None` where none follows.

        Raises:
            Unreadable: a bare number follows, or a fraction that is not below 1.
        """
        start = self.at
        if self.accepts(r"\frac"):
            above, below = self._argument(), self._argument()
            if not (_is_natural(above) and _is_natural(below)):
                self.at = start
                return None
        else:
            above = self._bare_number()
            self.expects("/")
            below = self._bare_number()
        if not (isinstance(above, Number) and isinstance(below, Number)):
            raise Unreadable("a mixed number without numbers")
        if not 0 < above.value < below.value:
            raise Unreadable("the part of a mixed number is below 1")
        return above.value / below.value

    def _bare_number(self) -> Tree:
        if self.token.kind != "number" or not self.token.text.isdigit():
            raise Unreadable("a number beside a number")
        return self._whole()

    def _whole(self) -> Tree:
        text = self.token.text
        self.at += 1
        return Number(Fraction(text))

    def _in_base(self, digits: str) -> Tree:
        self.at += 1
        base = self._subscript()
        if not base.isdigit() or not 2 <= int(base) <= _MAX_BASE or "." in digits:
            raise Unreadable(f"no number has the base {base}")
        try:
            return Number(Fraction(int(digits, int(base))))
        except ValueError:
            raise Unreadable(f"{digits} has a digit that base {base} lacks") from None

    def _subscript(self) -> str:
        """What stands after `_`, as a text."""
        if not self.accepts("{"):
            text = self.token.text
            if self.token.kind not in {"number", "word"} or len(text) > 9:
                raise Unreadable(f"no subscript: {text!r}")
            self.at += 1
            return text
        parts: list[str] = []
        while not self.accepts("}"):
            if self.token.kind not in {"number", "word", "quoted"} or len(parts) > 8:
                raise Unreadable(f"no subscript: {self.token.text!r}")
            parts.append(self.token.text)
            self.at += 1
        text = "".join(parts)
        if not text.isalnum() or len(text) > 20:
            raise Unreadable(f"no subscript: {text!r}")
        return text

    def _word(self) -> Tree:
        """A function, a name, or one letter of a run of letters."""
        word = self.token.text
        if word in FUNCTIONS:
            self.at += 1
            return self._apply(FUNCTIONS[word])
        if word in NAMES:
            self.at += 1
            return self._indexed(word, NAMES[word])
        if len(word) > 3:
            raise Unreadable(f"{word!r} is no name")
        rest = word[1:]
        if rest:
            self.tokens[self.at : self.at + 1] = [Token("word", word[0]), Token("word", rest)]
        self.at += 1
        return self._indexed(word[0], Symbol(word[0]))

    def _indexed(self, name: str, symbol: Tree) -> Tree:
        if self.accepts("_"):
            return Symbol(f"{name}_{{{self._subscript()}}}")
        return symbol

    def _command(self) -> Tree:
        text = self.token.text
        name = text[1:]
        self.at += 1
        if text == r"\frac":
            above, below = self._argument(), self._argument()
            return multiply((above, power(below, negate(ONE))))
        if text == r"\binom":
            return apply("binomial", (self._argument(), self._argument()))
        if text in _FENCES:
            value = self._closed(_FENCES[text])
            return apply("floor" if name == "lfloor" else "ceil", (value,))
        if name in FUNCTIONS:
            return self._apply(FUNCTIONS[name])
        if name in NAMES:
            return self._indexed(name, NAMES[name])
        raise Unreadable(f"{text} is not known")

    def _argument(self) -> Tree:
        """One argument of a TeX macro: a group, or one token, where a digit is a token."""
        kind, text, _ = self.token
        if kind == "sign" and text == "{":
            return self._atom()
        if kind == "number" and text[0] != ".":
            rest = text[1:]
            if rest.startswith("."):
                raise Unreadable("a point after an argument")
            pieces = [Token("argument", text[0]), *([Token("number", rest)] if rest else [])]
            self.tokens[self.at : self.at + 1] = pieces
            self.at += 1
            return Number(Fraction(text[0]))
        if kind in {"word", "command"}:
            return self._atom()
        raise Unreadable(f"no argument begins with {text!r}")

    def _apply(self, name: str) -> Tree:
        if name == "sqrt":
            return self._root()
        base: Tree | None = None
        exponent: Tree | None = None
        while self.token.text in {"_", "^"}:
            if self.accepts("_"):
                base = self._whole() if self.token.text.isdigit() else self._argument()
            else:
                self.at += 1
                exponent = self._exponent()
        self._in_function += 1
        arguments = self._arguments(name)
        self._in_function -= 1
        if exponent == negate(ONE) and name in TRIGONOMETRIC:
            return _applied("a" + name, arguments, base)
        value = _applied(name, arguments, base)
        return value if exponent is None else power(value, exponent)

    def _root(self) -> Tree:
        index: Tree = Number(Fraction(2))
        if self.accepts("["):
            index = self._closed("]")
        inner = self._closed(")") if self.accepts("(") else self._argument()
        return power(inner, HALF if index == Number(Fraction(2)) else power(index, negate(ONE)))

    def _arguments(self, name: str) -> tuple[Tree, ...]:
        """What a function is applied to: a bracket, or all factors up to the next function."""
        if self.token.text in {"(", "["}:
            closing = _FENCES[self.token.text]
            self.at += 1
            arguments = [self.expression()]
            while name == "binomial" and self.accepts(","):
                arguments.append(self.expression())
            self.expects(closing)
            return tuple(arguments)
        factors = [self._signed_factor()]
        while self._starts_factor() and not self._is_function():
            factors.append(self._factor())
        return (multiply(factors),)

    def _is_function(self) -> bool:
        return self.token.text.removeprefix("\\") in FUNCTIONS


def _applied(name: str, arguments: tuple[Tree, ...], base: Tree | None) -> Tree:
    if len(arguments) != (2 if name == "binomial" else 1):
        raise Unreadable(f"{name} of {len(arguments)} arguments")
    if name == "exp":
        return power(Symbol("e"), arguments[0])
    if base is not None and name != "log":
        raise Unreadable(f"{name} has no base")
    if name == "log10":
        name, base = "log", Number(Fraction(10))
    value = apply(name, arguments)
    if base is None or base == Symbol("e"):
        return value
    return multiply((value, power(apply("log", (base,)), negate(ONE))))


def _is_natural(tree: Tree) -> bool:
    return isinstance(tree, Number) and tree.value.denominator == 1 and tree.value > 0
