"""A small real model in strategies that go on from what was written, paid to the token."""

from __future__ import annotations

import pytest

import ttc
from ttc import Node, Outcome
from ttc.engine.local import LocalEngine
from ttc.strategies import (
    BudgetForcing,
    GenSelect,
    Revisions,
    Sample,
    SelfRefine,
    SpecReason,
    Vote,
)
from ttc.types import Branch, Problem

pytestmark = pytest.mark.model


def run(engine: LocalEngine, graph: Node, question: str) -> Outcome:
    """A run, and whether the ledger holds what the engine counted meanwhile."""
    before = engine.counters.prompt_tokens, engine.counters.output_tokens
    roles = dict.fromkeys(("policy", "judge", "draft"), engine)
    problem = Problem.ask(question, answer_format="number")
    outcome = ttc.solve(problem, graph, models=roles, seed=7)
    usages = outcome.usage_by_role.values()
    spent = engine.counters.prompt_tokens - before[0], engine.counters.output_tokens - before[1]

    assert sum(usage.output_tokens for usage in usages) == spent[1]
    assert sum(u.input_tokens - (u.cached_input_tokens or 0) for u in usages) == spent[0]
    assert engine.kv_bytes_used == 0
    return outcome


@pytest.mark.parametrize(
    "graph",
    [
        Sample(n=2, max_tokens=32) >> SelfRefine(rounds=1, max_tokens=24) >> Vote(),
        Sample(n=3, max_tokens=24) >> GenSelect(max_tokens=24) >> Vote(),
        SpecReason(n=2, max_steps=3, step_tokens=16, delimiter=".") >> Vote(),
        BudgetForcing(n=2, max_thinking=32, waits=1, max_tokens=12) >> Vote(),
    ],
    ids=["refine", "select", "speculate", "force"],
)
def test_a_strategy_is_charged_exactly_what_the_engine_computed(
    smollm2: LocalEngine, graph: Node, request: pytest.FixtureRequest
) -> None:
    """Whatever prompts it writes, and whatever it goes on from."""
    first, second = (
        run(smollm2, graph, f"({request.node.callspec.id}) What is 12 + 7?") for _ in range(2)
    )

    assert [c.text for c in first.candidates] == [c.text for c in second.candidates]
    assert first.usage.tokens == second.usage.tokens
    assert len(first.candidates) >= 2


def test_a_chain_of_revisions_computes_nothing_twice(smollm2: LocalEngine) -> None:
    """Each version goes on from the very tokens before it, and only the cue is new."""
    cue = "\n\nAgain: "
    graph = Revisions(length=3, cue=cue, max_tokens=20, temperature=0.7) >> Vote()
    outcome = run(smollm2, graph, "(chain) What is 8 + 5?")
    usage = outcome.usage_by_role["policy"]
    prompt = smollm2.root(Problem.ask("(chain) What is 8 + 5?"), "policy").num_tokens
    cues = 2 * (smollm2.append(Branch(text="", token_ids=(1,)), cue).length or 0)

    assert usage.tokens == prompt + cues + usage.output_tokens
    assert usage.input_tokens - (usage.cached_input_tokens or 0) < prompt + cues + 3 * 20
    assert all(c.branch.token_ids for c in outcome.candidates)


def test_a_suppressed_end_of_turn_leaves_no_end_token(smollm2: LocalEngine) -> None:
    """The thought goes on in its place, and the text is as if it had never ended."""
    graph = BudgetForcing(max_thinking=200, waits=3, max_tokens=8, temperature=0.0) >> Vote()
    outcome = run(smollm2, graph, "(end) Say yes.")
    text = outcome.candidates[0].text
    appended = [s.text for s in outcome.candidates[0].branch.lineage() if s.call is None]

    assert 1 <= appended.count("\nWait") <= 3  # whatever the model itself writes
    assert "<|im_end|>" not in text
    assert text.count("</think>\nThe final answer is") == 1
