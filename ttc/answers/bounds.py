"""Bounds: what an expression can be worth, by interval arithmetic. Two that are apart differ.

Nothing is ever computed to its last digit, so a tower of powers costs as much as a sum: it is
larger than the largest float, and so it is not 7. Every operation rounds outwards, so that a
verdict of "apart" is a proof, and cancellation ends in "cannot tell" instead of in an error.

Variables are real. They are put at fixed points of both signs: two expressions that differ at one
of them, or of which only one is defined there, are different. Known limits: nothing is said of
complex values, of which `i` is the only sign.

Source: Moore 1966, Interval Analysis.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

from ttc.answers.algebra import (
    IMAGINARY,
    Apply,
    Number,
    Power,
    Product,
    Sum,
    Symbol,
    Tree,
    add,
    multiply,
    symbols,
)

__all__ = ["Bounds", "Undefined", "are_apart", "bounds", "varies"]

_EPSILON, _LARGEST, _TINY = sys.float_info.epsilon, sys.float_info.max, 5e-324
_STEPS = 4
"""Units in the last place by which a function of the C library may be off."""
_MOST_SYMBOLS = 8
_POINTS = (
    (0.73, 1.62, 2.24, 3.31, 0.41, 1.17, 2.71, 0.93),
    (-1.38, -2.45, -0.57, -3.13, -1.91, -0.29, -2.77, -0.83),
    (2.83, -1.71, 0.37, -2.23, 1.29, -0.61, 3.07, -1.13),
    (-0.47, 1.93, -3.61, 0.89, -2.11, 1.47, -0.19, 2.39),
    (5.19, 7.43, 0.13, 4.67, 6.83, 0.07, 9.41, 3.89),
    (11.3, -8.7, 6.1, 12.9, -5.3, 9.7, -7.9, 4.3),
)


class Undefined(ArithmeticError):
    """The expression has no real value at the point."""


class _Unknown(ArithmeticError):
    """Its value cannot be bounded."""


class Bounds(NamedTuple):
    """The least and the largest value."""

    low: float
    high: float


def are_apart(left: Tree, right: Tree) -> bool:
    """Whether two expressions certainly differ: at some real point."""
    names = sorted(symbols(left) | symbols(right))
    if len(names) > _MOST_SYMBOLS:
        return False
    points = [dict(zip(names, p, strict=False)) for p in (_POINTS if names else _POINTS[:1])]
    pairs = zip(_real_and_imaginary(left), _real_and_imaginary(right), strict=True)
    return any(_apart_at(first, second, point) for first, second in pairs for point in points)


def _real_and_imaginary(tree: Tree) -> tuple[Tree, Tree]:
    """The real and the imaginary part of a sum, where `i` stands in no root and no function."""
    real, imaginary = list[Tree](), list[Tree]()
    for term in tree.terms if isinstance(tree, Sum) else (tree,):
        factors = term.factors if isinstance(term, Product) else (term,)
        if IMAGINARY in factors:
            imaginary.append(multiply(factor for factor in factors if factor != IMAGINARY))
        else:
            real.append(term)
    return add(real), add(imaginary)


def varies(tree: Tree) -> bool:
    """Whether an expression certainly has different values at two points."""
    names = sorted(symbols(tree))
    if len(names) > _MOST_SYMBOLS:
        return False
    seen: list[Bounds] = []
    for point in _POINTS:
        try:
            seen.append(bounds(tree, dict(zip(names, point, strict=False))))
        except (ArithmeticError, RecursionError):
            continue
    return bool(seen) and max(b.low for b in seen) > min(b.high for b in seen)


def _apart_at(left: Tree, right: Tree, point: Mapping[str, float]) -> bool:
    try:
        first, second = _value(left, point), _value(right, point)
    except (_Unknown, RecursionError):
        return False
    if first is None or second is None:
        return bool(point) and first is not second
    return first.low > second.high or second.low > first.high


def _value(tree: Tree, point: Mapping[str, float]) -> Bounds | None:
    try:
        return bounds(tree, point)
    except Undefined:
        return None


def bounds(tree: Tree, point: Mapping[str, float]) -> Bounds:
    """What an expression is worth at a point.

    Raises:
        Undefined: it has no real value there.
        ArithmeticError: its value cannot be bounded.
    """
    match tree:
        case Number(rational):
            return _of_rational(rational)
        case Symbol(name):
            return _of_symbol(name, point)
        case Sum(terms):
            total = Bounds(0.0, 0.0)
            for term in terms:
                part = bounds(term, point)
                total = _outward(total.low + part.low, total.high + part.high)
            return total
        case Product(factors):
            value = Bounds(1.0, 1.0)
            for factor in factors:
                value = _times(value, bounds(factor, point))
            return value
        case Power(base, exponent):
            return _power(base, exponent, point)
        case Apply(name, arguments):
            return _applied(name, [bounds(argument, point) for argument in arguments])


def _outward(low: float, high: float, steps: int = 1) -> Bounds:
    """Bounds that hold whatever the rounding was; no value is at an infinite end."""
    low = min(low, _LARGEST)
    high = max(high, -_LARGEST)
    low -= abs(low) * _EPSILON * steps + _TINY
    high += abs(high) * _EPSILON * steps + _TINY
    if math.isnan(low) or math.isnan(high):
        raise _Unknown
    return Bounds(low, high)


def _of_rational(value: Fraction) -> Bounds:
    number = _float(value)
    return Bounds(number, number) if number == value else _outward(number, number)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _of_symbol(name: str, point: Mapping[str, float]) -> Bounds:
    if name in {"pi", "e"}:
        value = math.pi if name == "pi" else math.e
        return _outward(value, value)
    if name not in point:
        raise _Unknown  # i and infinity are no real numbers
    return Bounds(point[name], point[name])


def _times(left: Bounds, right: Bounds) -> Bounds:
    corners = [a * b if a and b else 0.0 for a in left for b in right]
    return _outward(min(corners), max(corners))


def _divided(above: Bounds, below: Bounds) -> Bounds:
    if below.low <= 0 <= below.high:
        raise Undefined if below == (0, 0) else _Unknown
    return _times(above, _outward(1 / below.high, 1 / below.low))


def _power(base: Tree, exponent: Tree, point: Mapping[str, float]) -> Bounds:
    bottom = bounds(base, point)
    if not isinstance(exponent, Number):
        return _positive_power(bottom, bounds(exponent, point))
    value = exponent.value
    if value.denominator == 1 or (bottom.high < 0 and value.denominator % 2):
        return _signed_power(bottom, value)
    return _positive_power(bottom, _of_rational(value))


def _signed_power(base: Bounds, exponent: Fraction) -> Bounds:
    """A whole power, or the real root of an odd index."""
    if base.low > 0 or (exponent > 0 and base.low == 0):
        return _positive_power(base, _of_rational(exponent))
    if exponent < 0 and base.high >= 0:
        raise Undefined if base == (0, 0) else _Unknown
    is_odd = exponent.numerator % 2 == 1
    if base.high <= 0:
        low, high = _positive_power(Bounds(-base.high, -base.low), _of_rational(exponent))
        return Bounds(-high, -low) if is_odd else Bounds(low, high)
    size = _positive_power(Bounds(0.0, max(-base.low, base.high)), _of_rational(exponent)).high
    return Bounds(-size if is_odd else 0.0, size)


def _positive_power(base: Bounds, exponent: Bounds) -> Bounds:
    """A power of what is not negative; its extremes lie at the corners."""
    if base.high < 0:
        raise Undefined
    if base.low < 0 or (base.low == 0 and exponent.low <= 0):
        raise Undefined if base == (0, 0) and exponent.high < 0 else _Unknown
    corners = [_pow(b, e) for b in base for e in exponent]
    low, high = _outward(min(corners), max(corners), _STEPS)
    return Bounds(max(0.0, low), high)


def _pow(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:
        raise _Unknown from None


def _applied(name: str, arguments: list[Bounds]) -> Bounds:
    function = _FUNCTIONS.get(name)
    if function is None or len(arguments) != 1:
        raise _Unknown
    return function(arguments[0])


def _monotone(
    function: Callable[[float], float], low: float = -math.inf, high: float = math.inf
) -> Callable[[Bounds], Bounds]:
    """A rising function that is defined between two ends, and at them."""

    def apply(x: Bounds) -> Bounds:
        if x.high < low or x.low > high:
            raise Undefined
        if x.low < low or x.high > high:
            raise _Unknown
        return _outward(_call(function, x.low), _call(function, x.high), _STEPS)

    return apply


def _call(function: Callable[[float], float], x: float) -> float:
    try:
        return function(x)
    except OverflowError:
        return math.copysign(math.inf, x)
    except ValueError:
        raise _Unknown from None


def _log(x: Bounds) -> Bounds:
    if x.high <= 0:
        raise Undefined
    if x.low <= 0:
        raise _Unknown
    return _outward(math.log(x.low), math.log(x.high), _STEPS)


def _absolute(x: Bounds) -> Bounds:
    if x.low >= 0:
        return x
    return Bounds(0.0 if x.high > 0 else -x.high, max(-x.low, x.high))


def _wave(function: Callable[[float], float]) -> Callable[[Bounds], Bounds]:
    """Sine or cosine, whose slope is at most 1."""

    def apply(x: Bounds) -> Bounds:
        if not (x.high - x.low < 1 and abs(x.low) < 1e8):
            return Bounds(-1.0, 1.0)
        middle = (x.low + x.high) / 2
        around = x.high - x.low + 1e-15
        value = function(middle)
        return _outward(max(-1.0, value - around), min(1.0, value + around), _STEPS)

    return apply


def _stairs(function: Callable[[float], int]) -> Callable[[Bounds], Bounds]:
    def apply(x: Bounds) -> Bounds:
        if math.isinf(x.low) or math.isinf(x.high):
            return x
        return Bounds(_float(Fraction(function(x.low))), _float(Fraction(function(x.high))))

    return apply


def _factorial(x: Bounds) -> Bounds:
    if x.low < 1:
        raise _Unknown
    return _outward(_call(_gamma, x.low), _call(_gamma, x.high), 4 * _STEPS)


def _gamma(x: float) -> float:
    return math.gamma(x + 1)


_SINE, _COSINE = _wave(math.sin), _wave(math.cos)
_ONE = Bounds(1.0, 1.0)
_FUNCTIONS: Mapping[str, Callable[[Bounds], Bounds]] = {
    "abs": _absolute,
    "log": _log,
    "sin": _SINE,
    "cos": _COSINE,
    "tan": lambda x: _divided(_SINE(x), _COSINE(x)),
    "cot": lambda x: _divided(_COSINE(x), _SINE(x)),
    "sec": lambda x: _divided(_ONE, _COSINE(x)),
    "csc": lambda x: _divided(_ONE, _SINE(x)),
    "asin": _monotone(math.asin, -1, 1),
    "atan": _monotone(math.atan),
    "sinh": _monotone(math.sinh),
    "tanh": _monotone(math.tanh),
    "floor": _stairs(math.floor),
    "ceil": _stairs(math.ceil),
    "factorial": _factorial,
}
