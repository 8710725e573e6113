"""Sampling in rounds: who is first by tokens, who is ended early, and what that costs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

import ttc
from tests.core.lab import seen, solved, talker, uneven
from ttc import Budget, EngineError, GraphError, Node, Usage
from ttc.engine.simulator import Hardware, Lengths, SimulatedProblem, Simulator
from ttc.ports import Request
from ttc.strategies import (
    BranchRule,
    CannotBeOvertaken,
    Certaindex,
    Deadline,
    DeepConf,
    EarlyExit,
    SampleInRounds,
    Trace,
    Vote,
)
from ttc.strategies.stopping_branches import hesitates, lowest_group
from ttc.testing import FakeEngine, ManualClock

LAW = SimulatedProblem(id="a", success=0.6, lengths=Lengths(median=200, right=0.7))


def simulated(
    graph: Node, *, law: SimulatedProblem = LAW, pace: float = 0.01, seed: int = 0
) -> tuple[ttc.Outcome, Simulator]:
    """A strategy on one simulated problem."""
    clock = ManualClock()
    engine = Simulator([law], hardware=Hardware(seconds_per_token=pace), clock=clock)
    outcome = clock.run(ttc.asolve(law.problem, graph, model=engine, clock=clock, seed=seed))
    return outcome, engine


def lengths(outcome: ttc.Outcome) -> list[int]:
    """Output tokens of the candidates, in the order in which they came."""
    return [len(c.branch.token_ids or ()) for c in outcome.candidates]


def test_the_first_of_many_are_the_shortest() -> None:
    """The same as if all had been written to their ends, and for less."""
    whole, everything = simulated(SampleInRounds(n=8) >> Vote())
    first, engine = simulated(SampleInRounds(n=8, first=3) >> Vote())

    assert lengths(first) == sorted(lengths(whole))[:3]
    assert engine.output_tokens < everything.output_tokens


def test_a_fork_that_is_ended_in_a_round_pays_for_that_round() -> None:
    """min(length, rounds x every) each, to the token."""
    drawn, _ = simulated(SampleInRounds(n=8) >> Vote())
    outcome, engine = simulated(SampleInRounds(n=8, first=3) >> Vote())
    last = lengths(outcome)[-1]
    rounds = last // 32 + 1

    assert engine.output_tokens == sum(min(n, rounds * 32) for n in lengths(drawn))
    assert outcome.usage.output_tokens == engine.output_tokens


@pytest.mark.parametrize("first", [None, 3])
@pytest.mark.parametrize("rule", [None, EarlyExit()])
def test_what_comes_out_does_not_depend_on_speed(first: int | None, rule: BranchRule) -> None:
    """Answers, candidates and their order, on an engine that runs ahead of the rounds."""
    graph = SampleInRounds(n=6, first=first, rule=rule, every=4) >> Vote()
    runs = [
        solved(graph, talker(0.1, longest=40), seed=4, pace=uneven(salt), concurrency=slots)
        for salt, slots in ((1, 1), (2, 4), (3, 16))
    ]

    assert [seen(run.outcome)[:4] for run in runs] == [seen(runs[0].outcome)[:4]] * 3


def test_ties_go_to_the_shortest() -> None:
    """Of two answers with one vote each the shorter trace's wins, whatever its launch index."""
    script = ["so so so so so so the answer is 1.", "The answer is 2."]
    outcome = solved(SampleInRounds(n=2, first=2) >> Vote(), script, in_order=True).outcome

    assert outcome.answer == "2"


def test_a_fork_that_fails_or_is_refused_leaves_the_others() -> None:
    """A failed call is a candidate; a limit drops the last ones."""
    failed = solved(SampleInRounds(n=6) >> Vote(), talker(0.5), seed=1).outcome
    refused = solved(SampleInRounds(n=6) >> Vote(), "It is 1", budget=ttc.Budget(calls=2)).outcome

    assert {c.status for c in failed.candidates} == {"finished", "failed"}
    assert [c.answer for c in refused.candidates] == ["1", "1"]
    assert refused.stopped_by == "calls"


def test_certaindex_ends_a_trace_that_knows_its_answer() -> None:
    """It saves tokens, probes are paid for, and the answer is that of the probe."""
    law = SimulatedProblem(id="a", success=1.0, lengths=Lengths(median=400, sigma=0.0))
    rule = Certaindex(interval=32, equal=3)
    outcome, engine = simulated(SampleInRounds(n=4, rule=rule) >> Vote(), law=law)

    assert outcome.answer == "1"
    assert engine.output_tokens < 4 * 400
    assert outcome.usage.calls == engine.calls
    assert outcome.usage.calls > 4
    decisions = [r.detail["rule"] for r in outcome.trace if r.kind == "decision"]
    assert decisions == ["certaindex"] * 4


def test_probes_are_charged_to_a_role_of_their_own() -> None:
    """One token for each, and the cue; the traces are the policy's."""
    outcome, engine = simulated(SampleInRounds(n=2, rule=Certaindex(interval=32)) >> Vote())
    by_role = outcome.usage_by_role

    assert set(by_role) == {"policy", "probe"}
    assert by_role["policy"].calls == 2
    assert by_role["probe"].calls == by_role["probe"].output_tokens == engine.calls - 2 > 0
    assert sum(by_role.values(), Usage()) == outcome.usage


