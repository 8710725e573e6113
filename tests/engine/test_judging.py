"""A small real model as judge: it runs in one batch, and is charged what it computed."""

from __future__ import annotations

import math

import pytest

import ttc
from ttc import Outcome
from ttc.engine.local import LocalEngine
from ttc.ports import Verifier
from ttc.strategies import Sample
from ttc.strategies import Vote as Plurality
from ttc.types import Problem
from ttc.verifiers import Judge, RolloutValue, SelfVerify, Tournament

pytestmark = pytest.mark.model

PROBLEMS = [
    Problem.ask(question, answer_format="text")
    for question in ("What is 2 + 3?", "Name the capital of France.")
]


def judged(engine: LocalEngine, verifier: Verifier, salt: str) -> tuple[list[Outcome], list[int]]:
    """Both problems, three candidates each, and what the engine counted meanwhile."""
    counters = engine.counters
    before = counters.prompt_tokens, counters.output_tokens
    outcomes = ttc.solve_many(
        [Problem.ask(f"{salt} {p.messages[0].content}", answer_format="text") for p in PROBLEMS],
        Sample(n=3, max_tokens=40, temperature=0.7, until=(".",)) >> verifier >> Plurality(),
        models={"policy": engine, "judge": engine},
        seed=11,
    )
    spent = counters.prompt_tokens - before[0], counters.output_tokens - before[1]
    return outcomes, list(spent)


@pytest.mark.parametrize(
    "verifier",
    [
        SelfVerify(),
        SelfVerify(chains=2, max_tokens=24),
        Judge(max_tokens=48),
        Judge(samples=2, temperature=0.7, max_tokens=32, scale=(0, 5)),
        Tournament(max_tokens=32),
    ],
    ids=["yes", "chains", "judge", "samples", "tournament"],
)
def test_a_verifier_is_charged_exactly_what_the_engine_computed(
    smollm2: LocalEngine, verifier: Verifier, request: pytest.FixtureRequest
) -> None:
    """Output tokens, and prompt tokens less those that were in the cache."""
    outcomes, (prompts, outputs) = judged(smollm2, verifier, request.node.callspec.id)
    usages = [usage for outcome in outcomes for usage in outcome.usage_by_role.values()]
    cached = [usage.cached_input_tokens for usage in usages]

    assert sum(usage.output_tokens for usage in usages) == outputs
    assert None not in cached
    assert sum(u.input_tokens - (u.cached_input_tokens or 0) for u in usages) == prompts
    assert smollm2.kv_bytes_used == 0
    for outcome in outcomes:
        assert outcome.usage.tokens == sum(u.tokens for u in outcome.usage_by_role.values())
        for candidate in outcome.candidates:
            score = candidate.scores.get(verifier.name)
            assert score is None or score.value is None or 0 <= score.value <= 1


def test_self_verification_runs_in_few_steps(smollm2: LocalEngine) -> None:
    """Six candidates of two problems are asked together: a step is not one candidate's."""
    before = smollm2.counters.steps
    outcomes, _ = judged(smollm2, SelfVerify(), "steps")
    scores = [s for o in outcomes for c in o.candidates for s in c.scores.values()]

    assert scores
    assert all(score.value is not None and 0 < score.value < 1 for score in scores)
    assert smollm2.counters.steps - before < 40 + 6 * 6


def test_scores_repeat_whatever_is_in_the_cache(smollm2: LocalEngine) -> None:
    """A second run, on a warm cache, gives the same scores to the bit."""
    first, _ = judged(smollm2, SelfVerify(), "repeat")
    again, _ = judged(smollm2, SelfVerify(), "repeat")

    assert [[c.scores for c in outcome.candidates] for outcome in first] == [
        [c.scores for c in outcome.candidates] for outcome in again
    ]


def test_scoring_what_was_generated_gives_its_log_probabilities(smollm2: LocalEngine) -> None:
    """On a fresh engine's arithmetic, computed once more: to the bit."""
    source = smollm2.root(Problem.ask("Tell me of the sea."), "policy")
    outcome = ttc.solve(
        Problem.ask("Tell me of the sea.", answer_format="text"),
        Sample(n=1, max_tokens=20) >> Plurality(),
        model=smollm2,
        seed=3,
    )
    branch = outcome.candidates[0].branch
    prefix = ttc.types.Branch(parent=source, text="", token_ids=(branch.token_ids or ())[:1])
    suffix = ttc.types.Branch(parent=prefix, text="", token_ids=(branch.token_ids or ())[1:])
    (values,) = smollm2.score(prefix, [suffix]).future.result()

    assert values == (branch.logprobs or ())[1:]
    assert math.fsum(values) < 0


def test_a_rollout_value_is_a_share(smollm2: LocalEngine) -> None:
    """Of rollouts of the prompt itself, in one batch."""
    outcome = ttc.solve(
        PROBLEMS[0],
        Sample(n=2, max_tokens=8) >> RolloutValue(verifier=SelfVerify()) >> Plurality(),
        model=smollm2,
        seed=5,
    )

    assert all(
        0 < (c.scores["rollout_value"].value or 0) < 1 for c in outcome.candidates if c.scores
    )
