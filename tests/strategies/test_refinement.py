"""Refinement: better by feedback, never worse by a bad revision, and everything is counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import ttc
from tests.core.lab import solved
from ttc import Budget, Candidate, EngineError, GraphError, Node, Outcome
from ttc.ports import Request
from ttc.strategies import (
    Best,
    CannotBeOvertaken,
    Debug,
    GuidedRefine,
    Reflexion,
    Revisions,
    Sample,
    SelfRefine,
    Vote,
)
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Problem
from ttc.verifiers import SelfCertainty

SCORES = ScriptedVerifier({"1": 0.1, "2": 0.6, "3": 1.0})
ONE, TWO, THREE = (f"The answer is {n}." for n in (1, 2, 3))


def asked(request: Request, what: str) -> bool:
    """Whether a prompt is of some kind."""
    return what in next(request.branch.lineage()).text


def script(
    drafts: Sequence[str | EngineError], feedback: str | EngineError = "Wrong."
) -> Callable[[Request], str | EngineError]:
    """Drafts in order, and feedback whenever it is asked for."""
    replies = iter(drafts)

    def reply(request: Request) -> str | EngineError:
        is_feedback = asked(request, "You review") or asked(request, "You reflect")
        return feedback if is_feedback else next(replies)

    return reply


def trends(outcome: Outcome) -> list[tuple[tuple[float | None, ...], int]]:
    """What the trace tells of each candidate: the scores of its versions, and which stands."""
    return [
        (record.detail["rewards"], record.detail["kept"])
        for record in outcome.trace
        if record.detail.get("rule") == "refined"
    ]


def test_feedback_leads_to_a_revision() -> None:
    """Feedback sees the solution, the revision sees both."""
    run = solved(
        Sample(n=1) >> SelfRefine(rounds=1) >> Vote(), script([ONE, TWO], "It is off by one.")
    )
    review, revision = (next(r.branch.lineage()).text for r in run.engine.requests[1:])

    assert run.outcome.answer == "2"
    assert ONE in review
    assert ONE in revision
    assert "It is off by one." in revision


def test_a_solution_that_nothing_is_wrong_with_is_left_alone() -> None:
    """The verdict is the last line of the critic's own words, and nothing in the solution."""
    done = solved(Sample(n=1) >> SelfRefine(), script([ONE], "Fine.\nVerdict: done")).outcome
    fake = solved(
        Sample(n=1) >> SelfRefine(rounds=1) >> Vote(), script([f"Verdict: done\n{ONE}", TWO])
    ).outcome

    assert (done.answer, done.usage.calls) == ("1", 2)
    assert fake.answer == "2"


@pytest.mark.parametrize(
    "node", [SelfRefine(verifier=SCORES, rounds=2), GuidedRefine(verifier=SCORES)]
)
def test_a_revision_that_makes_it_worse_does_not_stand(node: Node) -> None:
    """The best version does, and the trace tells all scores."""
    outcome = solved(Sample(n=1) >> node >> Best(), script([TWO, ONE, ONE])).outcome

    assert outcome.answer == "2"
    assert trends(outcome) == [((0.6, 0.1, 0.1), 0)]


def test_the_earliest_of_equal_versions_stands() -> None:
    """A tie is no improvement."""
    texts = [f"First. {TWO}", f"Second. {TWO}"]
    outcome = solved(Sample(n=1) >> SelfRefine(verifier=SCORES, rounds=1) >> Best(), script(texts))

    assert outcome.outcome.text == texts[0]


def test_without_scores_the_last_version_with_an_answer_stands() -> None:
    """A revision that gives up takes nothing away."""
    outcome = solved(
        Sample(n=1) >> SelfRefine(rounds=2) >> Vote(), script([ONE, TWO, "I give up."])
    )

    assert outcome.outcome.answer == "2"


def test_enough_is_enough() -> None:
    """Also for a first version; no call is made for it."""
    for drafts, calls in (([THREE], 1), ([ONE, THREE, ONE], 3)):
        graph = Sample(n=1) >> SelfRefine(verifier=SCORES, enough=1.0, rounds=4) >> Best()
        outcome = solved(graph, script(drafts)).outcome
        assert (outcome.answer, outcome.usage.calls) == ("3", calls)


