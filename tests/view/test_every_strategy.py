"""Whatever the strategy is, the viewer finds its tree and its spend in the journal."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

import ttc
from tests.contract.test_strategies import CASES
from tests.view.lab import QUESTION
from ttc.ports import Request
from ttc.testing import FakeEngine, ScriptedVerifier
from ttc.types import Usage
from ttc.view import document


def say(request: Request) -> str:
    """Steps and answers, by the seed."""
    rng = random.Random(request.seed)
    return rng.choice(
        ["Count on.\n\n", "The answer is 1.", "The answer is 2.", "It is \\boxed{1}."]
    )


@pytest.mark.parametrize("name", CASES)
def test_the_run_of_a_strategy_is_shown_whole(name: str, tmp_path: Path) -> None:
    """Every token that was booked stands on a node of the strategy, every call below its prompt."""
    path = tmp_path / "run.journal"
    graph = CASES[name](4, ScriptedVerifier({"1": 0.9, "2": 0.4}))
    roles = {role: FakeEngine(say) for role in {"policy", *graph.flow(ttc.graph.Flow()).roles}}
    outcome = ttc.solve(
        QUESTION, graph, models=roles, journal=path, seed=4, budget=ttc.Budget(tokens=3_000)
    )

    told = document(path)

    rows = {row["id"]: row for row in told["rows"]}
    drawn = {node["path"] for node in told["graph"]["nodes"]}
    calls = [row for row in rows.values() if row["kind"] == "call"]
    total = sum(outcome.usage_by_role.values(), Usage())
    for line in ("tokens", "calls", "verifier_calls", "tokens_cancelled"):
        assert sum(s.get(line, 0) for s in told["spends"]) == getattr(total, line), line
    assert all(spend["node"] in drawn for spend in told["spends"])
    assert all(row["parent"] in rows for row in calls)
    assert all(row["status"] != "running" for row in calls)
    for candidate in outcome.candidates:
        way = [segment.call for segment in candidate.branch.lineage() if segment.call]
        for above, call in pairwise(dict.fromkeys(way)):
            assert rows[call]["parent"] in (above, f"{above}/tail")
