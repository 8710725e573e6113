"""The worker of the symbolic pool: compares answers by sympy, one after the other, inside the jail.

Texts are read by our own parser (`ttc.answers`), and sympy gets trees that are built from its
allow-list: no text ever reaches `sympify`. It may hang, and it may die; the caller kills it then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import sympy

from ttc.answers.algebra import Apply, Number, Power, Product, Sum, Symbol, Tree, symbols
from ttc.answers.equality import Rules, Verdict, compare
from ttc.answers.kinds import Expression
from ttc.answers.parser import parse_answer
from ttc.sandbox import codec

__all__ = ["decide", "main"]

_MOST_DIGITS = 20_000
_MOST_SIGNED = 3
_DIGITS = 30
_DECIMALS = 15
_POINTS = (sympy.Rational(7, 5), sympy.Rational(22, 9), sympy.Rational(3, 11))
_CONSTANTS = {"pi": sympy.pi, "e": sympy.E, "i": sympy.I}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in ("sin", "cos", "tan", "cot", "sec", "csc", "log")},
    **{name: getattr(sympy, name) for name in ("asin", "acos", "atan", "acot", "asec", "acsc")},
    **{name: getattr(sympy, name) for name in ("sinh", "cosh", "tanh", "factorial", "binomial")},
    "abs": sympy.Abs,
    "floor": sympy.floor,
    "ceil": sympy.ceiling,
}


class _TooLarge(ArithmeticError):
    """A number that would not fit into memory."""


def main(link: int) -> None:
    """Answers requests until the link closes."""
    codec.serve(link, _answer)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    told = (
        {"value": _value(request["value"])} if "value" in request else {"verdict": _check(request)}
    )
    return {**told, "cpu_seconds": time.process_time()}


def _value(text: str) -> list[str] | None:
    """What an expression without variables comes to: its exact form, and its decimals."""
    try:
        parsed = parse_answer(text, "number")
        if not isinstance(parsed, Expression) or symbols(parsed.tree) - set(_CONSTANTS):
            return None
        value = _build(parsed.tree, {})
        if not value.is_number or value.is_finite is False:
            return None
        return [str(value), str(value.evalf(_DECIMALS))]
    except Exception:  # noqa: BLE001 - whatever sympy raises, there is no value
        return None


def _check(request: dict[str, Any]) -> Verdict:
    try:
        left, right = (parse_answer(request[side], request["format"]) for side in ("left", "right"))
        if left is None or right is None:
            return None
        return compare(left, right, Rules(**request["rules"]), decide)
    except Exception:  # noqa: BLE001 - whatever sympy raises, the verdict is unknown
        return None


def decide(left: Tree, right: Tree) -> Verdict:
    """Whether two expressions are equal wherever both have real values."""
    names = sorted(symbols(left) | symbols(right))
    try:
        if _is_rational(left) and _is_rational(right):
            return _decide_rational(left, right, names)
        if not names:
            return _is_zero(_build(left, {}) - _build(right, {}))
        return _decide_by_signs(left, right, names)
    except _TooLarge:
        return None


def _decide_rational(left: Tree, right: Tree, names: list[str]) -> bool:
    """Rational functions with rational, or complex rational, coefficients: always decided."""
    values = {name: sympy.Symbol(name) for name in names}
    difference = sympy.expand(_build(left, values) - _build(right, values))
    if difference == 0 or difference.is_polynomial():
        return bool(difference == 0)
    return bool(_numerator(difference) == 0)


def _decide_by_signs(left: Tree, right: Tree, names: list[str]) -> Verdict:
    """Compares on each orthant of the variables, where roots and absolute values are simple."""
    whole: Verdict = None
    for values in _orthants(names):
        first, second = _build(left, values), _build(right, values)
        if first == second or sympy.expand(first - second) == 0:
            whole = True
            continue
        is_real = [_is_real(side, values) for side in (first, second)]
        if is_real == [False, False]:
            continue  # neither side is defined there
        if False in is_real:
            return False
        verdict = _is_zero(first - second)
        if verdict is not True:
            return verdict
        whole = True
    return whole


def _orthants(names: list[str]) -> Iterator[dict[str, Any]]:
    positive = [sympy.Symbol(name, positive=True) for name in names]
    if len(names) <= _MOST_SIGNED:
        patterns = list(product((1, -1), repeat=len(names)))
    else:
        patterns = [(1,) * len(names), (-1,) * len(names), ((1, -1) * len(names))[: len(names)]]
    for signs in patterns:
        yield {
            name: sign * symbol for name, sign, symbol in zip(names, signs, positive, strict=True)
        }


def _is_real(side: Any, values: dict[str, Any]) -> bool:
    """Whether a side is real at a point of the orthant."""
    free = sorted(side.free_symbols, key=str)
    at = {symbol: _POINTS[index % len(_POINTS)] + index for index, symbol in enumerate(free)}
    number = side.subs(at).evalf(_DIGITS)
    return bool(number.is_finite is not False and abs(sympy.im(number)) < 10 ** (-_DIGITS // 2))


def _is_zero(difference: Any) -> Verdict:
    if difference == 0 or sympy.expand(difference) == 0:
        return True
    if _differs(difference):
        return False
    if _numerator(difference) == 0 or sympy.simplify(difference) == 0:
        return True
    verdict = difference.equals(0)
    return None if verdict is None else bool(verdict)


def _numerator(difference: Any) -> Any:
    """The numerator over a common denominator, multiplied out."""
    return sympy.expand(sympy.together(difference).as_numer_denom()[0])


def _differs(difference: Any) -> bool:
    """Whether a value, computed to many digits, is certainly not 0."""
    free = sorted(difference.free_symbols, key=str)
    at = {symbol: _POINTS[index % len(_POINTS)] + index for index, symbol in enumerate(free)}
    number = difference.subs(at).evalf(_DIGITS)
    return bool(number.is_number and number.is_finite and abs(number) > 10 ** (-_DIGITS // 2))


def _is_rational(tree: Tree) -> bool:
    match tree:
        case Number():
            return True
        case Symbol(name):
            return name not in {"pi", "e"}
        case Sum(parts) | Product(parts):
            return all(map(_is_rational, parts))
        case Power(base, Number(exponent)):
            return exponent.denominator == 1 and _is_rational(base)
    return False


def _build(tree: Tree, values: dict[str, Any]) -> Any:
    """A tree as sympy has it, with its variables replaced."""
    match tree:
        case Number(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Symbol(name):
            return values[name] if name in values else _CONSTANTS[name]
        case Sum(terms):
            return sympy.Add(*(_build(term, values) for term in terms))
        case Product(factors):
            return sympy.Mul(*(_build(factor, values) for factor in factors))
        case Power(base, exponent):
            return _power(_build(base, values), _build(exponent, values))
        case Apply(name, arguments):
            built = [_build(argument, values) for argument in arguments]
            if name == "factorial" and built[0].is_Number and built[0] > 5_000:
                raise _TooLarge
            return _FUNCTIONS[name](*built)


def _power(base: Any, exponent: Any) -> Any:
    if exponent.is_Number:
        if base.is_Rational and abs(exponent) * len(str(max(abs(base.p), base.q))) > _MOST_DIGITS:
            raise _TooLarge
        if exponent.is_Rational and exponent.q % 2 and exponent.q > 1 and not base.is_nonnegative:
            return sympy.sign(base) ** exponent.p * sympy.Abs(base) ** exponent  # the real root
    return base**exponent
