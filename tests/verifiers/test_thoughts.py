"""Judgements of states that are not finished: one by one, and against each other."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

import ttc
from ttc import Budget, EngineError
from ttc.ports import Request
from ttc.strategies import Best, Sample, TreeOfThoughts, Verify, Vote
from ttc.testing import FakeEngine
from ttc.text_form import parse
from ttc.types import Problem, Score
from ttc.verifiers import ThoughtValue, ThoughtVote

QUESTION = "Reach 24."


def scored(verifier: Any, said: Any, *texts: str) -> list[Score]:
    """The scores of some texts, by a model that says what it is told to."""
    outcome = ttc.solve(
        Problem.ask(QUESTION, answer_format="text"),
        Sample(n=len(texts)) >> Verify(verifier) >> Best(),
        model=FakeEngine(list(texts), in_order=True),
        models={"critic": FakeEngine(said)},
        seed=0,
    )
    return [candidate.scores[verifier.name] for candidate in outcome.candidates]


def test_the_value_of_a_state_is_the_mean_of_its_verdicts() -> None:
    says = ["Good.\nVerdict: sure", "Hm.\nVerdict: likely", "No.\nVerdict: impossible"]
    engine = FakeEngine(says, in_order=True)
    (score,) = scored(ThoughtValue(role="critic", samples=3), lambda r: engine._reply(r), "4 * 6")

    assert score.value in (1.0, 0.05, 0.0)
    verdicts = [said.rpartition(" ")[2] for said in says]
    values = [ThoughtValue().read(word) for word in verdicts]
    assert values == [1.0, 0.05, 0.0]


@pytest.mark.parametrize("said", ["I am sure.", "Verdict: perhaps", "", "Verdict: sure\nWait."])
def test_a_verdict_that_cannot_be_read_is_unknown(said: str) -> None:
    (score,) = scored(ThoughtValue(role="critic"), said, "4 * 6")

    assert score.value is None
    assert len(score.evidence["unknown"]) == 3


def test_votes_are_shared_out_among_the_states() -> None:
    def votes(request: Request) -> str:
        attempts = re.findall(r"^BEGIN attempt (\d+)", request.branch.text, re.MULTILINE)
        assert attempts == ["1", "2", "3"]
        return f"Verdict: {1 + Random(request.seed).randrange(2) * 2}"

    scores = scored(ThoughtVote(role="critic", samples=8), votes, "a", "b", "c")

    values = [score.value for score in scores]
    assert values[1] == 0.0
    assert sum(value or 0.0 for value in values) == 1.0
    assert {score.evidence["of"] for score in scores} == {8}


@pytest.mark.parametrize("said", ["Verdict: 4", "Verdict: 0", "Verdict: best", "the first"])
def test_a_vote_for_nothing_counts_for_nothing(said: str) -> None:
    scores = scored(ThoughtVote(role="critic"), said, "a", "b", "c")

    assert [score.value for score in scores] == [None] * 3


def test_a_lone_state_needs_no_vote() -> None:
    (score,) = scored(ThoughtVote(role="critic"), EngineError("down"), "a")

    assert score.value == 1.0


@pytest.mark.parametrize("verifier", [ThoughtValue(), ThoughtVote()], ids=lambda v: v.name)
@pytest.mark.parametrize("search", ["breadth_first", "depth_first"])
def test_thoughts_are_searched_with_the_model_that_thinks(verifier: Any, search: Any) -> None:
    """A model that judges well is led to its right answer, within its budget."""

    def reply(request: Request) -> str:
        prompt = next(request.branch.lineage()).text
        if "Verdict: N" in prompt:
            right = re.findall(r"BEGIN attempt (\d+) \w+\n(?:so good|.*is 24)", prompt)
            return f"Verdict: {right[0] if right else 1}"
        if "Verdict: sure" in prompt:
            shown = re.search(r"BEGIN attempt \w+\n(.*)", prompt)
            assert shown is not None
            return f"Verdict: {'sure' if 'good' in shown[1] else 'impossible'}"
        good = Random(request.seed).random() < 0.5
        if request.branch.parent is None:
            return f"so {'good' if good else 'bad'} {request.seed % 97}\n\n"
        return f"It is {24 if 'good' in request.branch.output else 7}."

    graph = TreeOfThoughts(verifier, search=search, width=4, breadth=1, max_steps=3) >> Vote()
    outcome = ttc.solve(
        QUESTION, graph, model=FakeEngine(reply), seed=1, budget=Budget(tokens=20_000)
    )

    assert outcome.answer == "24"
    assert outcome.usage.verifier_calls > 0


def test_both_have_a_text_form() -> None:
    graph = parse("tree_of_thoughts(thought_vote(samples=3), breadth=2) >> vote()")

    assert graph == TreeOfThoughts(ThoughtVote(samples=3), breadth=2) >> Vote()


@pytest.mark.parametrize("make", [ThoughtValue, ThoughtVote])
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="3 verdicts at temperature 0 are one"):
        make(samples=3, temperature=0.0)
    with pytest.raises(ValueError, match="rubric is a text"):
        make(rubric=" ")
    with pytest.raises(ValueError, match="samples is a whole number"):
        make(samples=0)
