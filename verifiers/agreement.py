"""CodeT: programs and generated tests that vouch for each other.

Source: Chen et al. 2022, arXiv 2207.10397, section 3.2, dual execution agreement.
Cost: of the arithmetic, nothing; executing costs a run for each program and test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["agreement"]


def agreement(
    passed: Sequence[Sequence[bool | None]], *, power: float = 1.0
) -> tuple[float | None, ...]:
    """How far each program's kind and the tests that it passes vouch for each other.

    Programs that pass the very same tests are of one kind. A kind is worth the number of its
    programs times the number of its tests, as a share of all programs and tests: neither tests that
    pass everything nor an odd program that passes by luck is trusted alone.

    Args:
        passed: (programs, tests) whether each passes; `None` where that could not be found out.
        power: of the number of programs. The paper's formula has 1; below it, tests count more.

    Returns:
        A number from 0 to 1 for each program; `None` where a verdict is missing, and without tests.
    """
    if power <= 0:
        raise ValueError(f"power is above 0, not {power}")
    rows = [tuple(row) for row in passed]
    num_tests = len(rows[0]) if rows else 0
    if any(len(row) != num_tests for row in rows):
        raise ValueError("every program has a verdict, or None, on every test")
    known = [row for row in rows if None not in row]
    kinds = Counter(known)
    return tuple(
        None
        if None in row or not num_tests
        else (kinds[row] / len(known)) ** power * sum(map(bool, row)) / num_tests
        for row in rows
    )
