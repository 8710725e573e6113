"""Equality: whether two answers say the same, decided as far as that goes without computing.

Four stages, the cheapest first. Equal keys are equal answers. What is equal once it is multiplied
out (`ttc.answers.expansion`) is equal, and rational functions that are not are different.
Expressions whose bounds are apart (`ttc.answers.bounds`) are different ones. What is then open goes
to `decide`: in a jailed worker that is symbolic algebra (`ttc.sandbox.symbolic`), and by default
nobody, who does not know.

Every verdict is symmetrical: `compare(a, b)` is `compare(b, a)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from ttc.answers.algebra import Number, Tree, apply, multiply, negate, power
from ttc.answers.bounds import are_apart, bounds, varies
from ttc.answers.expansion import expanded_equal
from ttc.answers.kinds import (
    Answer,
    Collection,
    Expression,
    Interval,
    Matrix,
    Pair,
    Relation,
    Union,
)

__all__ = ["Decide", "Rules", "Verdict", "compare"]

Verdict: TypeAlias = bool | None
"""Equal, different, or unknown."""
Decide: TypeAlias = Callable[[Tree, Tree], Verdict]
"""Says of two expressions whether they are equal."""

_MOST_MATCHED = 16
_HUNDREDTH = Number(Fraction(1, 100))


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What counts as equal beyond equal values. The default is strict, and the same for all."""

    kind: Literal["auto", "point", "interval"] = "auto"
    """What `(2, 5)` is: a point, an open interval, or, by `auto`, what the other side is."""
    tolerance: float = 0.0
    """How far, relatively, a number that was written as a decimal may lie from the other side. It
    never applies to whole numbers. Closeness is not transitive: use it to grade, not to vote."""
    optional_units: bool = False
    """Whether a unit, or the percent sign, may be missing on one side."""

    def __post_init__(self) -> None:
        if self.kind not in {"auto", "point", "interval"}:
            raise ValueError(f"kind is auto, point or interval, not {self.kind!r}")
        if not 0 <= self.tolerance < 1:
            raise ValueError(f"tolerance is relative, in [0, 1), not {self.tolerance}")


STRICT = Rules()


def _unknown(left: Tree, right: Tree) -> Verdict:
    return True if left == right else None


def compare(
    left: Answer, right: Answer, rules: Rules = STRICT, decide: Decide = _unknown
) -> Verdict:
    """Whether two answers are equal; `None` where that could not be decided."""
    left, right = _as_other(left, right, rules), _as_other(right, left, rules)
    if left.key == right.key:
        return True
    match left, right:
        case Expression(), Expression():
            return _compare_values(left, right, rules, decide)
        case Relation(), Relation():
            return _compare_relations(left, right, decide)
        case Pair(first), Pair(second):
            return _all_equal(first, second, rules, decide)
        case Interval(), Interval():
            return _compare_intervals(left, right, decide)
        case (Collection(first), Collection(second)) | (Union(first), Union(second)):
            return _match(_distinct(left, first), _distinct(right, second), rules, decide)
        case Matrix(first), Matrix(second):
            if [len(row) for row in first] != [len(row) for row in second]:
                return False
            return _all_equal(sum(first, ()), sum(second, ()), rules, decide)
    return False


def _as_other(answer: Answer, other: Answer, rules: Rules) -> Answer:
    """An answer read in the way that the other side asks for."""
    if isinstance(answer, Relation) and isinstance(other, Expression):
        value = answer.value
        return answer if value is None else Expression(value)
    if isinstance(answer, Pair) and len(answer.parts) == 2 and rules.kind != "point":
        low, high = answer.parts
        is_asked = rules.kind == "interval" or isinstance(other, Interval)
        if is_asked and isinstance(low, Expression) and isinstance(high, Expression):
            return Interval(low.tree, high.tree, False, False)
    return answer


