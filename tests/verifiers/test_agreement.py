"""CodeT's dual execution agreement, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.verifiers import agreement


def test_a_kind_is_worth_its_programs_times_its_tests() -> None:
    """Two programs that pass three of four tests beat one that passes all four."""
    passed = [
        [True, True, True, False],
        [True, True, True, False],
        [True, True, True, True],
        [False, False, False, True],
    ]

    assert agreement(passed) == pytest.approx(
        [2 / 4 * 3 / 4, 2 / 4 * 3 / 4, 1 / 4 * 4 / 4, 1 / 4 * 1 / 4]
    )


def test_programs_are_of_a_kind_by_the_tests_not_by_their_number() -> None:
    """One test each, and not the same one."""
    assert agreement([[True, False], [False, True]]) == (0.25, 0.25)


def test_a_power_below_one_trusts_tests_more() -> None:
    """sqrt(2/4) x 3/4 against sqrt(1/4) x 4/4."""
    passed = [[True] * 3 + [False]] * 2 + [[True] * 4, [False] * 4]

    assert agreement(passed, power=0.5) == pytest.approx([0.5**0.5 * 0.75] * 2 + [0.5, 0.0])


def test_programs_that_pass_nothing_vouch_for_nothing() -> None:
    """However many they are."""
    assert agreement([[False, False]] * 9 + [[True, False]]) == (0.0,) * 9 + (0.05,)


def test_what_could_not_be_run_is_unknown_and_counts_for_nobody() -> None:
    """Field defect 18: a missing verdict is no failure."""
    assert agreement([[True, None], [True, True], [True, True]]) == (None, 1.0, 1.0)


def test_without_tests_nothing_is_known() -> None:
    """VO-09: never 1 for passing all of none."""
    assert agreement([[], []]) == (None, None)
    assert agreement([]) == ()


def test_a_matrix_has_one_width() -> None:
    """Every program meets every test."""
    with pytest.raises(ValueError, match="a verdict, or None, on every test"):
        agreement([[True], [True, False]])
    with pytest.raises(ValueError, match="power is above 0"):
        agreement([[True]], power=0)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=8))
@settings(deadline=None)
def test_scores_follow_their_programs_in_any_order(passed: list[list[bool]]) -> None:
    """And lie in [0, 1]."""
    forwards, backwards = agreement(passed), agreement(passed[::-1])

    assert forwards == backwards[::-1]
    assert all(value is not None and 0 <= value <= 1 for value in forwards)
