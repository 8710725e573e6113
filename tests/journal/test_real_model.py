"""A run on a real model goes on to the same bits."""

from pathlib import Path

import pytest

import ttc
from tests.core.lab import seen
from ttc.engine.replay import ReplayEngine
from ttc.pools import Completion, Pool

GRAPH = "sample(n=5, ahead=3, max_tokens=24) >> sequence_probability() >> best()"
QUESTION = "What is 17 + 5?"


@pytest.mark.model
def test_a_run_on_a_real_model_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Half of its journal is lost; a replay of the whole one needs no model."""
    path = tmp_path / "run.journal"
    whole = ttc.solve(QUESTION, GRAPH, model="smollm2-135m", seed=3, journal=path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))

    resumed = ttc.solve(QUESTION, GRAPH, model="smollm2-135m", seed=3, journal=path)

    assert seen(resumed) == seen(whole) == seen(ttc.replay(path))
    assert [c.branch.logprobs for c in resumed.candidates] == [
        c.branch.logprobs for c in whole.candidates
    ]


@pytest.mark.model
def test_a_pool_gives_what_the_model_gave() -> None:
    """Texts, tokens and log probabilities, and so the scores of a verifier."""
    live = ttc.solve(QUESTION, GRAPH, model="smollm2-135m", seed=3)
    pool = Pool(
        Completion.of(live.problem, index, candidate.branch)
        for index, candidate in enumerate(live.candidates)
    )

    recorded = ttc.solve(pool.problems[0], GRAPH, model=ReplayEngine(pool), seed=3)

    assert seen(recorded) == seen(live)
