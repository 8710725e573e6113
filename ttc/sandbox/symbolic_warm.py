"""What the zygote of the symbolic pool does once, so that its workers need not: the first of each.

sympy imports parts of itself, and fills caches, only when they are first used.
"""

from __future__ import annotations

from ttc.answers.equality import compare
from ttc.answers.parser import parse_answer
from ttc.sandbox.symbolic_worker import decide

__all__: list[str] = []

_FIRST = (
    ("(x+1)^2", "x^2+2x+1"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"\sin^2 x+\cos^2 x", "1"),
    (r"\cos 2x", r"1-2\sin^2 x"),
    (r"\frac{1}{1+\sqrt{2}}", r"\sqrt{2}-1"),
    (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
    (r"\ln(a^2)", r"2\ln|a|"),
    (r"\sqrt{1/n}", r"\frac{1}{\sqrt{n}}"),
    (r"e^{i\pi}", "-1"),
    (r"\binom{n}{2}", "n(n-1)/2"),
)

for _left, _right in _FIRST:
    _pair = parse_answer(_left), parse_answer(_right)
    if _pair[0] is not None and _pair[1] is not None:
        compare(_pair[0], _pair[1], decide=decide)
