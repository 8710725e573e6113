"""Searches on the embedded engine: one tree, whatever comes first, and on a real model, too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import ttc
from ttc import Budget, Outcome
from ttc.engine.local import LocalEngine
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Branch, Chunk, Problem

BEAMS = """beam_search(num_beams=2, beam_width=2, max_steps=3,
    steps=fixed_length(max_tokens=6), verifier=mean_logprob()) >> best()"""


def tree_of(outcome: Outcome) -> list[tuple[Any, ...]]:
    """Every call of a run and what it came to, and the candidates to the bit."""
    calls = [(r.path, r.index, r.usage.tokens) for r in outcome.trace if r.kind == "call"]
    ends = [(segment.token_ids, segment.logprobs) for segment in _segments(outcome)]
    return [*calls, *ends]


def _segments(outcome: Outcome) -> list[Branch]:
    return [segment for c in outcome.candidates for segment in c.branch.lineage()]


@pytest.mark.parametrize("settings", [{"max_sequences": 1}, {"threads": 2}, {"kv_bytes": 1 << 17}])
def test_the_same_seed_gives_the_same_tree_whatever_comes_first(
    load: Callable[..., LocalEngine], engine: LocalEngine, settings: dict[str, int]
) -> None:
    """One after another, side by side, or with too little memory for all."""
    trees = [
        tree_of(ttc.solve("abcd", BEAMS, model=model, seed=4, budget=Budget(tokens=2000)))
        for model in (engine, load(**settings))
    ]

    assert trees[0] == trees[1]
    assert len(trees[0]) > 8


@pytest.mark.model
def test_a_beam_search_runs_on_a_real_model(smollm2: LocalEngine) -> None:
    """Two beams of two: it repeats to the bit, and no budget is exceeded."""
    budget = Budget(tokens=400)
    first, second = (
        ttc.solve("What is 17 + 5?", BEAMS, model=smollm2, seed=1, budget=budget) for _ in range(2)
    )

    assert tree_of(first) == tree_of(second)
    assert first.candidate is not None
    assert first.candidate.text.strip()
    assert len({c.branch for c in first.candidates}) > 1
    assert first.usage.tokens <= 400
    assert smollm2.kv_bytes_used == 0


@pytest.mark.model
def test_a_real_call_that_gave_way_or_was_forked_has_the_same_bits(
    smollm2: LocalEngine, ask: Callable[..., Request]
) -> None:
    """Of three calls one fits into memory; the first one is forked while it runs."""
    roots = [smollm2.root(Problem(prompt=f"The number {i} is"), "policy") for i in range(3)]
    requests = [
        replace(ask(root, 20, seed=i, temperature=0.8), priority=float(i))
        for i, root in enumerate(roots)
    ]
    calm = [smollm2.submit(request).future.result() for request in requests]
    longest = max(root.num_tokens for root in roots) + 20
    pages = -(-longest // 16) + 1
    has_begun = threading.Event()

    def begin(chunk: Chunk) -> None:
        has_begun.set()

    path, room = find("smollm2-135m"), pages * smollm2._batch.page_bytes
    with LocalEngine.load(path, name="tight", kv_bytes=room) as tight:
        first = tight.submit(requests[0], begin)
        assert has_begun.wait(60)
        calls = [first, *map(tight.submit, requests[1:])]
        fork = first.fork(1)
        hurried = [call.future.result() for call in calls]
        again = replace(requests[0], branch=fork, max_tokens=19)
        forked = tight.submit(again).future.result()
        preemptions = tight.counters.preemptions

    assert [(b.token_ids, b.logprobs) for b in hurried] == [(b.token_ids, b.logprobs) for b in calm]
    assert (fork.logprobs or ()) + (forked.logprobs or ()) == calm[0].logprobs
    assert preemptions > 0