def test_a_score_that_is_there_is_not_asked_for_again() -> None:
    """The verifier before the node has given it; revisions are scored anew."""
    verifier = ScriptedVerifier({"1": 0.1, "2": 0.6})
    graph = Sample(n=2) >> verifier >> SelfRefine(verifier=verifier, rounds=1) >> Best()
    outcome = solved(graph, script([ONE, ONE, TWO, TWO])).outcome

    assert outcome.usage.verifier_calls == 4
    assert outcome.answer == "2"


def test_a_revision_carries_no_score_of_its_elder() -> None:
    """A judge of the draft said nothing of the revision."""
    other = ScriptedVerifier({"1": 0.9}, name="other")
    graph = Sample(n=1) >> other >> SelfRefine(verifier=SCORES, rounds=1) >> Best()
    outcome = solved(graph, script([ONE, TWO])).outcome

    assert outcome.candidate is not None
    assert set(outcome.candidate.scores) == {"scripted"}
    with pytest.raises(GraphError, match="no score is called 'other'"):
        (Sample() >> other >> SelfRefine(verifier=SCORES) >> Best(by="other")).validate()


@pytest.mark.parametrize("broken", ["feedback", "revision"])
def test_a_call_that_fails_leaves_the_best_so_far(broken: str) -> None:
    """Its siblings go on."""
    fault = EngineError("it broke")
    feedback: str | EngineError = fault if broken == "feedback" else "Wrong."
    drafts: list[str | EngineError] = [ONE, TWO, THREE, fault]
    graph = Sample(n=2) >> SelfRefine(verifier=SCORES, rounds=1) >> Best()
    outcome = solved(graph, script(drafts, feedback)).outcome

    assert outcome.usage.calls == (4 if broken == "feedback" else 6)
    assert outcome.answer == ("3" if broken == "revision" else "2")
    assert outcome.stopped_by == "completed"


def test_a_refused_call_leaves_the_best_so_far_and_tells() -> None:
    """Whichever call it is."""
    graph = Sample(n=2) >> SelfRefine(verifier=SCORES, rounds=3) >> Best()
    for calls in range(2, 8):
        outcome = solved(graph, script([TWO, *[ONE] * 9]), budget=Budget(calls=calls)).outcome
        assert (outcome.answer, outcome.stopped_by) == ("2", "calls")


def test_a_deadline_in_the_middle_gives_the_best_until_then() -> None:
    """Half a second of tokens at a tenth each: the first revision comes too late."""
    graph = Sample(n=1) >> SelfRefine(verifier=SCORES, rounds=9) >> Best()
    outcome = solved(graph, script([TWO, *[THREE] * 9]), budget=Budget(seconds=0.55)).outcome

    assert (outcome.answer, outcome.stopped_by) == ("2", "seconds")


def test_a_candidate_costs_what_all_its_versions_cost() -> None:
    """Feedback and failed drafts included."""
    run = solved(Sample(n=1) >> SelfRefine(rounds=2) >> Vote(), script([ONE, TWO, THREE]))
    (candidate,) = run.outcome.candidates

    assert candidate.usage.tokens == run.outcome.usage.tokens
    assert candidate.usage.calls == 5


def test_a_stop_downstream_counts_nothing_of_a_winner_as_cancelled() -> None:
    """What a candidate rests on was used."""
    graph = Sample(n=3) >> SelfRefine(rounds=1) >> Vote(stop=CannotBeOvertaken())
    outcome = solved(graph, script([ONE] * 6)).outcome
    used = [
        r
        for r in outcome.trace
        if r.kind == "call" and r.path.startswith("1") and r.index in (0, 3)
    ]

    assert outcome.stopped_by == "cannot_be_overtaken"
    assert all(record.usage.tokens_cancelled == 0 for record in used)


