r"""Algebra: expressions as small typed trees in one normal form.

The constructors `add`, `multiply`, `power` and `apply` give equal trees for sums and products of
the same parts in any order and spelling: rationals are folded, like terms collected, roots of
rationals taken apart into primes, `i` reduced, and a number is multiplied into a sum. Products of
sums are not expanded and no identity of a function is known: that is left to symbolic equivalence.

Everything is exact, and bounded: a number of more than `MAX_DIGITS` digits is never computed, so
that a tower of powers stays a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

__all__ = [
    "HALF",
    "IMAGINARY",
    "INFINITY",
    "MAX_DIGITS",
    "ONE",
    "PI",
    "ZERO",
    "Apply",
    "Number",
    "Power",
    "Product",
    "Sum",
    "Symbol",
    "Tree",
    "Unreadable",
    "add",
    "apply",
    "multiply",
    "negate",
    "power",
    "primitive",
    "subtract",
    "symbols",
]

MAX_DIGITS = 600
"""The most digits, and the largest exponent, of a number that is read as one."""

_MAX_BITS = 8 * MAX_DIGITS
_LARGEST_TRIAL = 10_000
_MAX_ROOT_BITS = 128
_MAX_FACTORIAL = 200
_CONSTANTS = frozenset({"pi", "e", "i", "infinity"})


class Unreadable(ValueError):
    """A text that is no expression, or one without a value."""


@dataclass(frozen=True, slots=True)
class Number:
    """An exact rational."""

    value: Fraction

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable or a constant: `x`, `x_{1}`, `alpha`, `pi`, `e`, `i`, `infinity`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Sum:
    """Two or more terms in the order of their texts."""

    terms: tuple[Tree, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.terms))


@dataclass(frozen=True, slots=True)
class Product:
    """Two or more factors: the rational one first, the others in the order of their texts."""

    factors: tuple[Tree, ...]

    def __str__(self) -> str:
        return "*".join(
            f"({factor})" if isinstance(factor, Sum) else str(factor) for factor in self.factors
        )


@dataclass(frozen=True, slots=True)
class Power:
    """A power that is no rational."""

    base: Tree
    exponent: Tree

    def __str__(self) -> str:
        is_atom = isinstance(self.base, Symbol | Apply) or (
            isinstance(self.base, Number)
            and self.base.value >= 0
            and self.base.value.denominator == 1
        )
        return f"{self.base if is_atom else f'({self.base})'}^({self.exponent})"


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of the allow-list, applied."""

    name: str
    arguments: tuple[Tree, ...]

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.arguments))})"


Tree: TypeAlias = Number | Symbol | Sum | Product | Power | Apply

ZERO, ONE, MINUS_ONE = Number(Fraction(0)), Number(Fraction(1)), Number(Fraction(-1))
HALF = Number(Fraction(1, 2))
PI, IMAGINARY, INFINITY = Symbol("pi"), Symbol("i"), Symbol("infinity")


def add(terms: Iterable[Tree]) -> Tree:
    """The sum of terms, with like ones collected."""
    collected: dict[Tree, Fraction] = {}
    for term in terms:
        for part in term.terms if isinstance(term, Sum) else (term,):
            number, rest = _coefficient(part)
            collected[rest] = _bounded(collected.get(rest, Fraction(0)) + number)
    if INFINITY in collected and len(collected) + (collected[INFINITY] == 0) > 1:
        raise Unreadable("infinity is no term")
    parts = [_scaled(number, rest) for rest, number in collected.items() if number]
    if len(parts) < 2:
        return parts[0] if parts else ZERO
    return Sum(tuple(sorted(parts, key=_order)))


def subtract(left: Tree, right: Tree) -> Tree:
    """The difference of two trees."""
    return add((left, negate(right)))


def negate(tree: Tree) -> Tree:
    """The tree with the other sign."""
    return multiply((MINUS_ONE, tree))


def multiply(factors: Iterable[Tree]) -> Tree:
    """The product of factors, with powers of one base collected."""
    number, exponents = _collected(factors)
    if not number:
        if INFINITY in exponents:
            raise Unreadable("infinity is no factor")
        return ZERO
    parts: list[Tree] = []
    for base, exponent in exponents.items():
        for part in _flat(_raise(base, exponent)):
            if isinstance(part, Number):
                number = _bounded(number * part.value)
            else:
                parts.append(part)
    if len({_base_and_exponent(part)[0] for part in parts}) < len(parts):
        return multiply([Number(number), *parts])  # two roots had a base in common
    if len(parts) == 1 and isinstance(parts[0], Sum):
        return add(_scaled(number * c, rest) for c, rest in map(_coefficient, parts[0].terms))
    return _product(number, parts)


