from __future__ import annotations

import pytest

from ttc.sandbox.compare import Layout, same_output


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("0.333333333333", "0.3333333", True),
        ("2.50", "2.5", True),
        ("1000000000001", "1000000000002", False),
        ("YES", "Yes", False),
        ("1 2\n", "1 2", True),
        ("1 2", "1\n2", False),
        ("nan", "0.5", False),
        ("0.5", "nan", False),
        ("1e400", "1e401", False),
        ("1.0", "1", True),
        ("1", "1.0", False),
        ("1.5", "1.6", False),
        ("a\nb\n\n", "a\nb", True),
        ("", "x", False),
        ("1.5", "9" * 100_000, False),
    ],
)
def test_integers_are_exact_and_floats_tolerant(expected: str, got: str, same: bool) -> None:
    """SB-12."""
    assert same_output(expected, got) is same


def test_a_task_may_say_how_strict_it_is() -> None:
    """SB-12."""
    tokens: Layout = "tokens"
    assert same_output("1 2", "1\n2", layout=tokens)
    assert same_output("YES", "Yes", ignore_case=True)
    assert same_output("1.5", "1.6", tolerance=0.1)
