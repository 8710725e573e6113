"""Under a limit, samples that models are to score begin only where that can be paid, too."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

import ttc
from tests.core.lab import uneven, whole
from tests.strategies.tree.test_thrift import CHAINED, doubts, says, scored, tokens
from ttc import Budget, EngineError, Node
from ttc.ports import Request, Verifier
from ttc.strategies import Best, Paraphrase, Sample, SelfRefine, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import Outcome
from ttc.verifiers import SelfVerify

DIRECT = SelfVerify()
AMPLE = tokens(1_000_000)
each = pytest.mark.parametrize("verifier", [DIRECT, CHAINED, SelfVerify(chains=2, max_tokens=32)])


def ran(
    graph: Node,
    budget: Budget | None,
    *,
    script: Any = says,
    pace: Any = 0.1,
    concurrency: int | None = None,
) -> tuple[Outcome, FakeEngine]:
    """A run on a clock that nobody waits for."""
    clock = ManualClock()
    engine = FakeEngine(
        script, scores=doubts, seconds_per_token=pace, concurrency=concurrency, clock=clock
    )
    work = ttc.asolve("What is 17 * 23?", graph, model=engine, budget=budget, seed=4, clock=clock)
    return clock.run(work), engine


def best(verifier: Verifier, n: Any = 16, max_tokens: int = 128) -> Node:
    return Sample(n=n, max_tokens=max_tokens) >> verifier >> Best()


def drawn(outcome: Outcome) -> set[int]:
    """The forks that were begun and not refused."""
    return {
        record.index
        for record in outcome.trace
        if record.path == "0.sample" and record.kind == "call" and record.usage.tokens
    }


@each
def test_every_sample_but_the_last_is_scored(verifier: SelfVerify) -> None:
    """Whatever the budget, from that of the first answer with its score on."""
    least = ran(best(verifier, n=1), AMPLE)[0].usage.tokens
    for budget in range(least, 1500, 250):
        outcome, _ = ran(best(verifier), tokens(budget))

        assert outcome.answer is not None, budget
        assert len(drawn(outcome)) <= len(scored(outcome)) + 1
        assert outcome.usage.tokens <= budget


def test_one_answer_that_cannot_be_scored_is_voted_for() -> None:
    """It has been paid for."""
    graph = Sample(n=16, max_tokens=128) >> CHAINED >> Vote(weighted=True)
    outcome, _ = ran(graph, tokens(120))

    assert outcome.stopped_by == "tokens"
    assert outcome.answer is not None
    assert scored(outcome) == []


@each
def test_a_larger_budget_scores_no_fewer(verifier: SelfVerify) -> None:
    """And in the same order."""
    texts = [
        [candidate.text for candidate in scored(ran(best(verifier), tokens(budget))[0])]
        for budget in (300, 600, 1000, 1500, 2200)
    ]

    assert len(texts[-1]) > 3 * len(texts[0])
    for few, many in pairwise(texts):
        assert many[: len(few)] == few


@each
@pytest.mark.parametrize("budget", [700, 1500])
def test_it_repeats_at_any_speed_and_says_so(verifier: SelfVerify, budget: int) -> None:
    """Though a limit acts."""
    runs = [
        ran(best(verifier), tokens(budget), pace=uneven(seed), concurrency=slots)[0]
        for seed, slots in ((1, None), (2, 1), (3, 4))
    ]

    assert {run.stopped_by for run in runs} == {"tokens"}
    assert [whole(run) for run in runs[1:]] == [whole(runs[0])] * 2
    assert [run.timing_dependent for run in runs] == [()] * 3


@pytest.mark.parametrize(("budget", "at_once"), [(None, 12), (AMPLE, 11)])
def test_with_enough_all_are_drawn_at_once(budget: Budget | None, at_once: int) -> None:
    """From the second one on where there is a limit."""
    assert ran(best(DIRECT, n=12), budget)[1].most_active == at_once


def test_calls_are_saved_for_scores() -> None:
    """Two for each sample."""
    outcome, _ = ran(best(DIRECT), Budget(calls=7))

    assert (len(drawn(outcome)), len(scored(outcome))) == (4, 3)


def test_a_budget_that_samples_are_drawn_by_pays_for_their_scores() -> None:
    """Where nothing else ends them."""
    outcome, _ = ran(best(DIRECT, n="budget"), tokens(1500))

    assert len(scored(outcome)) >= 10
    assert len(drawn(outcome)) <= len(scored(outcome)) + 1


def test_votes_weigh_what_was_scored_for_each_of_several_prompts() -> None:
    """The question itself is the third."""
    graph = Paraphrase(n=2) >> Sample(n=4, max_tokens=128) >> DIRECT >> Vote(weighted=True)
    outcome, _ = ran(graph, tokens(2500))

    assert len(scored(outcome)) == 12


def stumbles(request: Request) -> str:
    """Every third call fails, and every other answer is none."""
    random = Random(request.seed)
    if random.random() < 0.3:
        raise EngineError("it broke")
    return says(request) if random.random() < 0.5 else "I do not know"


def test_samples_that_fail_or_answer_nothing_hold_nobody_up() -> None:
    """They have no score."""
    outcome, _ = ran(best(DIRECT), AMPLE, script=stumbles)

    assert outcome.stopped_by == "completed"
    assert len(outcome.candidates) == 16


def test_where_others_spend_as_well_all_are_drawn_at_once() -> None:
    """What is left could not be read while they are at work."""
    graph = Sample(n=12, max_tokens=64) >> DIRECT >> SelfRefine(rounds=1) >> Vote()

    assert ran(graph, AMPLE)[1].most_active == 12


def test_who_reads_without_asking_models_holds_nobody_back() -> None:
    """A check that costs nothing leaves all that there is for samples."""
    sample = Sample(n=12, max_tokens=64)
    for graph in (sample >> Vote(), sample >> ScriptedVerifier({}) >> Vote(weighted=True)):
        assert ran(graph, AMPLE)[1].most_active == 12
