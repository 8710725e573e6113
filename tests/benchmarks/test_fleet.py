"""Many problems on many simulated endpoints: admission, memory and merging hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from ttc.benchmarks.fleet import Fleet, laws, simulate
from ttc.engine.simulator import Hardware
from ttc.manual_clock import ManualClock
from ttc.ports import Request
from ttc.types import Sampling


def test_shards_on_a_fleet_hold_every_limit_and_merge_to_one_run(tmp_path: Path) -> None:
    """The fleet counts at every call what the ledger promises, and refuses to serve beyond it."""
    figures = simulate(tmp_path, problems=80, shards=4, endpoints=4)
    merged = figures.merged
    tokens = [row["usage"]["tokens"] - row["usage"]["tokens_cancelled"] for row in merged.rows]

    assert [row["id"] for row in merged.rows] == [f"p{place}" for place in range(80)]
    assert merged.missing == ()
    assert merged.usage.tokens <= 80 * 260
    assert figures.most_tokens <= 1.0
    assert figures.most_kv <= 1.0
    assert [(row["answer"], row["stopped_by"]) for row in merged.rows[:40]] == [
        (outcome.answer, outcome.stopped_by) for outcome in figures.whole
    ]
    assert tokens[:40] == [o.usage.tokens - o.usage.tokens_cancelled for o in figures.whole]


def test_a_fleet_tells_when_a_budget_is_overrun() -> None:
    """So that what it says of others means something."""
    made = list(laws(2))
    hardware = Hardware(seconds_per_token=0.01)
    fleet = Fleet(made, endpoints=2, hardware=hardware, clock=ManualClock(), tokens=100)
    root = fleet.root(made[0].problem, "policy")
    asked = Request(branch=root, max_tokens=60, sampling=Sampling(), seed=1)
    call = fleet.submit(asked)

    with pytest.raises(AssertionError, match=r"0 \+ 120 tokens of 100"):
        fleet.submit(asked)
    assert call.cancel() == 0
