"""Agents on llama.cpp's own server; `make test-llamacpp` runs them, others skip them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import ttc
from tests.llamacpp.server import serving
from tests.tools.lab import EXAMPLE
from ttc import Budget
from ttc.engine.openai import OpenAIEngine, Service, connect
from ttc.strategies import Agent

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def qwen() -> Iterator[OpenAIEngine]:
    with serving("qwen2.5-coder-0.5b-instruct-q4_k_m", "qwen") as url:
        made = connect(Service(model="qwen", urls=(url,)))
        yield made
        made.close()


@pytest.mark.parametrize(
    ("calls", "result"), [("auto", '"role": "tool"'), ("react", 'Observation: \\"9999\\"')]
)
def test_an_agent_computes_on_it(qwen: OpenAIEngine, calls: Any, result: str) -> None:
    """In the server's own form of calls, and in lines: the model asks, and reads what comes."""
    agent = Agent(
        tools=["calculator"],
        calls=calls,
        max_turns=1,
        max_tokens=64,
        temperature=0.0,
        instructions=EXAMPLE if calls == "react" else "",
    )
    outcome = ttc.solve(
        "Compute 1234 + 8765 with the calculator and give the result.",
        agent,
        model=qwen,
        budget=Budget(tokens=3_000),
        seed=1,
    )
    (candidate,) = outcome.candidates
    made = [record.detail for record in outcome.trace if record.kind == "tool"]

    assert qwen.report.tools
    assert {(one["tool"], one["status"]) for one in made} == {("calculator", "ok")}
    assert result in next(candidate.branch.lineage()).text
    assert candidate.status in ("finished", "truncated")
    assert 0 < outcome.usage.tokens <= 3_000
