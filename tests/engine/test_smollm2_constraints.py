"""Constraints, penalties and hidden states on the real model, whose tokens are longer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import pytest

import ttc
from ttc.constraints import Choice, Pattern, Schema
from ttc.engine.local import LocalEngine
from ttc.ports import Request
from ttc.strategies import Sample, Vote
from ttc.types import Branch, Problem
from ttc.verifiers import JsonSchema

pytestmark = pytest.mark.model
pytest.importorskip("llguidance", reason="constraints need the extra `local`")

Ask = Callable[..., Request]
CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "people": {"type": "integer", "minimum": 0, "maximum": 40_000_000},
        "seas": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2},
    },
    "required": ["city", "people", "seas"],
    "additionalProperties": False,
}


def test_a_strategy_votes_among_the_options_of_a_choice(smollm2: LocalEngine) -> None:
    """Every candidate is one of them, and none is cut."""
    options = ("Paris", "Rome", "Berlin, of all cities")
    problem = Problem.ask("What is the capital of France?", answer_format="text")
    graph = Sample(n=8, constraint=Choice(*options), max_tokens=16) >> Vote()
    outcome = ttc.solve(problem, graph, model=smollm2, seed=0)

    assert {candidate.text for candidate in outcome.candidates} <= set(options)
    assert {candidate.status for candidate in outcome.candidates} == {"finished"}
    assert outcome.answer == "Paris"


@pytest.mark.parametrize("temperature", [0.0, 1.0, 5.0])
def test_a_schema_holds_at_any_temperature(
    smollm2: LocalEngine, ask: Ask, temperature: float
) -> None:
    """SO-02: the text is valid by an independent check, and ends by itself."""
    root = smollm2.root(Problem.ask("Tell me of a city, in JSON."), "policy")
    calls = [
        smollm2.submit(ask(root, 400, seed=seed, temperature=temperature, constraint=Schema(CITY)))
        for seed in range(4)
    ]
    for branch in [call.future.result() for call in calls]:
        assert branch.finish_reason == "stop"
        assert asyncio.run(JsonSchema(CITY).check(branch.text)) is True


def test_a_text_in_pieces_is_what_it_has_to_be(smollm2: LocalEngine, ask: Ask) -> None:
    """Four tokens a call, each forked once; a fork that goes nowhere changes nothing."""
    constraint = Pattern(r"The answer is -?[0-9]{1,6}\.")
    branch: Branch = smollm2.root(Problem.ask("What is 17 * 23?"), "policy")
    for step in range(12):
        fork = smollm2.submit(ask(branch, 4, seed=step + 50, constraint=constraint))
        branch = smollm2.submit(ask(branch, 4, seed=step, constraint=constraint)).future.result()
        fork.future.result()
        if branch.finish_reason == "stop":
            break

    assert re.fullmatch(constraint.regex, branch.output)


def test_a_truncated_value_is_no_value(smollm2: LocalEngine, ask: Ask) -> None:
    """SO-01: cut within the grammar, the text is what was drawn and the reason is the length."""
    root = smollm2.root(Problem.ask("Tell me of a city, in JSON."), "policy")
    branch = smollm2.submit(ask(root, 6, constraint=Schema(CITY))).future.result()

    assert branch.finish_reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(branch.text)


def test_a_penalty_keeps_the_model_from_repeating_itself(smollm2: LocalEngine, ask: Ask) -> None:
    """Greedily it comes back to its words, and not where each costs 2 a time."""
    root = smollm2.root(Problem.ask("Write the word sea one hundred times."), "policy")
    plain, penalised = (
        smollm2.submit(ask(root, 60, temperature=0, frequency_penalty=p)).future.result()
        for p in (None, 2.0)
    )
    distinct = [len(set(b.token_ids or ())) / len(b.token_ids or ()) for b in (plain, penalised)]

    assert distinct[0] < 0.9 < distinct[1]


def test_a_bias_forbids_a_token_and_forces_one(smollm2: LocalEngine, ask: Ask) -> None:
    """The word that the model is sure of, against one that it would hardly say."""
    root = smollm2.root(Problem.ask("What is the capital of France? One word."), "policy")

    def said(*bias: tuple[int, float], tokens: int = 3) -> tuple[int, ...]:
        request = ask(root, tokens, temperature=0, logit_bias=bias)
        return smollm2.submit(request).future.result().token_ids or ()

    first = said()[0]
    assert said((first, -100.0))[0] != first
    (other,) = smollm2.append(root, " sea", as_token=True).token_ids or ()
    assert said((other, 100.0)) == (other,) * 3
    with pytest.raises(ValueError, match="logit_bias names the token 999999; tokens are 0 to"):
        said((999_999, 1.0))


def test_hidden_states_do_not_depend_on_the_batch(smollm2: LocalEngine, ask: Ask) -> None:
    """Alone, beside generating calls, and after a hit: the same bits."""
    root = smollm2.root(Problem.ask("What is the sea?"), "policy")
    rows = [0, root.num_tokens // 2, root.num_tokens - 1]
    company = [smollm2.submit(ask(root, 12, seed=seed)) for seed in range(5)]
    together = smollm2.hidden(root, rows).future.result()
    for call in company:
        call.future.result()

    assert smollm2.hidden(root, rows).future.result() == together
    assert [smollm2.hidden(root, [row]).future.result()[0] for row in rows] == list(together)