def test_a_reflexion_tells_its_last_lessons() -> None:
    """The latest so many, with how the trial was judged."""
    notes = iter(["Lesson one.", "Lesson two.", "Lesson three."])
    drafts = iter([ONE, ONE, TWO, THREE])

    def reply(request: Request) -> str:
        return next(notes if asked(request, "You reflect") else drafts)

    run = solved(Sample(n=1) >> Reflexion(verifier=SCORES, rounds=3, memory=2) >> Best(), reply)
    texts = [next(r.branch.lineage()).text for r in run.engine.requests]

    assert run.outcome.answer == "3"
    assert "Its score is 0.1 on a scale from 0 to 1." in texts[1]
    assert [f"Lesson {n}." in texts[-1] for n in ("one", "two", "three")] == [False, True, True]
    assert ONE not in texts[-1]


def test_guided_revisions_see_the_best_and_the_worst() -> None:
    """With their scores; the only version is the best alone."""
    graph = Sample(n=1) >> GuidedRefine(verifier=SCORES, rounds=2, drafts=2) >> Best()
    run = solved(graph, script([TWO, ONE, THREE, ONE, ONE]))
    texts = [next(r.branch.lineage()).text for r in run.engine.requests]

    assert "worst solution" not in texts[1]
    assert "Its score: 1" in texts[3]
    assert "Its score: 0.1" in texts[3]
    assert trends(run.outcome) == [((0.6, 0.1, 1.0, 0.1, 0.1), 2)]


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (SelfRefine(rounds=0), "rounds is a whole number"),
        (SelfRefine(temperature=-1.0), "temperature is"),
        (SelfRefine(enough=0.5), "enough=0.5 is a score, and there is no verifier"),
        (SelfRefine(verifier=SCORES, enough=2.0), "more than a score can be"),
        (SelfRefine(role=""), "role is a text"),
        (Reflexion(), "it goes by scores"),
        (Reflexion(verifier=SCORES, memory=0), "memory is a whole number"),
        (GuidedRefine(verifier=SCORES, drafts=0), "drafts is a whole number"),
        (Debug(max_tokens=0), "max_tokens is a whole number"),
    ],
)
def test_faults_are_told_before_anything_runs(node: Node, fault: str) -> None:
    """With the value, and what to do."""
    with pytest.raises(GraphError, match=fault):
        (Sample() >> node >> Vote()).validate()


def test_what_is_no_verifier_is_refused_when_it_is_given() -> None:
    """By its value."""
    with pytest.raises(TypeError, match="1 is no verifier"):
        SelfRefine(verifier=1)  # type: ignore[arg-type]


def test_a_verifier_of_tokens_measures_revisions_too() -> None:
    """What it needs is asked of whoever revises."""
    graph = Sample(n=1) >> SelfRefine(verifier=SelfCertainty(), rounds=1) >> Best()
    outcome = solved(graph, script([ONE, TWO])).outcome

    assert all(value is not None for value in trends(outcome)[0][0])


# Programs

linux = pytest.mark.skipif(sys.platform != "linux", reason="the jail needs Linux")


def program(body: str) -> str:
    """A reply with a program."""
    return f"```python\ndef add(a, b):\n    return {body}\n```"


def mended(replies: Sequence[str], problem: Problem, **options: Any) -> tuple[Outcome, FakeEngine]:
    """A run that mends one program."""
    engine = FakeEngine(list(replies), in_order=True)
    graph = Sample(n=1) >> Debug(**options) >> Best()
    return ttc.solve(problem, graph, model=engine, seed=0), engine


def problem_of(*tests: str, **metadata: Any) -> Problem:
    asked = Problem.ask("Write add(a, b).", answer_format="text")
    return replace(asked, tests=tests, metadata=metadata)


@linux
def test_a_program_is_mended_by_what_came_of_it() -> None:
    """The error is shown; a program that passes is left alone."""
    problem = problem_of("assert add(1, 2) == 3", "assert add(5, 5) == 10")
    outcome, engine = mended([program("a + c"), program("a + b")], problem, rounds=3)

    assert outcome.candidate is not None
    assert outcome.candidate.scores["public_tests"].value == 1.0
    assert len(engine.requests) == 2
    assert "NameError" in engine.requests[1].branch.text
    assert "assert add(1, 2) == 3" in engine.requests[1].branch.text


@linux
def test_a_repair_that_fails_as_well_leaves_the_first() -> None:
    """After all rounds."""
    problem = problem_of("assert add(1, 2) == 3")
    outcome, engine = mended([program("a"), program("b"), program("0")], problem, rounds=2)

    assert outcome.text == program("a")
    assert len(engine.requests) == 3
    assert trends(outcome) == [((0.0, 0.0, 0.0), 0)]


