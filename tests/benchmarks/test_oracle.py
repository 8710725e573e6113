"""A grader in the place of a verifier."""

import asyncio
from typing import cast

import pytest

import ttc
from ttc.benchmarks.oracle import Oracle
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.errors import VerifierError
from ttc.ports import Scope, Verifier
from ttc.strategies import Best, Sample, Verify, Vote
from ttc.testing import FakeEngine, finished
from ttc.types import Problem

TASK = Task(
    name="one sum",
    items=(Item(Problem.ask("What is 1 + 1?", id="sum"), Reference(answer="2")),),
    grader=ExactAnswer(),
)
ORACLE = Oracle.of(TASK)
NO_SCOPE = cast("Scope", None)


def test_the_oracle_scores_by_the_reference_of_the_problem() -> None:
    """Looked up by the problem's id."""
    candidates = [finished("2"), finished("3"), finished("2.0")]

    scores = asyncio.run(ORACLE(TASK.problems[0], candidates, NO_SCOPE))

    assert [score.value for score in scores] == [1.0, 0.0, 1.0]
    assert {score.verifier for score in scores} == {"oracle"}


def test_a_problem_without_a_reference_is_an_error() -> None:
    """It is never a wrong answer."""
    with pytest.raises(VerifierError, match="no reference for the problem 'other'"):
        asyncio.run(ORACLE(Problem.ask("?", id="other"), [finished("2")], NO_SCOPE))


def test_the_oracle_is_a_verifier_that_shows_no_reference() -> None:
    """A graph that is printed or logged does not leak the answers."""
    assert isinstance(ORACLE, Verifier)
    assert "Reference(" not in repr(ORACLE)


def test_what_an_oracle_helped_to_choose_is_marked() -> None:
    """A minority answer can only win by the reference, and the outcome says so."""
    engine = FakeEngine(["It is 3.", "It is 3.", "It is 2.", "It is 3."], in_order=True)
    strategy = Sample(n=4, max_tokens=8, ahead=1) >> Verify(ORACLE) >> Best(by="oracle")

    outcome = ttc.solve(TASK.problems[0], strategy, model=engine, seed=0)

    assert outcome.answer == "2"
    assert outcome.oracle


def test_without_an_oracle_nothing_is_marked() -> None:
    """The vote of the same samples."""
    engine = FakeEngine(["It is 3.", "It is 3.", "It is 2.", "It is 3."], in_order=True)

    outcome = ttc.solve(
        TASK.problems[0], Sample(n=4, max_tokens=8, ahead=1) >> Vote(), model=engine, seed=0
    )

    assert outcome.answer == "3"
    assert not outcome.oracle
