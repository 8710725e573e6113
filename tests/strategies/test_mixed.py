"""Several models, populations and programs, and what each makes of another's work."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, seen, solved, talker, uneven
from ttc import Budget, EngineError, GraphError, Node, Outcome
from ttc.ports import Request
from ttc.strategies import (
    BehaviourClusters,
    Best,
    Cascade,
    MixtureOfAgents,
    RecursiveAggregation,
    Sample,
    Scored,
    SpecReason,
    SStar,
    Vote,
)
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.text_form import parse, write
from ttc.types import Problem
from ttc.verifiers import Margin, MeanLogprob, SequenceProbability, WeightedSum

linux = pytest.mark.skipif(sys.platform != "linux", reason="the jail needs Linux")

# Routing


@pytest.mark.parametrize(
    ("logprob", "calls"), [(-0.01, 1), (-3.0, 5)], ids=["a sure answer", "an unsure one"]
)
def test_a_single_sample_is_routed_by_its_score(logprob: float, calls: int) -> None:
    """Mean log probability and margin, half and half."""
    hybrid = WeightedSum(Margin(), SequenceProbability(), name="hybrid")
    ladder = Cascade(
        Sample(n=1) >> hybrid >> Best(),
        Sample(n=4) >> Vote(),
        accept=Scored(by="hybrid", at_least=0.8),
    )
    engine = FakeEngine("The answer is 1.", logprob=logprob)

    assert ttc.solve(QUESTION, ladder, model=engine, seed=0).usage.calls == calls


def test_an_unknown_score_is_never_enough() -> None:
    """Nor is a missing one."""
    rule = Scored(by="scripted", at_least=0.0)
    ladder = Cascade(
        Sample(n=1) >> ScriptedVerifier({}) >> Vote(), Sample(n=2) >> Vote(), accept=rule
    )

    assert solved(ladder, "The answer is 1.").outcome.usage.calls == 3


def test_a_rule_by_a_score_that_no_rung_gives_is_a_fault() -> None:
    """It could never accept; the last rung needs none."""
    rule = Scored(by="mean_logprob", at_least=-1.0)
    scored = Sample() >> MeanLogprob() >> Best()

    with pytest.raises(
        GraphError, match="rung 0 gives no score called 'mean_logprob'; there is none"
    ):
        Cascade(Sample() >> Vote(), scored, accept=rule).validate()
    Cascade(scored, Sample() >> Vote(), accept=rule).validate()
    accept = "accept=scored(by='margin', at_least=0.5)"
    assert parse(f"cascade(sample() >> margin() >> best(), greedy(), {accept})")


# Mixture of agents


def mixed(node: Node, models: dict[str, FakeEngine], budget: Budget | None = None) -> Outcome:
    """A run with several models."""
    return ttc.solve(QUESTION, node, models=models, seed=0, budget=budget)


def test_each_layer_sees_the_answers_of_the_one_before() -> None:
    """All of them; the first layer sees the problem as it is."""
    one, two = FakeEngine("The answer is 1."), FakeEngine("The answer is 2.")
    last = FakeEngine("The answer is 3.")
    node = MixtureOfAgents("a", "b", layers=2, aggregator="c")
    outcome = mixed(node, {"a": one, "b": two, "c": last, "policy": last})
    prompts = [request.branch.text for request in (*one.requests, *last.requests)]

    assert outcome.answer == "3"
    assert outcome.usage.calls == 5
    assert prompts[0] == f"user: {QUESTION}\n"
    assert all("answer is 1." in p and "answer is 2." in p for p in prompts[1:])


def test_an_aggregator_that_fails_leaves_a_proposal() -> None:
    """And a proposer that fails is left out."""
    broken = FakeEngine(EngineError("it broke"))
    one = FakeEngine("The answer is 1.")
    node = MixtureOfAgents("bad", "good", layers=2, aggregator="bad")
    outcome = mixed(node, {"bad": broken, "good": one, "policy": one})

    assert outcome.answer == "1"
    assert one.requests[1].branch.text.count("BEGIN solution") == 1


def test_a_mixture_of_failures_has_no_answer() -> None:
    """Nothing is aggregated."""
    outcome = solved(MixtureOfAgents(layers=2), EngineError("it broke")).outcome

    assert (outcome.answer, outcome.usage.calls) == (None, 6)
    assert outcome.stopped_by == "no_valid_answer"


def test_one_layer_that_a_limit_cuts_gives_what_there_is() -> None:
    """A proposal is an answer."""
    outcome = solved(MixtureOfAgents(), "The answer is 1.", budget=Budget(calls=2)).outcome

    assert (outcome.answer, outcome.stopped_by) == ("1", "calls")


# Recursive aggregation


def test_each_member_is_made_of_several_others() -> None:
    """Drawn with the run's seed; sizes are as told."""
    said = [f"The answer is {n}." for n in range(4)]

    def groups(seed: int) -> list[list[str]]:
        graph = Sample(n=4) >> RecursiveAggregation(size=2, rounds=1) >> Vote()
        requests = solved(graph, said, in_order=True, seed=seed).engine.requests[4:]
        return [[s for s in said if s in r.branch.text] for r in requests]

    assert [len(group) for group in groups(0)] == [2] * 4
    assert groups(0) == groups(0) != groups(1)