def _collected(factors: Iterable[Tree]) -> tuple[Fraction, dict[Tree, Tree]]:
    """The rational factor, and the exponents of all other bases."""
    number, exponents = Fraction(1), dict[Tree, Tree]()
    for part in (part for factor in factors for part in _flat(factor)):
        if isinstance(part, Number):
            number = _bounded(number * part.value)
            continue
        base, exponent = _base_and_exponent(part)
        if isinstance(base, Sum) and _is_whole(exponent):
            content, base = primitive(base)
            number = _bounded(number * _whole_power(content, exponent))
        known = exponents.get(base)
        exponents[base] = exponent if known is None else add((known, exponent))
    return number, exponents


def power(base: Tree, exponent: Tree) -> Tree:
    """A power; rationals are folded while their digits are few.

    Raises:
        Unreadable: it has no value, as a negative power of 0.
    """
    return multiply([_raise(base, exponent)])


def apply(name: str, arguments: tuple[Tree, ...]) -> Tree:
    """A function applied; what is rational for rational arguments is computed."""
    numbers = [a.value for a in arguments if isinstance(a, Number)]
    if len(numbers) < len(arguments):
        return Apply(name, arguments)
    first = numbers[0]
    is_count = first.denominator == 1 and 0 <= first <= _MAX_FACTORIAL
    if name == "abs":
        return Number(abs(first))
    if name == "floor":
        return Number(Fraction(math.floor(first)))
    if name == "ceil":
        return Number(Fraction(math.ceil(first)))
    if name == "factorial" and is_count:
        return Number(Fraction(math.factorial(int(first))))
    if name == "binomial" and is_count and numbers[1].denominator == 1 and numbers[1] >= 0:
        return Number(Fraction(math.comb(int(first), int(numbers[1]))))
    if name == "log" and first == 1:
        return ZERO
    return Apply(name, arguments)


def primitive(tree: Sum) -> tuple[Fraction, Sum]:
    """A sum as a rational times a sum of whole coefficients without a common divisor.

    The first coefficient is positive, so that `x - 1` and `1 - x` have one primitive part.
    """
    numbers = [_coefficient(term)[0] for term in tree.terms]
    content = Fraction(
        math.gcd(*(n.numerator for n in numbers)), math.lcm(*(n.denominator for n in numbers))
    )
    if _leading(tree) < 0:
        content = -content
    return content, _divided(tree, content)


def symbols(tree: Tree) -> frozenset[str]:
    """The variables of a tree, without its constants."""
    return frozenset(name for name in _names(tree) if name not in _CONSTANTS)


def _names(tree: Tree) -> Iterator[str]:
    match tree:
        case Symbol(name):
            yield name
        case Sum(parts) | Product(parts) | Apply(_, parts):
            for part in parts:
                yield from _names(part)
        case Power(base, exponent):
            yield from _names(base)
            yield from _names(exponent)


def _leading(tree: Sum) -> Fraction:
    """The coefficient of the term whose rest is first in order: independent of all signs."""
    return min(map(_coefficient, tree.terms), key=lambda pair: _order(pair[1]))[0]


def _order(tree: Tree) -> str:
    return str(tree)


def _coefficient(term: Tree) -> tuple[Fraction, Tree]:
    """A term as a rational times the rest."""
    if isinstance(term, Number):
        return term.value, ONE
    if isinstance(term, Product) and isinstance(term.factors[0], Number):
        rest = term.factors[1:]
        return term.factors[0].value, rest[0] if len(rest) == 1 else Product(rest)
    return Fraction(1), term


def _scaled(number: Fraction, rest: Tree) -> Tree:
    """A rational times a tree without a rational factor of its own."""
    if rest == ONE:
        return Number(number)
    return _product(number, [*_flat(rest)])


def _product(number: Fraction, parts: list[Tree]) -> Tree:
    parts = sorted(parts, key=_order)
    if number != 1 or not parts:
        parts.insert(0, Number(number))
    return parts[0] if len(parts) == 1 else Product(tuple(parts))


def _flat(tree: Tree) -> tuple[Tree, ...]:
    return tree.factors if isinstance(tree, Product) else (tree,)


def _base_and_exponent(tree: Tree) -> tuple[Tree, Tree]:
    return (tree.base, tree.exponent) if isinstance(tree, Power) else (tree, ONE)


def _raise(base: Tree, exponent: Tree) -> Tree:
    """A power of one base, as one factor or a product of such."""
    if isinstance(exponent, Number):
        if not exponent.value:
            return ONE
        if isinstance(base, Number):
            return _number_power(base.value, exponent.value)
        if base == IMAGINARY and exponent.value.denominator == 1:
            turn = int(exponent.value) % 4
            return (ONE, IMAGINARY, MINUS_ONE, Product((MINUS_ONE, IMAGINARY)))[turn]
        if isinstance(base, Sum) and not _is_whole(exponent):
            return _sum_root(base, exponent)
        if isinstance(base, Product):
            return _product_power(base, exponent)
        if isinstance(base, Power) and exponent.value.denominator == 1:
            return _raise(base.base, multiply((base.exponent, exponent)))
        if exponent == ONE:
            return base
    elif base in (ZERO, ONE):
        return base
    return Power(base, exponent)


