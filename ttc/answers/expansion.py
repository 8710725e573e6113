"""Expansion: products of sums multiplied out, within a bound on the terms.

It decides rational functions for good, and with them polynomials: over a common denominator, their
numerators are equal or are different. In any other expression it multiplies out what can be, and
says nothing where the results differ.
"""

from __future__ import annotations

from itertools import product

from ttc.answers.algebra import (
    ONE,
    ZERO,
    Apply,
    Number,
    Power,
    Product,
    Sum,
    Symbol,
    Tree,
    Unreadable,
    add,
    apply,
    multiply,
    negate,
    power,
)

__all__ = ["expanded_equal"]

_MOST_TERMS = 200
_LARGEST_EXPONENT = 32


def expanded_equal(left: Tree, right: Tree) -> bool | None:
    """Whether two expressions are equal once multiplied out; `None` where that does not decide."""
    try:
        if _is_rational(left) and _is_rational(right):
            above, below = _fraction(add((left, negate(right))))
            return None if _expand(below) == ZERO else _expand(above) == ZERO
        return _expand(left) == _expand(right) or None
    except Unreadable:
        return None


def _is_rational(tree: Tree) -> bool:
    """Whether it is a rational function of its variables and `i`, with rational coefficients."""
    match tree:
        case Number():
            return True
        case Symbol(name):
            return name not in {"pi", "e", "infinity"}
        case Sum(parts) | Product(parts):
            return all(map(_is_rational, parts))
        case Power(base, Number(exponent)):
            is_small = exponent.denominator == 1 and abs(exponent) <= _LARGEST_EXPONENT
            return is_small and not isinstance(base, Number) and _is_rational(base)
    return False


def _fraction(tree: Tree) -> tuple[Tree, Tree]:
    """A rational function as numerator and denominator."""
    match tree:
        case Sum(terms):
            above, below = _fraction(terms[0])
            for term in terms[1:]:
                more, under = _fraction(term)
                if under != below:
                    above, more = _multiplied([above, under]), _multiplied([more, below])
                    below = _multiplied([below, under])
                above = add((above, more))
            return above, below
        case Product(factors):
            fractions = [_fraction(factor) for factor in factors]
            return _multiplied([f[0] for f in fractions]), _multiplied([f[1] for f in fractions])
        case Power(base, Number(exponent)):
            above, below = _fraction(base)
            size = Number(abs(exponent))
            powers = _power(_expand(above), size), _power(_expand(below), size)
            return powers if exponent > 0 else powers[::-1]
    return tree, ONE


def _expand(tree: Tree) -> Tree:
    match tree:
        case Sum(terms):
            return add(map(_expand, terms))
        case Product(factors):
            return _multiplied([_expand(factor) for factor in factors])
        case Power(base, exponent):
            return _power(_expand(base), _expand(exponent))
        case Apply(name, arguments):
            return apply(name, tuple(map(_expand, arguments)))
    return tree


def _power(base: Tree, exponent: Tree) -> Tree:
    if not isinstance(exponent, Number) or not isinstance(base, Sum):
        return power(base, exponent)
    value = exponent.value
    if value.denominator != 1 or not 0 < value <= _LARGEST_EXPONENT:
        return power(base, exponent)
    whole: Tree = base
    for _ in range(int(value) - 1):
        whole = _multiplied([whole, base])
    return whole


def _multiplied(factors: list[Tree]) -> Tree:
    whole, *others = factors
    for factor in others:
        left, right = _terms(whole), _terms(factor)
        if len(left) * len(right) > _MOST_TERMS:
            raise Unreadable(f"more than {_MOST_TERMS} terms")
        whole = add(multiply(pair) for pair in product(left, right))
    return whole


def _terms(tree: Tree) -> tuple[Tree, ...]:
    return tree.terms if isinstance(tree, Sum) else (tree,)