def test_rounds_build_on_rounds() -> None:
    """What a round wrote is what the next one shows."""
    said = ["The answer is 1."] * 2 + ["The answer is 2."] * 2 + ["The answer is 3."] * 2
    run = solved(Sample(n=2) >> RecursiveAggregation(rounds=2) >> Vote(), said, in_order=True)

    assert "answer is 2." in run.engine.requests[4].branch.text
    assert "answer is 1." not in run.engine.requests[4].branch.text
    assert run.outcome.answer == "3"


def test_a_member_that_cannot_be_renewed_stays() -> None:
    """A failed call, an answer that is none, a limit."""
    said: list[str | EngineError] = ["The answer is 1."] * 2
    for reply in (EngineError("it broke"), "I give up."):
        graph = Sample(n=2) >> RecursiveAggregation(rounds=1) >> Vote()
        outcome = solved(graph, [*said, reply, reply], in_order=True).outcome
        assert (outcome.answer, outcome.confidence) == ("1", 1.0)
    cut = solved(
        Sample(n=2) >> RecursiveAggregation() >> Vote(), said, budget=Budget(calls=3)
    ).outcome
    assert (cut.answer, cut.stopped_by) == ("1", "calls")


# Speculative reasoning

CUE = "to 9, right? "


def speculated(
    drafts: Sequence[str | EngineError],
    large: Callable[[Request], str | EngineError],
    budget: Budget | None = None,
    **options: Any,
) -> tuple[Outcome, FakeEngine, FakeEngine]:
    """A run of two models: a small one's replies in order, and a large one's."""
    small, big = FakeEngine(list(drafts), in_order=True), FakeEngine(large)
    graph = SpecReason(**options) >> Vote()
    models = {"draft": small, "policy": big}
    outcome = ttc.solve(QUESTION, graph, models=models, seed=0, budget=budget)
    return outcome, small, big


def digits(*said: str, step: str = "The answer is 9.") -> Callable[[Request], str]:
    """A large model that says digits in order, and writes one step whenever it must."""
    replies = iter(said)

    def reply(request: Request) -> str:
        return next(replies) if request.branch.text.endswith(CUE) else step

    return reply


def told(outcome: Outcome) -> tuple[int, int]:
    """How many drafts were accepted and rejected."""
    detail = next(r.detail for r in outcome.trace if r.detail.get("rule") == "speculated")
    return detail["accepted"], detail["rejected"]


def test_accepted_drafts_cost_the_large_model_a_digit() -> None:
    """And their tokens as its prompt."""
    outcome, small, big = speculated(["One.\n\n", "The answer is 7."], digits("9", "7"))

    assert (outcome.answer, outcome.text) == ("7", "One.\n\nThe answer is 7.")
    assert told(outcome) == (2, 0)
    assert (small.calls, big.output_tokens) == (2, 2)


def test_a_rejected_draft_is_written_by_the_large_model_and_charged() -> None:
    """Field defect 27: the ledger has every token that engines made."""
    outcome, small, big = speculated(["Wrong, wrong.\n\n"], digits("6"))

    assert (outcome.answer, told(outcome)) == ("9", (0, 1))
    assert outcome.usage_by_role["draft"].output_tokens == small.output_tokens == 3
    assert outcome.usage.output_tokens == small.output_tokens + big.output_tokens