@pytest.mark.parametrize("interval", [32, 320], ids=["ended", "ended by itself"])
def test_a_candidate_carries_what_its_trace_and_its_probes_took(interval: int) -> None:
    law = SimulatedProblem(id="a", success=1.0, lengths=Lengths(median=400, sigma=0.0))
    rule = Certaindex(interval=interval)
    outcome, _ = simulated(SampleInRounds(n=1, rule=rule) >> Vote(), law=law)

    (candidate,) = outcome.candidates
    assert outcome.usage_by_role["probe"].calls >= 1
    assert candidate.usage.calls == outcome.usage.calls
    assert candidate.usage.output_tokens == outcome.usage.output_tokens
    assert candidate.usage.tokens == outcome.usage.tokens


@pytest.mark.parametrize("budget", [None, Budget(calls=3)])
def test_a_probe_that_fails_or_is_refused_says_nothing(budget: Budget | None) -> None:
    """Its trace goes on, and the others."""

    def reply(request: Request) -> str | EngineError:
        is_probe = request.branch.text.endswith("The answer is")
        return EngineError("it broke") if is_probe and budget is None else "so " * 8 + "It is 1."

    graph = SampleInRounds(n=3, every=4, rule=Certaindex(interval=4), max_tokens=20) >> Vote()
    outcome = solved(graph, reply, budget=budget).outcome

    assert [c.status for c in outcome.candidates] == ["finished"] * 3
    assert outcome.answer is not None


def test_certaindex_goes_on_where_probes_say_nothing() -> None:
    """Silent probes are no agreement (field defect 17)."""
    law = SimulatedProblem(id="a", success=0.0, silent=1.0, lengths=Lengths(median=300))
    outcome, engine = simulated(SampleInRounds(n=1, rule=Certaindex()) >> Vote(), law=law)

    assert outcome.answer is None
    assert not any(
        record.kind == "decision" and "fork" in record.detail for record in outcome.trace
    )
    assert engine.output_tokens > 300 / 2


def probes(*answers: str) -> Trace:
    """A trace whose probes were answered so."""
    return Trace(text="", num_tokens=0, probes=tuple(f"The answer is {a}" for a in answers))


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        (("4", "4", "4"), True),
        (("4.0", "4", "$4"), True),
        (("5", "4", "4"), False),
        (("4", "4"), False),
        (("", "", ""), False),
        (("4", "4", "4. Wait, I doubt it"), False),
        (("4", "4", "4, as we know now"), True),
        ((), False),
    ],
)
def test_certaindex_wants_equal_probes_without_doubt(answers: Sequence[str], ends: bool) -> None:
    """Words of doubt are whole words: `know` and `now` hold no `no` (field defect 16)."""
    assert Certaindex()(probes(*answers)) is ends


def test_hesitation_is_found_word_by_word() -> None:
    """Not inside other words."""
    assert hesitates("No, wait")
    assert not hesitates("I know another butter knife")


def test_deep_conf_drops_traces_worse_than_the_best_of_the_warm_up() -> None:
    """It costs less than the whole, and keeps all warm-up traces."""
    law = SimulatedProblem(id="a", success=0.5, lengths=Lengths(median=400, sigma=0.1))
    rule = DeepConf(keep=25, num_warm_up=8)
    outcome, engine = simulated(SampleInRounds(n=24, rule=rule) >> Vote(), law=law)
    _, everything = simulated(SampleInRounds(n=24) >> Vote(), law=law)

    assert 8 <= len(outcome.candidates) < 24
    assert engine.output_tokens < 0.75 * everything.output_tokens
    shares = [
        sum(c.answer == "1" for c in part) / len(part)
        for part in (outcome.candidates[:8], outcome.candidates[8:])
    ]
    assert shares[1] > shares[0]


def test_deep_conf_needs_twenty_log_probabilities() -> None:
    """An engine with fewer is refused before anything is spent."""
    engine = FakeEngine("It is 1")
    engine.capabilities = replace(engine.capabilities, logprobs=1)
    with pytest.raises(GraphError, match="needs logprobs>=20, which the engine fake lacks"):
        ttc.solve("?", SampleInRounds(rule=DeepConf()) >> Vote(), model=engine)
    assert engine.calls == 0


def test_the_lowest_group_is_a_sliding_mean() -> None:
    """And the whole mean where the window is longer."""
    assert lowest_group((5.0, 1.0, 2.0, 9.0), 2) == 1.5
    assert lowest_group((5.0, 1.0), 9) == 3.0


def test_an_early_exit_takes_the_first_complete_answer() -> None:
    """What would follow is not written."""
    script = r"So \boxed{7} it is " + "and more " * 40
    outcome = solved(SampleInRounds(n=1, rule=EarlyExit(), every=4) >> Vote(), script).outcome

    assert outcome.answer == "7"
    assert outcome.usage.output_tokens < 20


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (SampleInRounds(n=2, first=3), "first=3 of n=2 forks can never finish"),
        (SampleInRounds(n=0), "n is a whole number"),
        (SampleInRounds(rule=CannotBeOvertaken()), "looks at no trace"),  # type: ignore[arg-type]
        (SampleInRounds(rule=Certaindex(interval=50)), "a multiple"),
    ],
)
def test_faults_are_told_before_anything_runs(node: Node, fault: str) -> None:
    """With the value, and what to do."""
    with pytest.raises(GraphError, match=fault):
        (node >> Vote()).validate()


def test_rules_of_two_kinds_do_not_combine() -> None:
    """In any order."""
    for first, second in (
        (EarlyExit(), CannotBeOvertaken()),
        (CannotBeOvertaken(), Deadline(seconds=1)),
        (Deadline(seconds=1), EarlyExit()),
    ):
        with pytest.raises(GraphError, match="so they do not combine"):
            first | second
        with pytest.raises(GraphError, match="so they do not combine"):
            second & first
