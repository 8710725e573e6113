"""Outcomes can be sent to another process, with all that is in them."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest

import ttc
from tests.core.lab import QUESTION, seen, talker
from ttc import Budget, Outcome
from ttc.errors import BudgetExceeded, EngineError, JournalMismatch, PoolExhausted, Revoked
from ttc.strategies import BeamSearch, FixedLength, Sample, Vote
from ttc.testing import FakeEngine
from ttc.types import Branch
from ttc.verifiers import MeanLogprob


def again(value: Any) -> Any:
    """What another process would have."""
    return pickle.loads(pickle.dumps(value))


def solved(budget: Budget) -> Outcome:
    """A run with branches that share their beginnings, scores and decisions."""
    search = BeamSearch(MeanLogprob(), num_beams=2, beam_width=2, steps=FixedLength(3), max_steps=4)
    graph = (search | Sample(n=2)) >> Vote()
    return ttc.solve(QUESTION, graph, model=FakeEngine(talker()), budget=budget, seed=3)


@pytest.mark.parametrize("tokens", [500, 60])
def test_an_outcome_is_the_same_in_another_process(tokens: int) -> None:
    """Candidates, trace, spend, and what a limit refused."""
    outcome = solved(Budget(tokens=tokens))
    other = again(outcome)

    assert seen(other) == seen(outcome)
    assert other.trace == outcome.trace
    assert (other.usage_by_role, other.numerics) == (outcome.usage_by_role, outcome.numerics)
    assert (other.seconds_by, other.prices) == (outcome.seconds_by, outcome.prices)
    assert repr(other.refusal) == repr(outcome.refusal)
    assert vars(other.refusal) == vars(outcome.refusal) if other.refusal else not outcome.refusal


def test_branches_share_what_they_shared() -> None:
    """And there is one segment for each that there was."""
    outcome = solved(Budget(tokens=500))
    segments = [
        {id(segment) for c in each.candidates for segment in c.branch.lineage()}
        for each in (outcome, again(outcome))
    ]

    assert len(segments[0]) == len(segments[1]) > len(outcome.candidates)


def test_a_deep_branch_is_not_too_deep() -> None:
    """Nor are thousands of them much larger than their segments."""
    branch: Branch | None = None
    for depth in range(3 * sys.getrecursionlimit()):
        branch = Branch(parent=branch, text=f"step {depth}. ", token_ids=(depth, depth + 1))
    assert branch is not None
    other = again(branch)

    assert other.output == branch.output
    assert [s.token_ids for s in other.lineage()] == [s.token_ids for s in branch.lineage()]
    assert other.num_tokens == branch.num_tokens


def test_a_branch_that_was_cut_is_as_it_was_cut() -> None:
    """Though its text is spelt only when somebody reads it."""
    whole = Branch(text="a b c", token_ids=(1, 2, 3), logprobs=(-1.0, -2.0, -3.0))
    other = again(whole.beginning(2, lambda: "a b"))

    assert (other.text, other.token_ids, other.logprobs) == ("a b", (1, 2), (-1.0, -2.0))


@pytest.mark.parametrize(
    "error",
    [
        BudgetExceeded("tokens", needed=5, remaining=2, limit=9),
        Revoked(),
        EngineError("no", retryable=True, output_tokens=3),
        JournalMismatch("run", "call", "seed", "1", "2"),
        PoolExhausted("p", 4),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_keep_their_kind_and_what_they_hold(error: Exception) -> None:
    """Also where they are copied."""
    for other in (again(error), copy.copy(error)):
        assert type(other) is type(error)
        assert (other.args, vars(other)) == (error.args, vars(error))
