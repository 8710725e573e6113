"""Searches whose run was killed, and went on out of its journal."""

from __future__ import annotations

from pathlib import Path

import pytest

import ttc
from tests.core.lab import QUESTION, seen, uneven
from tests.strategies.tree.world import SEARCHES, check, thinker
from ttc import Outcome
from ttc.strategies import AdaptiveBranchingMCTS, MonteCarloTreeSearch, Vote
from ttc.testing import FakeEngine, ManualClock

ALL = {
    **SEARCHES,
    "monte_carlo": lambda v: MonteCarloTreeSearch(v, max_expansions=24),
    "adaptive": lambda v: AdaptiveBranchingMCTS(v, max_expansions=8, variant="beta"),
}


def solved(name: str, path: Path, *, salt: int, slots: int) -> Outcome:
    """A run whose engine has a pace of its own."""
    clock = ManualClock()
    model = FakeEngine(
        thinker(failing=0.1), clock=clock, seconds_per_token=uneven(salt), concurrency=slots
    )
    graph = ALL[name](check()) >> Vote()
    running = ttc.asolve(QUESTION, graph, model=model, seed=3, clock=clock, journal=path)
    return clock.run(running)


@pytest.mark.parametrize("name", ALL)
def test_a_search_that_was_killed_anywhere_comes_to_the_same(name: str, tmp_path: Path) -> None:
    """On an engine that never said what stands in the journal, and that is slow elsewhere."""
    whole = solved(name, tmp_path / "whole", salt=1, slots=4)
    lines = (tmp_path / "whole").read_bytes().splitlines(keepends=True)

    for part in range(1, 8):
        path = tmp_path / f"{part}"
        path.write_bytes(b"".join(lines[: len(lines) * part // 8]))
        assert seen(solved(name, path, salt=7, slots=2)) == seen(whole), part
