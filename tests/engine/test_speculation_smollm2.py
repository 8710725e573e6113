"""Look-up drafts on the real model: the very results that there are without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.cancelling import cancelled_at
from tests.engine.guessers import everything
from tests.engine.test_speculation import results
from ttc.constraints import Pattern
from ttc.engine.local import LocalEngine
from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.hub.models import find
from ttc.ports import Request
from ttc.types import Problem

pytestmark = pytest.mark.model

REPEAT = "Write the line `a = [1, 2, 3, 1, 2, 3]` ten times, and nothing else."
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.8, "top_p": 0.9},
    "measured": {"temperature": 0.5, "logprobs": 3, "entropy": True},
    "penalised": {"temperature": 0, "repetition_penalty": 1.05},
    "constrained": {"temperature": 0.7, "constraint": Pattern("([0-9]{2}, ){3,}[0-9]{2}")},
}
LENGTH = 28


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every drafted token is tried, whatever it costs."""
    monkeypatch.setattr(DraftBudget, "choose", everything)


@pytest.fixture(scope="module", params=["ngram", "tree"])
def drafting(request: pytest.FixtureRequest, smollm2: LocalEngine) -> Iterator[LocalEngine]:
    """The model with drafts by look-up."""
    path = find("smollm2-135m")
    with LocalEngine.load(path, speculate=request.param, kv_bytes=64 << 20) as engine:
        yield engine


@pytest.fixture(scope="module")
def requests(smollm2: LocalEngine, ask: Callable[..., Request]) -> list[Request]:
    """A call of every kind, one on another prompt, and two with stop strings; of odd lengths."""
    pytest.importorskip("llguidance", reason="constraints need the extra `local`")
    root, other = (smollm2.root(Problem.ask(q), "policy") for q in (REPEAT, "List the planets."))
    calls = [
        ask(root, LENGTH - place, seed=place, **options)
        for place, options in enumerate(KINDS.values())
    ]
    stopped = (replace(call, until=("3, 1, 2",)) for call in calls[:2])
    return [*calls, ask(other, LENGTH, temperature=0), *stopped]


@pytest.fixture(scope="module")
def plain(smollm2: LocalEngine, requests: list[Request]) -> list[tuple[object, ...]]:
    """What they result in without drafts."""
    return results(smollm2, requests)


def test_results_are_those_without_drafts(
    drafting: LocalEngine, requests: list[Request], plain: list[tuple[object, ...]]
) -> None:
    """All together, and one of them alone; tokens, texts, measures, ends."""
    assert results(drafting, requests) == plain
    assert results(drafting, requests[-1:]) == plain[-1:]

    counters = drafting.counters
    accepted = counters.draft_tokens - counters.rejected_draft_tokens
    assert accepted > 12
    assert counters.rejected_draft_tokens > 0
    assert {found[-2] for found in plain} >= {"stop", "length"}


def test_a_call_that_is_cancelled_inside_a_block_disturbs_nobody(
    drafting: LocalEngine, requests: list[Request], plain: list[tuple[object, ...]]
) -> None:
    """It ends at that token, though later ones of its block had come true."""
    asked = replace(requests[0], seed=99)

    call, others = cancelled_at(drafting, asked, 15, lambda: results(drafting, requests[1:3]))

    assert others == plain[1:3]
    assert (call.usage.draft_tokens or 0) >= (call.usage.rejected_draft_tokens or 0) > 0
