"""Bounds hold: what is said to be apart is different."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.answers.algebra import Number, Tree, add, apply, multiply, power
from ttc.answers.bounds import are_apart, bounds, varies
from ttc.answers.kinds import Expression
from ttc.answers.parser import parse_answer

RATIONALS = st.fractions(-50, 50, max_denominator=40)


def tree(text: str) -> Tree:
    """The tree of an expression."""
    parsed = parse_answer(text)
    assert isinstance(parsed, Expression)
    return parsed.tree


@given(values=st.lists(RATIONALS, min_size=1, max_size=6), exponent=st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_the_exact_value_lies_within_the_bounds(values: list[Fraction], exponent: int) -> None:
    """Of sums, products and powers, evaluated at a point by interval arithmetic alone."""
    x = values[0]
    point = {"x": float(x)}
    exact = sum(v * Fraction(float(x)) ** i for i, v in enumerate(values)) + (
        Fraction(float(x)) ** exponent
    )
    polynomial = add(
        multiply((Number(v), power(tree("x"), Number(Fraction(i))))) for i, v in enumerate(values)
    )
    found = bounds(add((polynomial, power(tree("x"), Number(Fraction(exponent))))), point)

    assert Fraction(found.low) <= exact <= Fraction(found.high)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\sqrt{2}", math.sqrt(2)),
        (r"\sqrt[3]{-5}", -(5 ** (1 / 3))),
        (r"\sin 3", math.sin(3)),
        (r"\cos(-7)", math.cos(7)),
        (r"\tan 1", math.tan(1)),
        (r"\ln 10", math.log(10)),
        (r"\arctan 3", math.atan(3)),
        (r"\arcsin(0.3)", math.asin(0.3)),
        (r"e^{\pi}", math.exp(math.pi)),
        (r"\lfloor \pi \rfloor", 3.0),
        (r"|{-\sqrt7}|", math.sqrt(7)),
        (r"\pi^{-2}", math.pi**-2),
    ],
)
def test_functions_are_bounded_closely(text: str, value: float) -> None:
    """Around the value that the C library gives."""
    found = bounds(tree(text), {})

    assert found.low <= value <= found.high
    assert found.high - found.low < 1e-12 * max(1.0, abs(value))


@pytest.mark.parametrize("text", ["10^{15}+\\sqrt2-10^{15}", "\\sin(10^{20})", "e^{800}-e^{800}+x"])
def test_what_is_lost_in_rounding_makes_the_bounds_wide(text: str) -> None:
    """So a wrong verdict cannot come of cancellation."""
    assert not are_apart(tree(text), tree(f"{text}+10^{{-30}}"))


def test_a_tower_is_larger_than_every_float() -> None:
    """And still has a sign."""
    largest = bounds(tree("9^{9^{9^9}}"), {})

    assert largest is not None
    assert largest.low == pytest.approx(math.nextafter(math.inf, 0))
    assert largest.high == math.inf
    assert are_apart(tree("9^{9^{9^9}}"), tree("10^{300}"))
    assert not are_apart(tree("9^{9^{9^9}}"), tree("9^{9^{9^{9^9}}}"))


@given(first=RATIONALS, second=RATIONALS)
@settings(max_examples=200, deadline=None)
def test_being_apart_is_symmetrical_and_never_said_of_equals(
    first: Fraction, second: Fraction
) -> None:
    """Of the same value in two forms, and of two values."""
    x = tree("x")
    left = power(add((x, Number(first))), Number(Fraction(2)))
    right = add(
        (
            power(x, Number(Fraction(2))),
            multiply((Number(2 * first), x)),
            Number(second * second),
        )
    )

    assert are_apart(left, right) == are_apart(right, left)
    assert not (abs(first) == abs(second) and are_apart(left, right))


def test_a_constant_does_not_vary() -> None:
    """And what does is seen to."""
    assert varies(tree("x+1"))
    assert not varies(tree(r"\sin^2 x+\cos^2 x"))
    assert not varies(apply("abs", (tree("3\\pi"),)))
