"""CodeT: dual execution agreement by hand, and programs and tests that a model writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ttc
from ttc.ports import Request
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.types import Message, Problem
from ttc.verifiers import CodeT, agreement
from ttc.verifiers.codet import written_tests


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


def test_tests_are_the_lines_that_assert_a_call() -> None:
    """Prose, fences, other functions, doubles and what was thought before do not count."""
    text = (
        "<think>assert f(9) == 9</think>Here:\n```python\nassert f(1) == 2\n  assert f(2) == 3\n"
        "assert g(1) == 2\nassert f(1) == 2\nx = f(3)\nassert 4 == f(3)\n```\nassert that f works"
    )

    assert written_tests(text, "f", is_cut=False) == (
        "assert f(1) == 2",
        "assert f(2) == 3",
        "assert 4 == f(3)",
    )


def test_a_test_that_was_cut_is_none() -> None:
    """Its expected value may be a part of it."""
    assert written_tests("assert f(1) == 2\nassert f(2) == 1", "f", is_cut=True) == (
        "assert f(1) == 2",
    )
    assert written_tests("assert f(1) == 2\n", "f", is_cut=True) == ("assert f(1) == 2",)
    assert written_tests("assert f(" + "1" * 600 + ") == 2", "f", is_cut=False) == ()


PROBLEM = Problem(
    messages=(Message(role="user", content="Write inc(x), which adds one."),),
    answer_format="text",
    metadata={"entry_point": "inc"},
)
RIGHT, ALSO_RIGHT, WRONG = (
    f"def inc(x):\n    return {body}\n" for body in ("x + 1", "1 + x", "x + 2")
)


def writer(programs: Sequence[str], tests: str) -> Callable[[Request], str]:
    """A model that writes programs in turns, and tests when it is asked for them."""
    drawn = iter([*programs] * 9)
    return lambda request: tests if "Write no solution" in request.branch.text else next(drawn)


def solve(script: Callable[[Request], str], *, n: int, **options: Any) -> ttc.Outcome:
    strategy = Sample(n=n) >> CodeT(samples=2, **options) >> Best()
    return ttc.solve(PROBLEM, strategy, model=FakeEngine(script), seed=0)


def test_programs_that_agree_with_the_tests_win() -> None:
    """Two of a kind pass the two tests that are right; one odd program passes the wrong one."""
    tests = "assert inc(1) == 2\nassert inc(5) == 6\nassert inc(1) == 3\n"
    outcome = solve(writer([WRONG, RIGHT, ALSO_RIGHT], tests), n=3)
    values = [candidate.scores["code_t"].value for candidate in outcome.candidates]

    assert values == pytest.approx([1 / 3 * 1 / 3, 2 / 3 * 2 / 3, 2 / 3 * 2 / 3])
    assert outcome.text == RIGHT
    assert outcome.usage.calls == 3 + 2


def test_where_no_test_is_written_programs_are_unknown() -> None:
    """And so is what cannot be run."""
    outcome = solve(writer([RIGHT], "I would test it well."), n=2)

    assert {c.scores["code_t"].value for c in outcome.candidates} == {None}
    assert outcome.stopped_by == "no_finite_score"


def test_a_program_that_ends_early_passes_nothing() -> None:
    """A clean exit is no pass."""
    outcome = solve(writer(["import os\nos._exit(0)\n", RIGHT], "assert inc(1) == 2\n"), n=2)
    values = [candidate.scores["code_t"].value for candidate in outcome.candidates]

    assert values == [0.0, 0.5]


def test_a_problem_without_a_function_leaves_scores_unknown() -> None:
    """Nobody knows what the tests should call."""
    strategy = Sample() >> CodeT() >> Best()

    outcome = ttc.solve("Write code.", strategy, model=FakeEngine("It is 1."))

    (candidate,) = outcome.candidates
    assert "entry_point" in candidate.scores["code_t"].evidence["error"]