def test_the_small_model_goes_on_from_what_the_large_one_wrote() -> None:
    """Appended to its own tokens."""
    step = "Right.\n\n"
    drafts = ["Wrong.\n\n", "The answer is 7."]
    outcome, small, _ = speculated(drafts, digits("0", "9", step=step))

    assert small.requests[1].branch.output == "Right.\n\n"
    assert outcome.text == "Right.\n\nThe answer is 7."


def test_accepted_steps_are_one_sequence_of_the_small_model() -> None:
    """It goes on from its own draft; nothing is appended again."""
    _, small, _ = speculated(["One.\n\n", "Two.\n\n", "The answer is 7."], digits("9", "9", "9"))

    assert small.requests[2].branch.parent is small.requests[1].branch


@pytest.mark.parametrize("digit", ["", "good", "10", "97", "I say 9", "4"])
def test_what_is_no_digit_accepts_nothing(digit: str) -> None:
    """Nor does one below the threshold."""
    assert told(speculated(["The answer is 7."], digits(digit))[0]) == (0, 1)


@pytest.mark.parametrize(("threshold", "answer"), [(4, "7"), (5, "9")])
def test_the_threshold_is_the_least_digit_that_accepts(threshold: int, answer: str) -> None:
    """Exactly."""
    outcome, _, _ = speculated(["The answer is 7."], digits(" 4"), threshold=threshold)

    assert outcome.answer == answer


def test_a_draft_cannot_speak_for_the_judge() -> None:
    """A digit in it is not one of the large model's."""
    outcome, _, _ = speculated(["The answer is 7. " + CUE + "9"], digits("0"))

    assert told(outcome) == (0, 1)


def test_the_first_steps_may_be_the_large_models_own() -> None:
    """No draft is asked for."""
    outcome, small, _ = speculated(["The answer is 7."], digits("9", step="One.\n\n"), first=2)

    assert outcome.text == "One.\n\nOne.\n\nThe answer is 7."
    assert small.calls == 1


def test_a_draft_that_fails_is_written_by_the_large_model() -> None:
    """And a fork of which both fail is a failed candidate."""
    broken = EngineError("it broke")
    outcome, _, _ = speculated([broken], digits())
    both, _, _ = speculated([broken], lambda _: broken)

    assert outcome.answer == "9"
    assert [c.status for c in both.candidates] == ["failed"]


def test_a_fork_that_fails_later_keeps_what_it_has() -> None:
    """Its steps until then; what failed is paid for and counted."""
    fault = EngineError("it broke", output_tokens=2)

    def large(request: Request) -> str | EngineError:
        if not request.branch.text.endswith(CUE):
            return fault
        return "0" if "Two." in request.branch.output else "9"

    outcome, _, _ = speculated(["The answer is 7. One.\n\n", "Two.\n\n"], large)
    (candidate,) = outcome.candidates

    assert (candidate.status, candidate.text) == ("truncated", "The answer is 7. One.\n\n")
    assert candidate.usage.tokens == outcome.usage.tokens


def test_a_fork_that_never_ends_is_truncated() -> None:
    """After the last step."""
    outcome, small, _ = speculated(["On.\n\n"], digits(*"9" * 5), max_steps=5)
    (candidate,) = outcome.candidates

    assert (candidate.status, candidate.text) == ("truncated", "On.\n\n" * 5)
    assert small.calls == 5


def test_a_limit_leaves_what_was_reasoned_until_then() -> None:
    """A marked answer in it counts."""
    drafts = ["The answer is 7.\n\n", "On.\n\n"]
    outcome, _, _ = speculated(drafts, digits(*"9" * 9), budget=Budget(calls=4))

    assert (outcome.answer, outcome.stopped_by) == ("7", "calls")


@pytest.mark.parametrize("budget", [None, Budget(tokens=90), Budget(calls=9)])
def test_speculation_does_not_depend_on_speed(budget: Budget | None) -> None:
    """Nor does what a tight budget grants."""
    node = SpecReason(n=3, draft="draft", max_steps=3) >> Vote()

    def run(salt: int, slots: int) -> Outcome:
        clock = ManualClock()
        engines = {
            role: FakeEngine(
                talker(0.1), clock=clock, seconds_per_token=uneven(salt), concurrency=slots
            )
            for role in ("policy", "draft")
        }
        work = ttc.asolve(QUESTION, node, models=engines, seed=4, clock=clock, budget=budget)
        return clock.run(work)

    runs = [run(salt, slots) for salt, slots in ((1, 1), (2, 4), (3, 16))]

    assert [seen(outcome) for outcome in runs] == [seen(runs[0])] * 3
    assert not any(outcome.timing_dependent for outcome in runs)


