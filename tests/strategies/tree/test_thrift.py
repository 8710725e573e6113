"""Under a limit a search asks for no more than it can score."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import ttc
from tests.core.lab import solved, uneven, whole
from tests.strategies.tree.world import check, thinker
from tests.tools.lab import counter
from ttc import Budget, EngineError, Node
from ttc.ports import Request, Verifier
from ttc.strategies import (
    AdaptiveBranchingMCTS,
    Agent,
    AStar,
    BeamSearch,
    Best,
    BestFirst,
    BudgetGuidedMCTS,
    LanguageAgentTreeSearch,
    MonteCarloTreeSearch,
    Rebase,
    TreeOfThoughts,
    Vote,
)
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import Branch, Candidate, Outcome
from ttc.verifiers import SelfVerify

CHAINED = SelfVerify(chains=1, max_tokens=64)
SEARCHES: dict[str, Callable[[Verifier, int], Node]] = {
    "adaptive": lambda v, n: AdaptiveBranchingMCTS(v, max_expansions=n),
    "uct": lambda v, n: MonteCarloTreeSearch(v, max_expansions=n),
    "budget guided": lambda v, n: BudgetGuidedMCTS(v, max_expansions=n),
    "best first": lambda v, n: BestFirst(v, width=n, num_answers=n, max_expansions=n),
    "a star": lambda v, n: AStar(v, width=n, num_answers=n, max_expansions=n),
    "beams": lambda v, n: BeamSearch(v, num_beams=n, beam_width=1),
    "rebase": lambda v, n: Rebase(v, width=n),
    "thoughts": lambda v, n: TreeOfThoughts(v, width=n, breadth=2),
}


def says(request: Request) -> str:
    """An answer of 20 to 60 words in one go."""
    random = Random(request.seed)
    return "so " * random.randrange(20, 60) + f"the answer is {random.randrange(10)}."


def doubts(branch: Branch, text: str) -> float:
    """Answers below 5 are rather right."""
    return -0.3 if (text.strip() == "Yes") == (branch.text.count("answer is 1") > 0) else -1.5


def tokens(limit: int) -> Budget:
    return Budget(tokens=limit)


AMPLE = tokens(1_000_000)


def breaks(branch: Branch, text: str) -> float:
    """It scores nothing."""
    raise EngineError("it broke")


def ran(
    search: Node,
    script: Any,
    budget: Budget | None,
    pace: Any,
    scores: Any = doubts,
    *,
    concurrency: int | None = None,
) -> tuple[Outcome, FakeEngine]:
    """A search on a clock that nobody waits for."""
    clock = ManualClock()
    engine = FakeEngine(
        script, scores=scores, seconds_per_token=pace, concurrency=concurrency, clock=clock
    )
    work = ttc.asolve(
        "What is 17 * 23?", search >> Best(), model=engine, budget=budget, seed=4, clock=clock
    )
    return clock.run(work), engine


def found(search: Node, budget: Budget, pace: Any = 0.0) -> Outcome:
    return ran(search, says, budget, pace)[0]


def scored(outcome: Outcome) -> list[Candidate]:
    return [c for c in outcome.candidates if any(s.value is not None for s in c.scores.values())]


@pytest.mark.parametrize("verifier", [SelfVerify(), CHAINED])
@pytest.mark.parametrize("name", SEARCHES)
def test_what_can_be_scored_is_found(name: str, verifier: SelfVerify) -> None:
    """Whatever the budget, from that of the first answer with its score on."""
    make = SEARCHES[name]
    least = found(make(verifier, 1), AMPLE).usage.tokens
    for budget in (least, least + 90, 3 * least):
        outcome = found(make(verifier, 16), tokens(budget))

        assert outcome.answer is not None, budget
        assert scored(outcome) != []
        assert outcome.usage.tokens <= budget


@pytest.mark.parametrize("budget", [700, 1000, 2000])
def test_a_wide_window_scores_as_many_answers_as_a_narrow_one(budget: int) -> None:
    """But for the last one: what is left is as tight for both."""
    counts = {
        window: len(scored(found(AdaptiveBranchingMCTS(CHAINED, window=window), tokens(budget))))
        for window in (1, 8)
    }

    assert counts[1] >= 2
    assert counts[8] >= counts[1] - 1


@pytest.mark.parametrize("verifier", [SelfVerify(), CHAINED])
@pytest.mark.parametrize("name", SEARCHES)
def test_who_is_held_back_does_not_depend_on_speed(name: str, verifier: SelfVerify) -> None:
    """Nor does anything else while a limit acts, and the outcome says so."""
    search = SEARCHES[name](verifier, 16)
    runs = [
        ran(search, says, tokens(1500), uneven(seed), concurrency=slots)[0]
        for seed, slots in ((1, None), (2, 1), (3, 4))
    ]

    assert {run.stopped_by for run in runs} == {"tokens"}
    assert [whole(run) for run in runs[1:]] == [whole(runs[0])] * 2
    assert [run.timing_dependent for run in runs] == [()] * 3


@pytest.mark.parametrize("scores", [doubts, breaks])
def test_without_a_limit_the_window_is_full_from_the_start(scores: Any) -> None:
    """And with one that is far away from the second ask on, also where every score is unknown."""
    for budget in (None, AMPLE):
        search = AdaptiveBranchingMCTS(SelfVerify(), window=4, max_expansions=12)
        _, engine = ran(search, says, budget, 0.1, scores)

        assert engine.most_active == 4


def test_a_verifier_that_asks_no_model_holds_nobody_back() -> None:
    """Its scores take no tokens."""
    run = solved(BeamSearch(check()) >> Vote(), thinker(), budget=Budget(tokens=4000))

    assert not any("held_back" in str(record) for record in run.outcome.trace)


def counts(request: Request) -> str:
    """Calls a tool once or twice, and then answers."""
    random = Random(request.seed)
    depth = request.branch.output.count("tool: ") if request.branch.parent else 0
    if depth >= 2:
        return f"It is {random.randrange(5)}."
    call = json.dumps({"name": "counter", "arguments": {"step": random.randrange(1, 4)}})
    return f"<tool_call>{call}</tool_call>" * random.randrange(1, 3)


def acted(budget: Budget, pace: Any, window: int) -> Outcome:
    judge = ScriptedVerifier(lambda c: Random(c.text).random(), name="judge")
    agent = Agent(tools=(counter,), calls="hermes", max_tokens=64)
    search = LanguageAgentTreeSearch(judge, agent=agent, max_expansions=12, window=window)
    return ran(search, counts, budget, pace)[0]


@pytest.mark.parametrize(("calls", "window"), [(7, 4), (7, 8), (11, 4), (16, 8)])
def test_calls_of_tools_under_a_limit_repeat_or_say_that_they_do_not(
    calls: int, window: int
) -> None:
    """Whoever is slow."""
    runs = [acted(Budget(calls=calls), uneven(seed), window) for seed in range(4)]
    texts = {tuple(candidate.text for candidate in run.candidates) for run in runs}

    assert all(run.usage.calls <= calls for run in runs)
    assert len(texts) == 1 or all(run.timing_dependent for run in runs)
