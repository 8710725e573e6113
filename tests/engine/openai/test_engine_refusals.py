"""What an engine on a server refuses, and what it never shows."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

import ttc
from tests.engine.openai.servers import GOOD, QUESTION, faulty, request, served
from ttc import EngineError, GraphError, Message, Problem, Sampling
from ttc.constraints import Choice, Pattern, Schema
from ttc.engine.openai import OpenAIEngine, Service, named
from ttc.testing.openai_replies import Behaviour
from ttc.testing.openai_server import Fault
from ttc.types import Branch


def result(engine: OpenAIEngine, **more: Any) -> Branch:
    return engine.submit(request(engine, **more)).future.result(20)


def solve(engine: OpenAIEngine, strategy: str, **more: Any) -> ttc.Outcome:
    return ttc.solve(QUESTION, strategy, model=engine, seed=0, **more)


# What is refused


@pytest.mark.parametrize(
    "strategy",
    [
        "beam_search(num_beams=2, beam_width=2, verifier=mean_logprob()) >> vote()",
        "sample(n=2) >> self_verify() >> best()",
    ],
)
def test_what_a_server_cannot_do_is_refused_before_it_is_asked(strategy: str) -> None:
    with (
        served() as (engine, server),
        pytest.raises(GraphError, match=r"needs .*, which the engine fake lacks"),
    ):
        solve(engine, strategy)

    assert server.asked == []


def test_a_text_is_not_gone_on_with() -> None:
    with served() as (engine, server):
        root = engine.root(QUESTION, "policy")
        longer = Branch(parent=root, text="so", token_ids=None)
        for ask in (
            lambda: engine.append(root, "so"),
            lambda: engine.cut(root, 1),
            lambda: engine.submit(replace(request(engine), branch=longer)),
            lambda: engine.score(root, ()),
            lambda: engine.next_tokens(root, 1),
            lambda: engine.reward(root, ()),
            lambda: engine.hidden(root, ()),
        ):
            with pytest.raises(EngineError, match="fake is asked"):
                ask()

    assert server.asked == []


def test_the_assistants_own_turn_is_not_gone_on_with() -> None:
    turns = (Message(role="user", content="?"), Message(role="assistant", content="It"))
    with (
        served() as (engine, _),
        pytest.raises(EngineError, match="continue_last cannot be served"),
    ):
        engine.root(Problem(messages=turns, continue_last=True), "policy")


def test_a_parameter_that_a_server_does_not_honour_is_refused() -> None:
    with served(report=replace(GOOD, honours=frozenset())) as (engine, server):
        with pytest.raises(EngineError, match="not found to honour top_k"):
            result(engine, sampling=Sampling(top_k=5))
        with pytest.raises(EngineError, match="not found to honour logit_bias"):
            result(engine, sampling=Sampling(logit_bias=((7, 1.0),)))
        with pytest.raises(EngineError, match="no token ids"):
            result(engine, until=(7,))

    assert server.asked == []


def test_a_bias_is_sent_by_token() -> None:
    """And only where there is one."""
    report = replace(GOOD, honours=frozenset({"logit_bias"}))
    with served(report=report) as (engine, server):
        assert engine.capabilities.logit_bias
        result(engine, sampling=Sampling(logit_bias=((7, -100.0), (9, 1.5))))
        result(engine, sampling=Sampling())

    assert server.asked[0].body["logit_bias"] == {"7": -100.0, "9": 1.5}
    assert "logit_bias" not in server.asked[1].body


def test_constraints_are_sent_in_the_servers_words() -> None:
    schema = Schema({"type": "object", "properties": {"q": {"enum": [4]}}, "required": ["q"]})
    with served() as (engine, server):
        said = []
        for constraint in (schema, Choice("yes", "no"), Pattern("[0-9]+")):
            engine.check_constraint(constraint)
            said.append(result(engine, sampling=Sampling(constraint=constraint)).text)

    bodies = [asked.body for asked in server.asked]
    assert bodies[0]["response_format"]["json_schema"]["strict"] is True
    assert bodies[1]["structured_outputs"] == {"choice": ["yes", "no"]}
    assert bodies[2]["structured_outputs"] == {"regex": "[0-9]+"}
    assert said[:2] == ['{"q": 4}', "yes"]


@pytest.mark.parametrize("constraint", [Choice("yes", "no"), Schema({"type": "object"})])
def test_a_text_that_does_not_hold_to_its_constraint_is_no_result(constraint: Any) -> None:
    server = {"behaviour": Behaviour(kind="sglang", schemas=False)}
    with (
        served(server=server) as (engine, _),
        pytest.raises(EngineError, match="did not hold to") as caught,
    ):
        result(engine, sampling=Sampling(constraint=constraint))

    assert caught.value.output_tokens == 4


def test_a_constraint_that_a_server_does_not_hold_to_is_refused() -> None:
    with (
        served(report=replace(GOOD, kind="unknown")) as (engine, _),
        pytest.raises(ValueError, match="not found to hold to a Choice"),
    ):
        engine.check_constraint(Choice("yes", "no"))


def test_a_copy_of_an_earlier_reply_is_no_vote() -> None:
    """Field defect 38: a cache between here and there."""
    copy = b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "The answer is 4."}'
    copy += b', "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    with served(server={"fault": lambda *_: Fault(raw=copy)}) as (engine, _):
        outcome = solve(engine, "sample(n=3, max_tokens=8) >> vote()")

    assert sorted(c.status for c in outcome.candidates) == ["failed", "failed", "finished"]
    assert "a copy of an earlier reply" in str([c.error for c in outcome.candidates])


def test_ids_that_a_server_always_repeats_mean_nothing() -> None:
    server = {"behaviour": Behaviour(ids="one")}
    with served(server=server, report=replace(GOOD, ids=False)) as (engine, _):
        outcome = solve(engine, "sample(n=3, max_tokens=8) >> vote()")

    assert [c.status for c in outcome.candidates] == ["finished"] * 3


def test_an_outcome_says_that_a_server_may_answer_otherwise() -> None:
    with served() as (engine, _):
        outcome = solve(engine, "sample(n=1, max_tokens=8) >> vote()")

    assert outcome.timing_dependent == (
        "the model fake may answer otherwise when it is asked again",
    )


# Keys


def test_a_key_is_sent_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in reprs, logs, errors or traces, also where the server repeats it."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    echo = {"fault": faulty(Fault(status=401, message="the key sk-secret is wrong"))}
    with served(server=echo) as (engine, server):
        outcome = solve(engine, "sample(n=2, max_tokens=8, ahead=1) >> vote()")

    assert [a.headers["authorization"] for a in server.asked] == ["Bearer sk-secret"] * 2
    assert outcome.candidates[0].error is not None
    assert "the key [the key] is wrong" in outcome.candidates[0].error
    assert "sk-secret" not in f"{engine!r} {engine.service} {outcome}" + caplog.text


def test_a_key_is_never_in_a_journal(tmp_path: Any) -> None:
    with served(key="sk-secret") as (engine, server):
        ttc.solve(QUESTION, "sample(n=2) >> vote()", model=engine, journal=tmp_path / "a.journal")

    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert b"sk-secret" not in (tmp_path / "a.journal").read_bytes()


@pytest.mark.parametrize(
    ("name", "model", "urls"),
    [
        ("gpt@http://a/v1", "gpt", ("http://a/v1",)),
        ("org/model@v2@https://a:1/v1/,http://b", "org/model@v2", ("https://a:1/v1", "http://b")),
    ],
)
def test_a_name_holds_the_model_and_where_it_is(
    name: str, model: str, urls: tuple[str, ...]
) -> None:
    service = named(name)

    assert (service.model, service.urls) == (model, urls)


def test_the_environment_tells_where_a_model_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(EngineError, match=r"'gpt' has no server; name one"):
        named("gpt")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there/v1/")

    assert named("gpt").urls == ("http://there/v1",)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"urls": ("ftp://a",)}, "a server is http"),
        ({"urls": ("http://a:b@c",)}, "holds no password"),
        ({"model": ""}, "has a model"),
        ({"concurrency": 0}, "at least 1"),
        ({"rate": 0.0}, "above 0"),
        ({"seconds": 0.0}, "above 0"),
        ({"key": "a\nb"}, "no key has"),
    ],
)
def test_a_service_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError, match=said):
        Service(**{"model": "m", "urls": ("http://a/v1",), **wrong})
