"""Copies of frozen values with other values for some fields."""

from dataclasses import dataclass, replace

import pytest

from ttc.frozen import changed
from ttc.usage import Usage


@dataclass(frozen=True)
class _Checked:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"{self.number} is below 0")


def test_a_changed_copy_is_the_one_that_replace_makes() -> None:
    usage = Usage(tokens=3, calls=1)
    assert changed(usage, tokens=5) == replace(usage, tokens=5)
    assert usage.tokens == 3


def test_a_value_that_checks_itself_is_checked_again() -> None:
    assert changed(_Checked(1), number=2) == _Checked(2)
    with pytest.raises(ValueError, match="-1 is below 0"):
        changed(_Checked(1), number=-1)
