"""A model is asked for a number of the question, given the answer."""

from __future__ import annotations

import pytest

import ttc
from ttc.ports import Request
from ttc.strategies import Best, Sample, Vote
from ttc.testing import FakeEngine
from ttc.verifiers import AskBack

QUESTION = "Ann has 3 bags of 4 apples. How many apples?"


def backward(request: Request) -> str:
    """Solves 3 x 4 = 12 backwards: X is the answer over the number that is still there."""
    prompt = request.branch.text
    if "hides a number" not in prompt:
        return "The answer is 12." if request.seed % 2 else "The answer is 20."
    answer = int(prompt.partition("BEGIN ANSWER")[2].split("\n")[1])
    other = 4 if "X bags of 4" in prompt else 3
    return f"So X is a number. The answer is {answer / other:g}."


def solve(script: object, *, n: int = 6, question: str = QUESTION) -> ttc.Outcome:
    engine = FakeEngine(script)  # type: ignore[arg-type]
    return ttc.solve(question, Sample(n=n) >> AskBack() >> Best(), model=engine, seed=1)


def scores(outcome: ttc.Outcome) -> dict[str | None, float | None]:
    return {c.answer: c.scores["ask_back"].value for c in outcome.candidates}


def test_the_answer_that_leads_back_wins() -> None:
    """12 gives back 3 and 4; 20 gives 5 and 6.67."""
    outcome = solve(backward)

    assert outcome.answer == "12"
    assert scores(outcome) == {"12": 1.0, "20": 0.0}


def test_each_distinct_answer_is_asked_about_once() -> None:
    """Two answers, two numbers each, whatever many samples gave them."""
    outcome = solve(backward, n=9)

    assert outcome.usage.calls == 9 + 4
    assert outcome.usage.verifier_calls == 9


def test_half_the_numbers_are_half_a_score() -> None:
    """One comes back right."""

    def half(request: Request) -> str:
        if "hides a number" not in request.branch.text:
            return "The answer is 12."
        return "The answer is 4."

    assert scores(solve(half)) == {"12": 0.5}


@pytest.mark.parametrize("reply", ["I cannot tell.", "", ttc.EngineError("broken")])
def test_what_cannot_be_read_is_unknown(reply: object) -> None:
    """Field defect 19: prose, nothing and failures are no number."""

    def script(request: Request) -> object:
        return reply if "hides a number" in request.branch.text else "The answer is 12."

    outcome = solve(script)

    assert scores(outcome) == {"12": None}
    assert outcome.stopped_by == "no_finite_score"


def test_a_number_that_is_not_told_does_not_count() -> None:
    """The score is over those that came back."""

    def once(request: Request) -> str:
        if "hides a number" not in request.branch.text:
            return "The answer is 12."
        return "The answer is 3." if "X bags" in request.branch.text else "No idea."

    assert scores(solve(once)) == {"12": 1.0}


def test_a_question_without_numbers_has_no_score() -> None:
    """And no call is made."""
    outcome = solve(backward, question="How many apples?", n=2)

    assert set(scores(outcome).values()) == {None}
    assert outcome.usage.calls == 2


def test_an_answer_is_data_in_the_prompt() -> None:
    """It cannot end its fence, and stands between two lines with one code."""
    engine = FakeEngine(backward)
    ttc.solve(QUESTION, Sample(n=2) >> AskBack(numbers=1) >> Vote(weighted=True), model=engine)
    asked = [r.branch.text for r in engine.requests if "hides a number" in r.branch.text]

    assert asked
    for prompt in asked:
        code = prompt.partition("BEGIN ANSWER ")[2].split("\n")[0]
        assert f"END ANSWER {code}" in prompt


def test_numbers_that_make_no_sense_are_refused() -> None:
    """With their values."""
    with pytest.raises(ValueError, match=r"numbers \(0\)"):
        AskBack(numbers=0)
