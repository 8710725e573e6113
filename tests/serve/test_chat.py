"""Chat completions: plain samples and strategies, and what a reply says of them."""

from collections.abc import Iterator

import pytest

import ttc
from tests.serve.lab import ASKED, SAID, Served, serving
from ttc import Problem
from ttc.messages import Message
from ttc.testing import FakeEngine

NAMED = {"careful": "self_consistency(n=5)"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(named=NAMED) as server:
        yield server


def test_a_plain_sample_is_one_call(served: Served) -> None:
    before = served.engine.calls
    reply = served.post(seed=0).json()

    assert served.engine.calls == before + 1
    assert reply["choices"][0]["message"]["content"] in SAID
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_n_gives_so_many_choices_with_seeds_of_their_own(served: Served) -> None:
    """PX-01."""
    choices = served.post(n=12, seed=3).json()["choices"]
    fewer = served.post(n=4, seed=3).json()["choices"]

    assert [choice["index"] for choice in choices] == list(range(12))
    assert choices[:4] == fewer
    assert len({choice["message"]["content"] for choice in choices}) > 1


def test_a_strategy_gives_what_it_gives_in_python(served: Served) -> None:
    """Byte for byte, with the same seed."""
    spec = "self_consistency(n=7, max_tokens=30)"
    problem = Problem(messages=(Message(role="user", content=ASKED[0]["content"]),))
    outcome = ttc.solve(problem, spec, model=FakeEngine(SAID), seed=11)
    reply = served.post(model=f"fake@{spec}", seed=11).json()

    assert reply["choices"][0]["message"]["content"] == outcome.text
    assert reply["ttc"]["outcomes"][0]["confidence"] == outcome.confidence
    assert reply["usage"]["total_tokens"] == outcome.usage.tokens


@pytest.mark.parametrize(
    "body",
    [
        {"model": "fake@careful"},
        {"ttc": {"strategy": "careful"}},
        {"ttc": {"strategy": "self_consistency(n=5)"}},
        {"model": "fake@self_consistency(n=5)", "ttc": {"strategy": "self_consistency(n=5)"}},
    ],
)
def test_a_strategy_is_named_in_the_model_or_in_the_body(served: Served, body: dict) -> None:  # type: ignore[type-arg]
    assert served.post(seed=1, **body).json()["usage"]["ttc"]["policy"]["calls"] == 5


def test_two_strategies_in_one_request_are_refused(served: Served) -> None:
    fault = served.fault(model="fake@greedy()", ttc={"strategy": "careful"})

    assert (fault["code"], fault["param"]) == ("conflicting_parameter", "ttc.strategy")


def test_n_outcomes_of_a_strategy_share_the_budget_of_the_request(served: Served) -> None:
    reply = served.post(model="fake@careful", n=2, seed=5, ttc={"budget": {"tokens": 200}}).json()

    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert len(reply["ttc"]["outcomes"]) == 2
    assert reply["usage"]["total_tokens"] <= 200


def test_usage_tells_what_is_not_in_the_reply(served: Served) -> None:
    """Four of five samples were thought, so to say."""
    usage = served.post(model="fake@careful", seed=1).json()["usage"]
    said = served.post(model="fake@careful", seed=1).json()["choices"][0]["message"]["content"]

    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"]
    hidden = usage["completion_tokens_details"]["reasoning_tokens"]
    assert usage["completion_tokens"] - hidden == len(said.split())


def test_a_server_may_have_a_strategy_for_all() -> None:
    with serving(strategy="self_consistency(n=3)") as server:
        assert server.post(seed=0).json()["usage"]["ttc"]["policy"]["calls"] == 3
        none = server.post(seed=0, reasoning_effort="none").json()

    assert none["usage"]["ttc"]["policy"]["calls"] == 1


def test_a_thought_is_no_content_unless_it_is_asked_for() -> None:
    """EX-06."""
    with serving(FakeEngine("<think>2 and 2 is 4</think>\n\nThe answer is 4.")) as server:
        plain = server.post().json()
        shown = server.post(ttc={"thinking": True}).json()["choices"][0]["message"]

    assert plain["choices"][0]["message"]["content"] == "The answer is 4."
    assert "reasoning_content" not in plain["choices"][0]["message"]
    assert plain["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    assert shown["reasoning_content"] == "2 and 2 is 4"


def test_a_thought_that_never_closes_leaves_no_content() -> None:
    """EX-06."""
    with serving(FakeEngine("<think>try 5: no, that fails because of this")) as server:
        choice = server.post(max_tokens=6).json()["choices"][0]

    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")


def test_models_are_listed_with_the_named_strategies(served: Served) -> None:
    listed = served.http.get(f"{served.url}/models").json()["data"]
    one = served.http.get(f"{served.url}/models/fake@careful").json()

    assert [model["id"] for model in listed] == ["fake", "fake@careful"]
    assert one["id"] == "fake@careful"
    assert served.http.get(f"{served.url}/models/other").status_code == 404


def test_a_conversation_with_tool_calls_reaches_the_template(served: Served) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    served.post(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Add."}]},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "tool_call_id": "c1", "content": "2"},
        ]
    )
    prompt = served.engine.requests[-1].branch.text

    assert prompt.splitlines() == [
        "system: Be brief.",
        "user: Add.",
        'assistant:  add({"a": 1})',
        "tool: 2",
    ]


def test_log_probabilities_are_those_of_the_returned_text(served: Served) -> None:
    choice = served.post(logprobs=True, seed=1).json()["choices"][0]
    tokens = choice["logprobs"]["content"]

    assert "".join(token["token"] for token in tokens) == choice["message"]["content"]
    assert {token["logprob"] for token in tokens} == {-0.5}


def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers() -> None:
    """KV-06."""
    with serving(FakeEngine("a b c d e f g h i j", context=64)) as server:
        said = {n: " ".join(["x"] * (n - 2)) for n in (120, 64, 63, 60)}
        replies = {
            n: server.post(messages=[{"role": "user", "content": text}], max_tokens=10)
            for n, text in said.items()
        }

    for n in (120, 64):
        error = replies[n].json()["error"]
        assert (replies[n].status_code, error["code"]) == (400, "context_length_exceeded")
        assert str(n) in error["message"]
        assert "64" in error["message"]
    for n, left in ((63, 1), (60, 4)):
        reply = replies[n].json()
        assert reply["usage"]["completion_tokens"] == left
        assert reply["choices"][0]["finish_reason"] == "length"


def test_a_model_that_fails_is_told_as_an_error() -> None:
    with serving(FakeEngine(ttc.EngineError("out of order"))) as server:
        fault = server.fault(502)
        also = server.fault(502, model="fake@self_consistency(n=3)")

    assert fault["code"] == also["code"] == "engine_error"
    assert "out of order" in fault["message"]
