"""Every parameter is served, inert, or refused by name: none is ignored."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.lab import LONG, Served, serving
from ttc.testing import FakeEngine


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.mark.parametrize(
    "body",
    [
        {"user": "me"},
        {"metadata": {"a": "b"}},
        {"safety_identifier": "x"},
        {"prompt_cache_key": "x"},
        {"store": False},
        {"service_tier": "auto"},
        {"temperature": 1, "top_p": 1.0, "presence_penalty": 0, "frequency_penalty": 0},
        {"logit_bias": {}, "logprobs": False, "n": 1, "stop": None, "tools": []},
        {"tool_choice": "none", "parallel_tool_calls": True, "response_format": {"type": "text"}},
        {"modalities": ["text"], "verbosity": "medium", "stream": False, "seed": None},
    ],
    ids=lambda body: next(iter(body)),
)
def test_what_asks_for_nothing_changes_nothing(served: Served, body: dict[str, Any]) -> None:
    assert served.post(model="fake@self_consistency(n=3)", **body).status_code == 200


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("store", True),
        ("service_tier", "flex"),
        ("logit_bias", {"5": 10}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("prediction", {"type": "content"}),
        ("web_search_options", {}),
        ("functions", [{"name": "f"}]),
        ("function_call", "auto"),
        ("verbosity", "low"),
        ("best_of", 3),
        ("top_a", 0.5),
        ("__class__", 1),
    ],
)
def test_what_is_not_served_is_refused_by_name(served: Served, param: str, value: object) -> None:
    fault = served.fault(**{param: value})

    assert (fault["param"], fault["code"]) == (param, "unsupported_parameter")


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 0),
        ("n", 1.5),
        ("n", True),
        ("n", 10**9),
        ("temperature", -0.1),
        ("temperature", "1"),
        ("temperature", 2.1),
        ("top_p", 1.5),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("seed", 2**63),
        ("seed", "x"),
        ("stop", [""]),
        ("stop", ["a"] * 17),
        ("stop", 7),
        ("stream", "yes"),
        ("stream_options", {"include_usage": True}),
        ("logprobs", 5),
        ("top_logprobs", 3),
        ("reasoning_effort", "extreme"),
        ("messages", []),
        ("messages", "hello"),
        ("messages[0].role", [{"role": "root", "content": "x"}]),
        ("messages[0].content", [{"role": "user"}]),
        ("messages[0].content[0].type", [{"role": "user", "content": [{"type": "image_url"}]}]),
        ("messages[0].name", [{"role": "user", "content": "x", "name": "me"}]),
        ("messages[0].tool_call_id", [{"role": "tool", "content": "x"}]),
        ("ttc", 3),
        ("ttc.budget.tokens", {"budget": {"tokens": -1}}),
        ("ttc.budget.dollars", {"budget": {"dollars": 1}}),
        ("ttc.events", {"events": 1}),
        ("ttc.unknown", {"unknown": 1}),
        ("ttc.answer_format", {"answer_format": "poem"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}),
        ("response_format.type", {"type": "xml"}),
        ("logit_bias", [1, 2]),
        ("logit_bias", {"the": 1}),
        ("logit_bias", {"7": 100.5}),
        ("logit_bias", {"7": 1, "07": 2}),
        ("logit_bias", {str(token): 1 for token in range(1_025)}),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(served: Served, param: str, value: object) -> None:
    name = param.partition("[")[0].partition(".")[0]

    assert served.fault(**{name: value})["param"] == param


def test_a_missing_model_is_missed(served: Served) -> None:
    fault = served.fault(model=None)

    assert (fault["param"], fault["code"]) == ("model", "missing_required_parameter")


def test_an_unknown_model_is_not_found(served: Served) -> None:
    fault = served.fault(404, model="gpt-4")

    assert (fault["code"], fault["type"]) == ("model_not_found", "not_found_error")
    assert "fake" in fault["message"]


def test_both_names_of_the_length_have_to_agree(served: Served) -> None:
    fault = served.fault(max_tokens=3, max_completion_tokens=4)

    assert fault["code"] == "conflicting_parameter"
    assert served.post(max_tokens=3, max_completion_tokens=3).status_code == 200


def test_the_length_caps_each_generation_and_not_the_spend() -> None:
    with serving(FakeEngine(LONG)) as server:
        plain = server.post(max_tokens=7).json()
        several = server.post(
            max_tokens=7, model="fake@sample(n=3, max_tokens=20) >> vote()"
        ).json()

    assert plain["usage"]["completion_tokens"] == 7
    assert plain["choices"][0]["finish_reason"] == "length"
    assert several["usage"]["completion_tokens"] == 21


def test_a_stop_ends_what_can_become_the_answer(served: Served) -> None:
    texts = {
        model: served.post(model=model, stop=" answer", seed=2).json()
        for model in ("fake", "fake@sample(n=2) >> best(by=None)", "fake@sample(n=2) >> vote()")
    }

    assert texts["fake"]["choices"][0]["message"]["content"] in ("The", "So it is 391. The")
    assert "error" in texts["fake@sample(n=2) >> best(by=None)"]
    assert {tuple(request.until) for request in served.engine.requests[-2:]} == {(" answer",)}


def test_a_request_fills_what_a_strategy_leaves_open(served: Served) -> None:
    served.post(model="fake@self_consistency(n=2)", top_p=0.5, presence_penalty=0.25)
    drawn = served.engine.requests[-1].sampling

    assert (drawn.top_p, drawn.presence_penalty, drawn.temperature) == (0.5, 0.25, 0.8)


def test_a_request_that_samples_otherwise_than_its_strategy_is_refused(served: Served) -> None:
    """A temperature of 0 would make sixteen samples one."""
    fault = served.fault(model="fake@self_consistency(n=16)", temperature=0)
    also = served.fault(model="fake@self_refine() | greedy()", top_p=0.5)

    assert (fault["param"], fault["code"]) == ("temperature", "conflicting_parameter")
    assert also["code"] == "invalid_strategy"


def test_the_strategy_may_win_and_says_so() -> None:
    """What lm-evaluation-harness needs, which always sends a temperature of 0."""
    with serving(sampling="strategy", strategy="self_consistency(n=4)") as server:
        reply = server.post(temperature=0).json()
        drawn = {request.sampling.temperature for request in server.engine.requests}

    assert reply["ttc"]["overridden"] == ["temperature"]
    assert drawn == {0.8}


def test_a_plain_sample_is_drawn_as_it_was_asked_for(served: Served) -> None:
    served.post(temperature=0.3, top_p=0.9, frequency_penalty=1.5, top_k=5, min_p=0.1)
    drawn = served.engine.requests[-1].sampling

    assert (drawn.temperature, drawn.top_p, drawn.top_k, drawn.min_p) == (0.3, 0.9, 5, 0.1)
    assert drawn.frequency_penalty == 1.5


def test_a_form_that_no_engine_can_hold_to_is_refused(served: Served) -> None:
    fault = served.fault(response_format={"type": "json_object"})

    assert (fault["param"], fault["code"]) == ("response_format", "unsupported_parameter")


@pytest.mark.parametrize(
    ("effort", "share"), [("minimal", 16), ("low", 4), ("medium", 2), ("high", 1), ("max", 1)]
)
def test_an_effort_is_a_share_of_the_allowed_budget(effort: str, share: int) -> None:
    with serving(FakeEngine(LONG), request_budget=_tokens(1600)) as server:
        spec = "fake@sample(n=40, max_tokens=50) >> vote()"
        usage = server.post(model=spec, reasoning_effort=effort).json()["usage"]

    assert 1600 // share - 50 < usage["total_tokens"] <= 1600 // share


def _tokens(tokens: int) -> Any:
    from ttc import Budget

    return Budget(tokens=tokens)
