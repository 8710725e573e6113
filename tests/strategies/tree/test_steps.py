"""Steps: cut by tokens, and gone on from to the token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.core.lab import solved
from tests.strategies.tree.world import check
from ttc import Budget, EngineError, GraphError
from ttc.ports import Request
from ttc.strategies import (
    BeamSearch,
    Best,
    Delimiter,
    FixedLength,
    HighEntropy,
    Sentence,
    StepRule,
)
from ttc.testing import FakeEngine
from ttc.text_form import parse, write
from ttc.types import Branch

PROSE = "It is 3.5 m long. Is it? Yes! So the answer is 7.\n\nThe answer is 7."


def going_on(text: str = PROSE) -> Any:
    """Goes on with a text wherever a branch stands in it."""

    def reply(request: Request) -> str:
        return text[len(request.branch.output) :]

    return reply


def steps_of(rule: StepRule, text: str = PROSE, **options: Any) -> list[str]:
    """The steps of a text by a rule."""
    run = solved(
        BeamSearch(check(), num_beams=1, beam_width=1, steps=rule) >> Best(),
        going_on(text),
        **options,
    )
    (candidate,) = run.outcome.candidates
    segments = list(candidate.branch.lineage())[1:]
    for segment in segments:
        assert segment.text == "".join(run.engine.said[t] for t in segment.token_ids or ())
    assert candidate.text == text
    return [segment.text for segment in segments]


def test_a_delimiter_ends_a_step_and_is_a_part_of_it() -> None:
    steps = ["One.\n\n", "Two.\n\n", "Three."]

    def reply(request: Request) -> str:
        return steps[sum(s.parent is not None for s in request.branch.lineage())]

    run = solved(BeamSearch(check(), num_beams=1, beam_width=1) >> Best(), reply)
    (candidate,) = run.outcome.candidates

    assert [segment.text for segment in candidate.branch.lineage()][1:] == steps
    assert candidate.text == "One.\n\nTwo.\n\nThree."


def test_a_step_keeps_the_whole_of_the_token_that_completes_the_delimiter() -> None:
    """What the model has said stays, to the letter, though more than the delimiter is in it."""
    assert steps_of(Delimiter("long")) == ["It is 3.5 m long.", PROSE[len("It is 3.5 m long.") :]]


def test_a_sentence_ends_before_the_token_that_shows_its_end() -> None:
    """A point inside a number ends none."""
    assert steps_of(Sentence()) == [
        "It is 3.5 m long.",
        " Is it?",
        " Yes!",
        " So the answer is 7.",
        "\n\nThe answer is 7.",
    ]


def test_a_fixed_length_counts_tokens() -> None:
    steps = steps_of(FixedLength(6))

    assert [len(step.split()) for step in steps] == [6, 6, 5]


def test_a_step_ends_before_the_token_of_which_the_model_is_unsure() -> None:
    """The first token of a step had to be chosen anyway."""
    rule = HighEntropy(threshold=1.0)

    assert rule.length(_branch(0.1, 0.2, 3.0, 0.1), NO_SCOPE) == 2
    assert rule.length(_branch(5.0, 0.2, 0.1), NO_SCOPE) == 3


def _branch(*entropies: float) -> Branch:
    return Branch(text="", token_ids=(1,) * len(entropies), entropies=entropies)


NO_SCOPE: Any = None
"""A rule that cuts by numbers reads no text."""


def test_a_search_by_entropy_asks_the_engine_to_measure_it() -> None:
    """And loses what comes after the cut, which counts all the same."""
    run = solved(
        BeamSearch(check(), num_beams=1, beam_width=1, steps=HighEntropy(0.5, 8)) >> Best(),
        going_on(),
    )

    assert all(request.sampling.entropy for request in run.engine.requests)
    (candidate,) = run.outcome.candidates
    assert [s.token_ids is not None and len(s.token_ids) for s in candidate.branch.lineage()][
        1:3
    ] == [1, 1]
    assert run.outcome.usage.output_tokens > candidate.branch.num_tokens - 8


def test_a_step_that_a_budget_shortened_is_no_step() -> None:
    """It is the end of a trajectory for which nothing is left: truncated."""
    run = solved(
        BeamSearch(check(), num_beams=1, beam_width=1, steps=FixedLength(8)) >> Best(),
        going_on("so " * 99),
        budget=Budget(tokens=8 + 8 + 5),
    )

    (candidate,) = run.outcome.candidates
    assert (candidate.status, len(candidate.text.split())) == ("truncated", 13)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Delimiter(""), "a delimiter is a text, not ''"),
        (lambda: Delimiter("x", 0), "max_tokens is a whole number of at least 1, not 0"),
        (lambda: Sentence(True), "max_tokens is a whole number of at least 1, not True"),
        (lambda: FixedLength(-3), "max_tokens is a whole number of at least 1, not -3"),
        (lambda: HighEntropy(-1.0), "the threshold is at least 0 nats, not -1.0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(make: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make()


def test_an_engine_that_lacks_what_a_rule_needs_is_refused() -> None:
    engine = FakeEngine("so")
    engine.capabilities = replace(engine.capabilities, entropy=False, cut=False)
    graph = BeamSearch(check(), steps=HighEntropy()) >> Best()

    with pytest.raises(GraphError, match="needs cut, entropy, which the engine fake lacks"):
        graph.validate({"policy": engine})


@pytest.mark.parametrize(
    "text",
    [
        "beam_search(verifier=sequence_probability(), steps=sentence(max_tokens=9)) >> best()",
        "rebase(verifier=sequence_probability(), steps=fixed_length(max_tokens=32)) >> best()",
        "astar(verifier=sequence_probability(), steps=delimiter(text='.')) >> best()",
        "best_first(verifier=sequence_probability(), steps=high_entropy(threshold=1.5)) >> best()",
    ],
)
def test_rules_have_a_text_form(text: str) -> None:
    assert write(parse(text)) == text


def test_a_verifier_may_stand_first() -> None:
    """As the design page writes it."""
    graph = parse("beam_search(self_verify(), num_beams=4) >> vote(weighted=True)")

    assert graph == parse("beam_search(verifier=self_verify()) >> vote(weighted=True)")


def test_an_engine_that_fails_in_the_middle_of_a_step_loses_that_step_alone() -> None:
    def reply(request: Request) -> str | EngineError:
        if request.branch.output and request.seed % 2:
            return EngineError("it broke")
        return "The answer is 1." if request.branch.output else "So.\n\n"

    outcome = solved(BeamSearch(check(), num_beams=1, beam_width=8) >> Best(), reply).outcome

    assert outcome.answer == "1"
