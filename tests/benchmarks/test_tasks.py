"""Tasks and how they are graded."""

import sys
from typing import cast

import pytest

from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task, chain_sum
from ttc.testing import finished
from ttc.types import Problem

HALF = Reference(answer="1/2")


@pytest.mark.parametrize(
    ("answer", "grade"), [("0.5", 1.0), (r"50\%", 1.0), ("50", 0.0), ("half", 0.0)]
)
def test_an_answer_is_right_if_it_shares_the_key_of_the_reference(
    answer: str, grade: float
) -> None:
    """Spelling is no difference; anything else is."""
    assert ExactAnswer()(HALF, finished(answer)).value == grade


@pytest.mark.parametrize("answer", [None, "", "  ", "**"])
def test_an_empty_answer_is_never_right(answer: str | None) -> None:
    """Field defect 12."""
    assert ExactAnswer()(HALF, finished(answer)).value == 0.0


@pytest.mark.parametrize("answer", ["banana", "", "there is no such triangle"])
@pytest.mark.parametrize("reference", ["there is no such triangle", ""])
def test_a_reference_that_cannot_be_read_grades_nobody(reference: str, answer: str) -> None:
    """EQ-14: neither a constant 1 nor two empty answers that agree."""
    assert ExactAnswer()(Reference(answer=reference), finished(answer)).value is None


def test_a_task_may_ask_for_texts() -> None:
    """EQ-14: texts are compared only where the task says so."""
    grade = ExactAnswer(text=True)

    assert grade(Reference(answer="Paris"), finished("**paris**")).value == 1.0
    assert grade(Reference(answer="Paris"), finished("Rome")).value == 0.0
    assert grade(Reference(answer=""), finished("")).value is None


def test_chain_sum_gives_as_many_different_questions_as_asked() -> None:
    """The generator repeats itself: 40 draws of seed 0 hold 37 questions."""
    task = chain_sum(40, seed=0)

    questions = {problem.messages[0].content for problem in task.problems}
    assert len(questions) == len(task.items) == len(task.references) == 40


def test_a_reference_of_chain_sum_is_the_value_of_its_question() -> None:
    """The first question of seed 0."""
    problem, reference = chain_sum(1, seed=0).items[0]

    assert problem.messages[0].content.endswith("problem: 0 - 4 =")
    assert reference == Reference(answer="-4")


def test_a_problem_holds_no_reference() -> None:
    """Only the grader sees it."""
    problem, _ = chain_sum(1, seed=0).items[0]

    assert "answer" not in problem.metadata
    assert not hasattr(problem, "reference")


def test_the_seed_decides_the_questions() -> None:
    """And nothing else does."""
    assert chain_sum(5, seed=7).items == chain_sum(5, seed=7).items
    assert chain_sum(5, seed=7).items != chain_sum(5, seed=1_000_007).items


def test_more_questions_than_the_generator_knows_are_an_error() -> None:
    """Two one-digit operands and a sign make 200 questions."""
    with pytest.raises(ValueError, match=r"gave 200 different questions .* at most 200"):
        chain_sum(201, seed=0)


def test_no_questions_are_an_error() -> None:
    """A task of nothing measures nothing."""
    with pytest.raises(ValueError, match="at least 1 problem, not 0"):
        chain_sum(0, seed=0)


def test_without_the_generator_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is part of the message."""
    monkeypatch.setitem(sys.modules, "reasoning_gym", cast("object", None))

    with pytest.raises(ModuleNotFoundError, match=r'pip install "ttc-orchestrator\[eval\]"'):
        chain_sum(1, seed=0)


@pytest.mark.parametrize("ids", [("a", "a"), ("a", "")])
def test_the_problems_of_a_task_have_ids_of_their_own(ids: tuple[str, str]) -> None:
    """References are found by them."""
    items = tuple(Item(Problem.ask("1 + 1?", id=id), Reference(answer="2")) for id in ids)

    with pytest.raises(ValueError, match="need ids that tell them apart"):
        Task(name="twins", items=items, grader=ExactAnswer())