# Programs


def program(body: str) -> str:
    """A reply with a program."""
    return f"```python\ndef add(a, b):\n    return {body}\n```"


def problem_of(*tests: str, **metadata: Any) -> Problem:
    """A problem with public tests."""
    asked = Problem.ask("Write add(a, b).", answer_format="text")
    return replace(asked, tests=tests, metadata=metadata)


def clustered(replies: Sequence[str], problem: Problem, graph: Node | None = None) -> Outcome:
    """The choice among programs."""
    engine = FakeEngine(list(replies), in_order=True)
    graph = graph or Sample(n=len(replies)) >> BehaviourClusters()
    return ttc.solve(problem, graph, model=engine, seed=0)


@linux
def test_passing_comes_before_the_size_of_a_cluster() -> None:
    """Two that fail alike are no match for one that passes."""
    replies = [program("a - b"), program("a - b  # so"), program("a + b")]
    outcome = clustered(replies, problem_of("assert add(1, 2) == 3", "assert add(0, 0) == 0"))

    assert outcome.text == replies[2]
    assert outcome.confidence == pytest.approx(1 / 3)


@linux
def test_among_those_that_pass_as_much_the_largest_cluster_wins() -> None:
    """Programs that print alike are alike; a copy does not make a cluster larger."""
    lines = [f"```python\nprint({value})\n```" for value in ("3", "4", "'4'", "5")]
    outcome = clustered(lines, problem_of(json.dumps(["", "9"]), test_form="stdin"))

    assert outcome.text == lines[1]
    assert outcome.confidence == pytest.approx(0.5)


def test_without_tests_programs_of_one_text_are_alike() -> None:
    """A vote on texts."""
    replies = [program("a"), program("b"), program("b")]

    assert clustered(replies, problem_of()).text == replies[1]


@linux
def test_sstar_mends_before_it_chooses() -> None:
    """One program of two passes, after a repair."""
    replies = [program("a - b"), program("a * b"), program("a + b"), program("a / b")]
    problem = problem_of("assert add(1, 2) == 3")
    outcome = clustered(replies, problem, SStar(n=2, rounds=1))

    assert outcome.text == replies[2]
    assert outcome.usage.calls == 4


@pytest.mark.parametrize(
    "text",
    [
        "instruct('a', '', place='before') >> sample(n=2) >> minimum_bayes_risk()",
        "paraphrase(n=1) >> sample() >> rank(margin()) >> keep(share=0.5) >> vote(weighted=True)",
        "sample() >> self_refine(rounds=3) >> debug() >> vote()",
        "sample() >> reflexion(verifier=unit_tests(), memory=1) >> best()",
        "sample() >> guided_refine(verifier=judge(), drafts=2) >> best(soft=0.5)",
        "revisions(chains=2) >> gen_select(group=4)",
        "budget_forcing(waits=2) >> knockout()",
        "summarise() >> recursive_aggregation() >> vote()",
        "spec_reason(threshold=5) >> vote()",
        "mixture_of_agents('a', 'b', layers=3)",
        "sample(temperature=(0.2, 1.0)) >> judge() >> tie_break()",
        "sstar(n=4)",
        "sample_in_rounds(rule=sure_answer(at_least=0.9)) >> behaviour_clusters()",
    ],
)
def test_every_strategy_has_a_text_form(text: str) -> None:
    """That gives the same graph again."""
    graph = parse(text)

    assert parse(write(graph)) == graph


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (SpecReason(n=0), "n is a whole number"),
        (SpecReason(threshold=10), "threshold is a digit"),
        (SpecReason(delimiter=""), "delimiter is a text"),
        (SpecReason(first=-1), "first is a whole number"),
        (MixtureOfAgents(layers=0), "layers is a whole number"),
        (MixtureOfAgents(""), "proposer is a text"),
        (Sample(n=2) >> RecursiveAggregation(size=0), "size is a whole number"),
        (Sample(n=2) >> BehaviourClusters(seconds=-1), "seconds"),
    ],
)
def test_faults_are_told_before_anything_runs(node: Node, fault: str) -> None:
    """With the value."""
    with pytest.raises(GraphError, match=fault):
        (node >> Vote()).validate()
