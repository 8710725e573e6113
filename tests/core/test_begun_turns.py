"""What the prompt holds of the assistant's turn belongs to what an answer is read from."""

from __future__ import annotations

import pytest

import ttc
from ttc.strategies import Greedy
from ttc.testing import FakeEngine
from ttc.types import Message, Problem


def answer(problem: Problem, reply: str) -> str | None:
    return ttc.solve(problem, Greedy(), model=FakeEngine([reply])).answer


def test_a_thought_that_the_prompt_opens_holds_no_answer() -> None:
    """Until it is closed; what follows is read alone."""
    thinking = Problem(prompt="What is 17 * 23?\n<think>\n")

    assert answer(thinking, "So the answer is 391.") is None
    assert answer(thinking, "Is the answer 401? </think>The answer is 391.") == "391"


def test_a_prompt_that_only_speaks_of_thoughts_opens_none() -> None:
    """It must end with one."""
    assert answer(Problem(prompt="What does <think> mean in 17 * 23?"), "= 391.") == "391"


def test_an_answer_may_begin_in_the_message_that_goes_on() -> None:
    """The text of the candidate is the model's alone."""
    messages = (
        Message(role="user", content="What is 17 * 23?"),
        Message(role="assistant", content="The answer is "),
    )
    problem = Problem(messages=messages, continue_last=True, answer_format="marked")
    outcome = ttc.solve(problem, Greedy(), model=FakeEngine(["391."]))

    assert outcome.answer == "391"
    assert outcome.text == "391."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": "x", "continue_last": True}, "goes through no chat template"),
        ({"prompt": "x", "tools": ({"name": "f"},)}, "goes through no chat template"),
        ({"prompt": "x", "template_options": {"a": 1}}, "goes through no chat template"),
        (
            {"messages": (Message(role="user", content="x"),), "continue_last": True},
            "the last one is the user's",
        ),
    ],
)
def test_a_problem_asks_its_template_for_what_makes_sense(
    changes: dict[str, object], message: str
) -> None:
    """And says so when it is made."""
    with pytest.raises(ValueError, match=message):
        Problem(**changes)  # type: ignore[arg-type]
