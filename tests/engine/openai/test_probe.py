"""Finding out what a server does."""

from __future__ import annotations

from typing import Any

import pytest

import ttc
from ttc import EngineError
from ttc.cli import main
from ttc.engine.openai import Report, Service, connect, named, probe
from ttc.registry import load_engine
from ttc.testing.openai_replies import Behaviour
from ttc.testing.openai_server import Fault, OpenAIServer


def found(server: OpenAIServer, **more: Any) -> Report:
    return probe(Service(**{"model": "fake", "urls": (server.url,), **more}))


def report_on(**behaviour: Any) -> Report:
    with OpenAIServer(behaviour=Behaviour(**behaviour)) as server:
        return found(server)


def test_a_good_server_is_found_to_do_everything() -> None:
    with OpenAIServer() as server:
        report = found(server)
        engine = connect(named(f"fake@{server.url}"))

    assert (report.seed, report.n, report.schemas, report.ids, report.tools) == (True,) * 5
    assert (report.kind, report.context, report.logprobs) == ("vllm", 4096, 20)
    assert report.honours == {"top_k", "min_p", "repetition_penalty", "logit_bias"}
    assert engine.capabilities.has("logprobs>=20")
    assert engine.capabilities.has("grammar")
    assert engine.capabilities.has("cancel")
    assert engine.capabilities.has("logit_bias")
    assert not engine.capabilities.has("fork")


@pytest.mark.parametrize(
    ("behaviour", "field", "value"),
    [
        ({"seed": False}, "seed", False),
        ({"n": False}, "n", False),
        ({"top": 0}, "logprobs", 0),
        ({"top": 3}, "logprobs", 3),
        ({"kind": "hosted"}, "logprobs", 5),
        ({"scales_logprobs": True}, "logprobs", 0),
        ({"usage": "none"}, "tells_usage", False),
        ({"usage": "wrong"}, "tells_usage", False),
        ({"schemas": False}, "schemas", False),
        ({"tools": "ignored"}, "tools", False),
        ({"tools": "refused"}, "tools", False),
        ({"usage": "none"}, "tools", False),
        ({"logprobs_beside_tools": False}, "logprobs_beside_tools", False),
        ({"logprobs_beside_tools": False}, "logprobs", 20),
        ({"ids": "one"}, "ids", False),
        ({"kind": "hosted"}, "honours", frozenset({"logit_bias"})),
        ({"biases": False}, "honours", frozenset({"top_k", "min_p", "repetition_penalty"})),
        ({"kind": "hosted"}, "kind", "unknown"),
        ({"streams": False}, "tells_usage", True),
        ({"length_field": "max_completion_tokens"}, "length_field", "max_completion_tokens"),
    ],
)
def test_what_a_server_does_not_do_is_found_out(
    behaviour: dict[str, Any], field: str, value: Any
) -> None:
    """PX-01, field defect 39: whether it ignores a parameter, refuses it, or does not tell."""
    assert getattr(report_on(**behaviour), field) == value


def test_a_server_that_keeps_to_no_limit_is_refused() -> None:
    """No budget would hold with it."""
    with (
        OpenAIServer(behaviour=Behaviour(limits=False)) as server,
        pytest.raises(EngineError, match="does not enforce max_tokens"),
    ):
        found(server)


def test_a_server_that_always_says_the_same_is_not_said_to_honour_seeds() -> None:
    with OpenAIServer("so") as server:
        report = found(server)

    assert not report.seed
    assert ("seed", "ignored or refused; every probe gave one text") in report.rows()


def test_finding_out_costs_what_it_says() -> None:
    with OpenAIServer() as server:
        report = found(server)
        prompts = 6 * len(server.asked)

    assert server.billed < report.tokens <= server.billed + prompts + 40
    assert report.tokens < 400


@pytest.mark.parametrize(
    ("model", "key", "said"),
    [
        ("other", None, r"has no model 'other'; it has fake"),
        ("fake", "sk-1", "401"),
    ],
)
def test_a_server_that_cannot_serve_says_why(model: str, key: str | None, said: str) -> None:
    def fault(*_: Any) -> Fault | None:
        return Fault(status=401, message="wrong key") if key else None

    with (
        OpenAIServer(fault=fault) as server,
        pytest.raises(EngineError, match=said),
    ):
        found(server, model=model, key=key)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9/v1 cannot be reached"):
        load_engine("openai:fake@http://127.0.0.1:9/v1")


def test_of_several_servers_only_what_all_do_counts() -> None:
    weak = Behaviour(seed=False, top=5, kind="hosted")
    with OpenAIServer() as good, OpenAIServer(behaviour=weak) as other:
        report = probe(Service(model="fake", urls=(good.url, other.url)))

    assert (report.kind, report.seed, report.n, report.logprobs) == ("unknown", False, True, 5)
    assert report.honours == {"logit_bias"}
    assert report.context == 4096


def test_servers_that_limit_tokens_otherwise_are_no_one_service() -> None:
    odd = Behaviour(length_field="max_completion_tokens")
    with (
        OpenAIServer() as good,
        OpenAIServer(behaviour=odd) as other,
        pytest.raises(EngineError, match="cannot serve one model together"),
    ):
        probe(Service(model="fake", urls=(good.url, other.url)))


def test_a_server_that_ignores_n_still_gives_all_votes() -> None:
    """PX-01: the missing calls are made, and no answer counts twice."""
    with OpenAIServer(behaviour=Behaviour(n=False)) as server:
        outcome = ttc.solve(
            "Pick a word.",
            "sample(n=3, max_tokens=12) >> vote()",
            model=f"openai:fake@{server.url}",
            seed=0,
        )

    assert len({c.text for c in outcome.candidates}) == 3


def test_doctor_reports_on_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(behaviour=Behaviour(seed=False)) as server:
        code = main(["doctor", "--server", f"openai:fake@{server.url}"])

    said = capsys.readouterr().out
    assert code == 0
    assert "ignored or refused" in said
    assert "20 of the greatest" in said


def test_a_command_runs_on_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(["The answer is 4."]) as server:
        model = f"openai:fake@{server.url}"
        code = main(["solve", "2+2?", "--model", model, "--no-keep", "--strategy", "greedy()"])

    assert code == 0
    assert "4" in capsys.readouterr().out