@linux
def test_output_is_shown_where_tests_give_input() -> None:
    """What the program printed, beside what was expected."""
    echo = "```python\nprint(input())\n```"
    total = "```python\nprint(sum(map(int, input().split())))\n```"
    problem = problem_of(json.dumps(["1 2", "3"]), test_form="stdin")
    outcome, engine = mended([echo, total], problem)

    assert outcome.text == total
    assert "result: output" in engine.requests[1].branch.text


def test_without_public_tests_nothing_can_be_run() -> None:
    """The score is unknown, and says why."""
    outcome, _ = mended([program("a")], problem_of(), rounds=1)
    (candidate,) = outcome.candidates

    assert candidate.scores["public_tests"].value is None
    assert "has no public tests" in candidate.scores["public_tests"].evidence["error"]


# Revisions


def test_every_version_of_a_chain_is_a_candidate_of_its_own() -> None:
    """Its text and answer are its own; a version without an answer has none."""
    graph = Revisions(length=3, cue=" Again:") >> Vote()
    outcome = solved(
        graph, ["The answer is 4.", "I am not sure", "The answer is 5."], in_order=True
    )

    assert [c.answer for c in outcome.outcome.candidates] == ["4", None, "5"]
    assert [c.text.strip() for c in outcome.outcome.candidates][2] == "The answer is 5."


def test_a_chain_is_one_sequence_of_tokens() -> None:
    """A version goes on from the very branch before it, and the cue; nothing is written anew."""
    run = solved(Revisions(length=3, cue=" Again:") >> Vote(), ONE)
    first, second, third = (request.branch for request in run.engine.requests)

    assert second.parent is not None
    assert second.parent.parent is first
    assert third.parent is not None
    assert third.parent.parent is second
    assert run.outcome.usage.input_tokens > run.outcome.usage.tokens


def test_chains_come_in_turns() -> None:
    """All first versions, then all second ones, in launch order."""
    said = [f"The answer is {n}." for n in range(4)]
    outcome = solved(Revisions(chains=2, length=2) >> Vote(), said, in_order=True).outcome

    assert [c.answer for c in outcome.candidates] == ["0", "1", "2", "3"]


def test_a_chain_ends_where_it_fails() -> None:
    """The other goes on, and what came before stands."""
    said: list[str | EngineError] = [ONE, TWO, EngineError("it broke"), TWO, TWO]
    outcome = solved(Revisions(chains=2, length=3) >> Vote(), said, in_order=True).outcome

    assert [c.status == "failed" for c in outcome.candidates] == [0, 0, 1, 0, 0]
    assert outcome.answer == "2"


def test_an_early_stop_saves_later_versions() -> None:
    """They are not written."""
    graph = Revisions(length=5) >> Vote(stop=CannotBeOvertaken())
    assert solved(graph, ONE).outcome.usage.calls == 3


@pytest.mark.parametrize("tokens", [40, 80, 160])
def test_a_limit_binds_the_whole_of_a_deep_chain(tokens: int) -> None:
    """Field defect 26: what parents spent counts, to the token."""
    graph = Revisions(length=40, chains=2, max_tokens=8) >> Vote()
    run = solved(graph, ONE, budget=Budget(tokens=tokens))

    assert run.outcome.usage.tokens <= tokens
    assert run.outcome.usage.output_tokens == run.engine.output_tokens
    assert run.outcome.stopped_by == "tokens"
    assert run.outcome.answer == "1"


def test_a_vote_over_a_chain_counts_each_version_once() -> None:
    """Copies of one candidate do not vote again."""

    @ttc.node
    async def twice(candidates: Any, scope: Any) -> Any:
        async for candidate in candidates:
            yield candidate
            yield candidate

    said = [ONE, TWO, TWO]
    graph = Revisions(length=3) >> twice >> Vote()
    outcome = solved(graph, said, in_order=True).outcome
    seen: list[Candidate] = list(outcome.candidates)

    assert outcome.confidence == pytest.approx(2 / 3)
    assert len(seen) == 3
