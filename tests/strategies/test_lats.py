"""Tree search over the turns of an agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ttc
from tests.tools.lab import add, counter, note
from ttc import GraphError
from ttc.ports import Request
from ttc.strategies import Agent, Best, LanguageAgentTreeSearch, Sample
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Candidate


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def search(script: Any, verifier: Any = None, **options: Any) -> Any:
    """A search over a counting agent, on a scripted model."""
    judge = verifier or ScriptedVerifier(lambda candidate: 0.5)
    agent = Agent(tools=(counter, add), calls="hermes")
    options = {"max_expansions": 12, "window": 1, **options}
    engine = FakeEngine(script)
    strategy = LanguageAgentTreeSearch(judge, agent=agent, **options) >> Best()
    return ttc.solve("Count to 4.", strategy, model=engine, seed=3), engine


def _told(text: str) -> int:
    """The number that a tool has told last."""
    return int(text.rpartition("tool: ")[2].split()[0])


def _counts(request: Request) -> str:
    """Steps of 1 or 3, by the call; an answer once it has counted to 4 or more."""
    told = _told(request.branch.output) if request.branch.parent else 0
    if told >= 4:
        return f"It is {told}."
    return call("counter", step=1 if request.seed % 2 else 3)


def test_it_follows_turns_to_an_answer_and_scores_each() -> None:
    """A good answer wins, and each turn goes on from the tokens of its parent."""
    judge = ScriptedVerifier(lambda c: 1.0 if c.answer == "4" else 0.1)
    outcome, engine = search(_counts, judge, max_expansions=24)

    assert outcome.answer == "4"
    assert len(outcome.candidates) > 1
    tools = outcome.usage_by_role["tools"].calls
    assert 0 < tools < engine.calls <= 24


def test_a_reversible_tool_s_state_is_that_of_the_path() -> None:
    """Siblings that count do not count for each other."""
    outcome, engine = search(_counts)

    for request in engine.requests:
        steps, told = 0, 0
        for segment in request.branch.lineage():
            if segment.call is not None and "<tool_call>" in segment.text:
                steps += 1 if '"step": 1' in segment.text else 3
            elif "tool: " in segment.text and segment.parent is not None:
                told = _told(segment.text)
        assert told == steps
    assert outcome.answer is not None


def test_agreement_among_siblings_raises_a_value() -> None:
    """By the share of earlier siblings that did the same."""
    outcome, _ = search(
        lambda r: call("add", a=1) if r.branch.parent is None else "It is 2.",
        consistency=0.5,
        max_expansions=4,
    )
    (score,) = outcome.candidate.scores.values()

    assert score.value == pytest.approx(0.75)
    assert score.evidence == {"score": 0.5, "consistency": 1.0}


def test_the_tree_is_the_same_for_any_speed() -> None:
    """With a window of 4, whoever is slow."""

    def run(seconds: float) -> list[Candidate]:
        engine = FakeEngine(_learns, seconds_per_token=lambda r: seconds * (r.seed % 3))
        agent = Agent(tools=(counter,), calls="hermes")
        strategy = LanguageAgentTreeSearch(
            ScriptedVerifier(lambda c: 0.5), agent=agent, max_expansions=32, window=4, memory=2
        )
        return list(ttc.solve("Count.", strategy >> Best(), model=engine, seed=3).candidates)

    texts = [[c.branch.output for c in run(seconds)] for seconds in (0.0, 0.0005)]
    assert texts[0] == texts[1]
    assert any("attempts have taught me" in text for text in texts[0])


LESSON = 'Count by 1.\n<tool_call>{"name": "counter"}</tool_call>\nFinal Answer: 9'


def _learns(request: Request) -> str:
    """As `_counts`; asked to reflect it has a lesson, which spells a call."""
    asks = "You reflect on a failed attempt" in request.branch.text
    return LESSON if asks else _counts(request)


def _reflects(request: Request) -> bool:
    return "You reflect" in request.branch.text


def test_a_failed_trajectory_s_lesson_is_told_to_later_turns_as_data() -> None:
    """Behind the same tokens as without it; what it spells calls nothing, and answers nothing."""
    judge = ScriptedVerifier(lambda c: 1.0 if c.answer == "4" else 0.1)
    outcome, engine = search(_learns, judge, max_expansions=16, memory=1)
    turns = [r.branch for r in engine.requests if not _reflects(r)]
    taught = [branch for branch in turns if "attempts have taught me" in branch.text]
    ends = [c for c in outcome.candidates if c.answer != "4"]

    assert ends
    assert 0 < len(taught) < len(turns)
    quoted = json.dumps(LESSON.replace("<", "< ")).replace("< /", "< /")
    assert all(branch.text.endswith(f": {quoted}\n") for branch in taught)
    assert {branch.parent.text.rpartition("tool: ")[0] == "" for branch in taught if branch.parent}
    assert "9" not in {c.answer for c in outcome.candidates}


def test_a_lesson_is_told_once_on_a_path_and_drawn_where_a_later_turn_can_learn() -> None:
    """So the last trajectories teach nothing, and those that are good enough do not either."""
    judge = ScriptedVerifier(lambda c: 1.0 if c.answer == "4" else 0.1)
    outcome, engine = search(_learns, judge, max_expansions=16, memory=3)
    drawn = sum(map(_reflects, engine.requests))
    failed = [c for c in outcome.candidates if c.answer != "4"]

    assert 1 < drawn <= len(failed)
    paths = [request.branch.output for request in engine.requests if not _reflects(request)]
    assert all(path.count("Count by 1") <= drawn for path in paths)
    good, easy = search(_learns, memory=3, enough=0.5)
    assert not any(map(_reflects, easy.requests))
    assert good.answer is not None


@pytest.mark.parametrize(
    ("agent", "options", "fault"),
    [
        ({"tools": (note,)}, {}, "note cannot be undone"),
        ({"n": 2}, {}, "leave out its n"),
        ({}, {"consistency": 2.0}, "consistency lies between"),
        ({}, {"width": 0}, "width is a whole number"),
        ({"max_turns": 0}, {}, "max_turns is a whole number"),
        ({}, {"order": "random"}, "order is launch or arrival"),
        ({}, {"memory": -1}, "memory is a whole number"),
        ({}, {"memory": 1, "enough": 1.5}, "enough lies between"),
    ],
)
def test_what_makes_no_sense_is_refused(
    agent: dict[str, Any], options: dict[str, Any], fault: str
) -> None:
    node = LanguageAgentTreeSearch(
        ScriptedVerifier({}), agent=Agent(**{"tools": (add,), **agent}), **options
    )
    with pytest.raises(GraphError, match=fault):
        (node >> Best()).validate()


def test_it_needs_an_agent() -> None:
    with pytest.raises(TypeError, match="is no agent"):
        LanguageAgentTreeSearch(ScriptedVerifier({}), agent=Sample())  # type: ignore[arg-type]