def _compare_values(left: Expression, right: Expression, rules: Rules, decide: Decide) -> Verdict:
    if left.unit != right.unit and not (rules.optional_units and "" in {left.unit, right.unit}):
        return False
    verdict = _compare_trees(left.tree, right.tree, decide)
    if verdict is not True and rules.tolerance and _are_close(left, right, rules.tolerance):
        return True
    if verdict is False and rules.optional_units and left.is_percent != right.is_percent:
        percent, other = (left, right) if left.is_percent else (right, left)
        scaled = multiply((other.tree, _HUNDREDTH))
        return _compare_trees(percent.tree, scaled, decide)
    return verdict


def _compare_trees(left: Tree, right: Tree, decide: Decide) -> Verdict:
    if left == right:
        return True
    if isinstance(left, Number) and isinstance(right, Number):
        return False
    verdict = expanded_equal(left, right)
    if verdict is not None:
        return verdict
    if are_apart(left, right):
        return False
    return decide(left, right)


def _are_close(left: Expression, right: Expression, tolerance: float) -> bool:
    """Whether one side was written as a decimal and lies near the other, which is not whole."""
    if left.decimals is None and right.decimals is None:
        return False
    if _is_whole(left) or _is_whole(right):
        return False
    try:
        first, second = bounds(left.tree, {}), bounds(right.tree, {})
    except (ArithmeticError, RecursionError):
        return False
    gap = max(first.high - second.low, second.high - first.low)
    return gap <= tolerance * max(abs(first.low), abs(second.low)) * (1 + 1e-9)


def _is_whole(answer: Expression) -> bool:
    return isinstance(answer.tree, Number) and answer.tree.value.denominator == 1


def _compare_relations(left: Relation, right: Relation, decide: Decide) -> Verdict:
    """Equal where the differences of the sides are a constant multiple of each other."""
    if left.operator != right.operator:
        return False
    first, second = left.difference, right.difference
    verdict = _compare_trees(first, second, decide)
    if verdict is not True and left.operator in {"=", "!="}:
        verdict = _compare_trees(first, negate(second), decide) or verdict
    if verdict is True:
        return True
    ratio = multiply((first, power(second, Number(Fraction(-1)))))
    is_ordered = left.operator in {"<", "<="}
    if varies(ratio) or (is_ordered and are_apart(ratio, apply("abs", (ratio,)))):
        return False
    return None


def _compare_intervals(left: Interval, right: Interval, decide: Decide) -> Verdict:
    if (left.has_low, left.has_high) != (right.has_low, right.has_high):
        return False
    return _all(
        _compare_trees(a, b, decide) if _is_finite(a) and _is_finite(b) else a == b
        for a, b in ((left.low, right.low), (left.high, right.high))
    )


def _is_finite(tree: Tree) -> bool:
    return "infinity" not in str(tree)


def _all_equal(
    left: Sequence[Answer], right: Sequence[Answer], rules: Rules, decide: Decide
) -> Verdict:
    if len(left) != len(right):
        return False
    return _all(compare(a, b, rules, decide) for a, b in zip(left, right, strict=True))


def _all(verdicts: Iterable[Verdict]) -> Verdict:
    """Whether all hold; it looks no further than the first that does not."""
    whole: Verdict = True
    for verdict in verdicts:
        if verdict is False:
            return False
        whole = whole if verdict else None
    return whole


def _distinct(whole: Answer, parts: tuple[Answer, ...]) -> list[Answer]:
    if isinstance(whole, Collection) and not whole.is_set:
        return list(parts)
    return list({part.key: part for part in parts}.values())


def _match(left: list[Answer], right: list[Answer], rules: Rules, decide: Decide) -> Verdict:
    """Whether each part of one side has an equal one of its own on the other."""
    if len(left) != len(right):
        return False
    if len(left) > _MOST_MATCHED:
        return None
    verdicts = [[compare(a, b, rules, decide) for b in right] for a in left]
    if _can_match([[verdict is True for verdict in row] for row in verdicts]):
        return True
    return (
        None
        if _can_match([[verdict is not False for verdict in row] for row in verdicts])
        else False
    )


def _can_match(edges: list[list[bool]]) -> bool:
    """Whether a perfect matching exists, by augmenting paths."""
    partner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, is_edge in enumerate(edges[row]):
            if is_edge and column not in tried:
                tried.add(column)
                if column not in partner or place(partner[column], tried):
                    partner[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(edges)))