def _sum_root(base: Sum, exponent: Number) -> Tree:
    """A fractional power of a sum, with what its coefficients have in common outside."""
    content = abs(primitive(base)[0])
    outside = _number_power(content, exponent.value)
    return _join(outside, Power(_divided(base, content), exponent))


def _divided(base: Sum, number: Fraction) -> Sum:
    terms = (_scaled(c / number, rest) for c, rest in map(_coefficient, base.terms))
    return Sum(tuple(sorted(terms, key=_order)))


def _is_whole(exponent: Tree) -> bool:
    return isinstance(exponent, Number) and exponent.value.denominator == 1


def _whole_power(base: Fraction, exponent: Tree) -> Fraction:
    value = _raise(Number(base), exponent)
    if not isinstance(value, Number):
        raise Unreadable(f"a power of more than {MAX_DIGITS} digits")
    return value.value


def _product_power(base: Product, exponent: Number) -> Tree:
    if exponent.value.denominator == 1:
        return multiply(_raise(factor, exponent) for factor in base.factors)
    number, rest = _coefficient(base)
    if number < 0:
        return _join(
            _number_power(-number, exponent.value), Power(_scaled(Fraction(-1), rest), exponent)
        )
    if number == 1:
        return Power(base, exponent)
    return multiply([_number_power(number, exponent.value), _raise(rest, exponent)])


def _join(left: Tree, right: Tree) -> Tree:
    if left == ONE:
        return right
    parts = [*_flat(left), *_flat(right)]
    number = parts[0].value if isinstance(parts[0], Number) else Fraction(1)
    return _product(number, [part for part in parts if not isinstance(part, Number)])


def _number_power(base: Fraction, exponent: Fraction) -> Tree:
    if base == 0:
        if exponent < 0:
            raise Unreadable("a negative power of 0")
        return ZERO
    if base == 1:
        return ONE
    if exponent.denominator == 1:
        if _digits(base) * abs(exponent) > MAX_DIGITS:
            return Power(Number(base), Number(exponent))
        return Number(base ** int(exponent))
    return _root(base, exponent)


def _root(base: Fraction, exponent: Fraction) -> Tree:
    """A fractional power of a rational, as a rational times roots of primes."""
    sign: Tree = ONE
    if base < 0:
        if exponent.denominator % 2:
            sign = MINUS_ONE if exponent.numerator % 2 else ONE  # the real root
        elif exponent.denominator == 2:
            sign = _raise(IMAGINARY, Number(Fraction(exponent.numerator)))
        else:
            return Power(Number(base), Number(exponent))
    base = abs(base)
    if max(base.numerator, base.denominator).bit_length() > _MAX_ROOT_BITS or abs(exponent) > 64:
        return _signed(sign, Power(Number(base), Number(exponent)))
    number, roots = Fraction(1), list[Tree]()
    for prime, count in (
        *_factors(base.numerator),
        *((prime, -count) for prime, count in _factors(base.denominator)),
    ):
        whole = math.floor(count * exponent)
        part = count * exponent - whole
        number *= Fraction(prime) ** whole
        if part:
            roots.append(Power(Number(Fraction(prime)), Number(part)))
    return _signed(sign, _product(_bounded(number), roots))


def _signed(sign: Tree, tree: Tree) -> Tree:
    if sign == ONE:
        return tree
    number, rest = _coefficient(tree)
    factor, turn = _coefficient(sign)
    parts = [part for part in (*_flat(rest), turn) if part != ONE]
    return _product(number * factor, parts)


@lru_cache(maxsize=1024)
def _factors(number: int) -> tuple[tuple[int, int], ...]:
    """Primes with their counts; what is left of large ones is taken for a prime."""
    found: list[tuple[int, int]] = []
    trial = 2
    while trial * trial <= number and trial <= _LARGEST_TRIAL:
        count = 0
        while number % trial == 0:
            number //= trial
            count += 1
        if count:
            found.append((trial, count))
        trial += 1 if trial == 2 else 2
    if number > 1:
        root = math.isqrt(number)
        found.append((root, 2) if root * root == number else (number, 1))
    return tuple(found)


def _digits(number: Fraction) -> float:
    return max(number.numerator.bit_length(), number.denominator.bit_length()) * math.log10(2)


def _bounded(number: Fraction) -> Fraction:
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > _MAX_BITS:
        raise Unreadable(f"a number of more than {MAX_DIGITS} digits")
    return number
