"""MathEqual: who is right, who is wrong, and whom nobody can grade."""

import time

import pytest

from ttc.answers import extract_answer
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.tasks import Reference
from ttc.testing import finished


def grade(reference: str, answer: str | None, grader: MathEqual | None = None) -> float | None:
    """The grade of an answer."""
    return (grader or MathEqual())(Reference(answer=reference), finished(answer)).value


@pytest.mark.parametrize(
    ("reference", "text", "value"),
    [
        (r"\frac{2}{9}", r"\boxed{\frac{2}{7}}", 0.0),
        ("14", r"First \boxed{12}. A check gives \boxed{14}, so \boxed{14}.", 1.0),
        (r"\{12,14\}", r"First \boxed{12}. A check gives \boxed{14}, so \boxed{14}.", 0.0),
        ("42", "It could be 41, 43 or 42.", 0.0),
        ("12", r"so the count is \boxed{12", 0.0),
        ("3/4", r"\boxed{\frac{3}{4}", 0.0),
        ("6", r"<think>\boxed{5}?</think>The answer is \boxed{6}", 1.0),
        (r"\dfrac{5}{8}", r"\boxed{\frac{5}{8}}", 1.0),
        ("1290", "So the bill comes to $1,290.00.", 1.0),
        ("-4", "about -$4", 1.0),
        ("17", "The sample said: so #### 3. For my task: 8+9, so\n#### 17", 1.0),
        ("3", "The sample said: so #### 3. For my task: 8+9, so\n#### 17", 0.0),
    ],
)
def test_a_text_is_graded_by_what_it_states(reference: str, text: str, value: float) -> None:
    """EX-01, EX-02, EX-04, EX-05, EX-06, EX-09, EX-10 and EQ-15, from the text to the grade."""
    assert grade(reference, extract_answer(text)) == value


@pytest.mark.parametrize("answer", ["banana", "", "there is no such triangle", None])
@pytest.mark.parametrize("reference", ["there is no such triangle", ""])
def test_a_reference_that_is_no_mathematics_grades_nobody(
    reference: str, answer: str | None
) -> None:
    """EQ-14: the grade is unknown, and never a constant 1."""
    assert grade(reference, answer) is None


def test_a_task_may_ask_for_texts() -> None:
    """EQ-14: they are compared as normalised texts then."""
    texts = MathEqual(text=True)

    assert grade(r"\text{Evelyn}", "evelyn", texts) == 1.0
    assert grade(r"\text{Evelyn}", "Carla", texts) == 0.0
    assert grade("", "", texts) is None


@pytest.mark.parametrize("answer", [None, "", "  ", "**", r"\text{}"])
def test_an_empty_answer_is_never_right(answer: str | None) -> None:
    """Field defect 12: it says why."""
    score = MathEqual()(Reference(answer="5"), finished(answer))

    assert score.value == 0.0
    assert "no answer" in score.evidence


def test_the_type_and_the_tolerance_are_the_tasks_to_declare() -> None:
    """EQ-05 and EQ-08."""
    assert grade("(2,5)", "2<x<5", MathEqual(kind="point")) == 0.0
    assert grade("(2,5)", "2<x<5", MathEqual(kind="interval")) == 1.0
    assert grade(r"\frac13", "0.3333") == 0.0
    assert grade(r"\frac13", "0.3333", MathEqual(tolerance=1e-3)) == 1.0
    assert grade("5", r"5\text{ cm}") == 0.0
    assert grade("5", r"5\text{ cm}", MathEqual(optional_units=True)) == 1.0


@pytest.mark.parametrize(
    ("answer", "value"), [("9^{9^{9^9}}", 0.0), ("(1).__class__.__base__", 0.0), ("((5!)!)!", 0.0)]
)
def test_a_hostile_answer_is_wrong_at_once(answer: str, value: float) -> None:
    """EQ-16: no process is started for it."""
    started = time.perf_counter()

    assert grade("7", answer) == value
    assert time.perf_counter() - started < 1


def test_what_nobody_can_decide_is_unknown() -> None:
    """EQ-16: never right, and it says that it was undecided."""
    score = MathEqual()(Reference(answer="10^{10^{10}}"), finished("10^{10^{10}}+1"))

    assert score.value is None
    assert "undecided" in score.evidence
