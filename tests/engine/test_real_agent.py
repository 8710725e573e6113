"""An agent on the real model: it calls, reads and answers, on the tokens of one conversation."""

from __future__ import annotations

import pytest

import ttc
from tests.tools.lab import EXAMPLE
from ttc import Outcome
from ttc.engine.local import LocalEngine
from ttc.engine.local.path import path_tokens
from ttc.strategies import Agent

pytestmark = pytest.mark.model
pytest.importorskip("llguidance", reason="constraints need the extra `local`")


def asked(model: LocalEngine, seed: int) -> Outcome:
    agent = Agent(
        tools=["calculator"],
        constrain=True,
        max_turns=1,
        max_tokens=48,
        temperature=0.2,
        instructions=EXAMPLE,
    )
    return ttc.solve("What is 17 * 23?", agent, model=model, seed=seed)


def test_an_agent_computes_on_the_real_model(smollm2: LocalEngine) -> None:
    """The observation is the tool's, each token is charged, and the second turn's prompt is kept.

    The model is small, so only the turn of a call is asked of it, by a grammar.
    """
    first, again = asked(smollm2, 0), asked(smollm2, 0)
    assert first.candidate is not None
    assert again.candidate is not None
    branch = first.candidate.branch

    made = [record.detail for record in first.trace if record.kind == "tool"]
    assert [(one["tool"], one["status"]) for one in made] == [("calculator", "ok")]
    assert ' "391"\n' in branch.output
    assert first.answer == "391"
    assert path_tokens(again.candidate.branch) == path_tokens(branch)
    calls = [segment for segment in branch.lineage() if segment.call]
    output = sum(len(call.token_ids or ()) for call in calls)
    assert first.usage.output_tokens == output
    assert first.usage.tokens == branch.num_tokens
    assert (first.usage.cached_input_tokens or 0) >= calls[0].num_tokens - 1
