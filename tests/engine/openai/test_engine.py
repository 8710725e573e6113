"""Calls of a server: what they come to, what they cost, and what goes wrong with them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

import ttc
from tests.engine.openai.servers import GOOD, QUESTION, faulty, request, served
from ttc import Budget, Message, Problem, Sampling
from ttc.engine.openai import OpenAIEngine, Service
from ttc.engine.openai.failures import Refused, Unknown
from ttc.errors import ContextOverflow
from ttc.prices import Price, Prices
from ttc.testing.openai_replies import Behaviour
from ttc.testing.openai_server import Fault
from ttc.types import Branch, Chunk, ToolCall

LONG = "so " * 400
FOREVER = {"fault": lambda *_: Fault(pause=0.005)}


def result(engine: OpenAIEngine, **more: Any) -> Branch:
    return engine.submit(request(engine, **more)).future.result(20)


def solve(engine: OpenAIEngine, strategy: str, **more: Any) -> ttc.Outcome:
    return ttc.solve(QUESTION, strategy, model=engine, seed=0, **more)


def test_a_vote_runs_on_a_server() -> None:
    with served(["The answer is 391.", "The answer is 391.", "The answer is 401."]) as (
        engine,
        server,
    ):
        outcome = solve(engine, "sample(n=9, max_tokens=32) >> vote()")

    assert outcome.answer == "391"
    assert outcome.usage.calls == len(server.asked) == 9
    assert outcome.usage.output_tokens == server.billed == 9 * 4


def test_a_prompt_is_sent_as_it_is() -> None:
    call = ToolCall(name="python", arguments={"code": "1"}, id="c1")
    turns = (
        Message(role="user", content='"Zoë"\n'),
        Message(role="assistant", content="", tool_calls=(call,), reasoning_content="hm"),
        Message(role="tool", content="1", tool_call_id="c1"),
    )
    with served() as (engine, server):
        result(engine, problem=Problem(messages=turns, template_options={"thinking": False}))

    body = server.asked[0].body
    function = {"name": "python", "arguments": '{"code": "1"}'}
    assert body["messages"] == [
        {"role": "user", "content": '"Zoë"\n'},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
    ]
    assert body["chat_template_kwargs"] == {"thinking": False}


def test_a_raw_prompt_is_completed() -> None:
    with served() as (engine, server):
        branch = result(engine, problem=Problem(prompt="17 * 23 ="))

    assert server.asked[0].path == "/v1/completions"
    assert server.asked[0].body["prompt"] == "17 * 23 ="
    assert branch.text == "The answer is 391."


def test_every_sample_has_a_request_a_seed_and_a_key_of_its_own() -> None:
    """Field defect 39: a server that ignores n changes nothing; 38: nor does a cache by content."""
    with served() as (engine, server):
        solve(engine, "sample(n=4, max_tokens=8) >> vote()")

    assert not any("n" in asked.body for asked in server.asked)
    assert len({asked.body["seed"] for asked in server.asked}) == 4
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 4


def test_empty_replies_are_no_votes() -> None:
    """Field defect 37: a success with nothing in it is no success."""
    with served(["", "", "", "The answer is 7."]) as (engine, _):
        outcome = ttc.solve(QUESTION, "sample(n=12, max_tokens=8) >> vote()", model=engine, seed=3)

    assert outcome.answer == "7"
    assert {c.answer for c in outcome.candidates} == {None, "7"}


def test_a_server_that_answers_in_one_piece_is_read_as_well() -> None:
    with served(server={"behaviour": Behaviour(streams=False)}) as (engine, _):
        branch = result(engine)

    assert (branch.text, branch.length) == ("The answer is 391.", 4)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp", "hosted"])
def test_all_kinds_of_servers_are_read_alike(kind: Any) -> None:
    report = replace(GOOD, kind=kind, logprobs=5)
    with served(server={"behaviour": Behaviour(kind=kind)}, report=report) as (engine, _):
        branch = result(engine, sampling=Sampling(logprobs=2))

    assert (branch.text, branch.length, branch.finish_reason) == ("The answer is 391.", 4, "stop")
    assert branch.logprobs == (-0.5,) * 4
    assert branch.top_logprobs == ((-0.5, -1.0),) * 4


# What may be sent again, and what is paid


def test_a_server_that_cannot_be_reached_was_not_paid() -> None:
    """PX-05: connection refused, then ok: one generation, paid once."""
    with served() as (_, server):
        urls = ("http://127.0.0.1:9/v1", server.url)
        engine = OpenAIEngine(Service(model="fake", urls=urls), GOOD)
        outcome = solve(engine, "sample(n=6, max_tokens=8) >> vote()")
        engine.close()

    assert outcome.answer == "391"
    assert server.generations == outcome.usage.calls == 6
    assert outcome.usage.output_tokens == server.billed


def test_nobody_there_costs_nothing() -> None:
    engine = OpenAIEngine(Service(model="m", urls=("http://127.0.0.1:9/v1",), attempts=2), GOOD)
    call = engine.submit(request(engine))

    with pytest.raises(Refused, match="cannot be reached") as caught:
        call.future.result(20)
    assert caught.value.output_tokens == call.usage.input_tokens == 0


def test_what_may_have_been_done_is_not_done_again() -> None:
    """PX-05: taken, billed, and no answer in time: one request, charged at its worst case."""
    with served(server={"fault": faulty(Fault(hang=30))}, silence=0.2) as (engine, server):
        outcome = solve(engine, "sample(n=1, max_tokens=16) >> vote()")

    assert len(server.asked) == 1
    assert outcome.usage.output_tokens == 16
    assert "said nothing for 0.2 seconds" in str(outcome.candidates[0].error)


def test_a_server_that_knows_the_key_is_asked_again() -> None:
    """PX-05: all attempts carry one key, one generation is made, and one is paid."""
    server = {"fault": faulty(Fault(hang=30), Fault(hang=30)), "deduplicates": True}
    with served(server=server, silence=0.2, deduplicates=True) as (engine, there):
        outcome = solve(engine, "sample(n=1, max_tokens=16) >> vote()")

    assert outcome.answer == "391"
    assert len(there.asked) == 3
    assert len({asked.headers["idempotency-key"] for asked in there.asked}) == 1
    assert there.generations == 1
    assert outcome.usage.output_tokens == 4


def test_what_an_attempt_before_may_have_done_is_charged() -> None:
    """PX-05: taken and billed; asked again under its key, the server refuses. It was paid once."""
    server = {"fault": faulty(Fault(hang=30), Fault(status=400)), "deduplicates": True}
    with served(server=server, silence=0.2, deduplicates=True) as (engine, there):
        outcome = solve(engine, "sample(n=1, max_tokens=16) >> vote()")

    assert len(there.asked) == 2
    assert outcome.usage.output_tokens == 16


def test_pieces_of_two_attempts_join_to_one_text() -> None:
    server = {"fault": faulty(Fault(cut_after=3)), "deduplicates": True}
    chunks: list[Chunk] = []
    with served(server=server, deduplicates=True) as (engine, _):
        branch = engine.submit(request(engine), chunks.append).future.result(20)

    assert "".join(chunk.text for chunk in chunks) == branch.text == "The answer is 391."


def test_a_storm_of_refusals_is_waited_out() -> None:
    """As long as the server asks, and by all calls together."""
    busy = Fault(status=429, headers={"retry-after-ms": "30"})
    with served(server={"fault": faulty(*[busy] * 40)}, concurrency=8, attempts=20) as (
        engine,
        server,
    ):
        outcome = solve(engine, "sample(n=16, max_tokens=8) >> vote()")

    assert outcome.answer == "391"
    assert server.generations == 16
    assert outcome.usage.output_tokens == server.billed
    assert len(server.asked) == 56


def test_refusals_without_end_end_with_the_attempts() -> None:
    busy = {"fault": lambda *_: Fault(status=503, headers={"retry-after": "0"})}
    with (
        served(server=busy, attempts=3) as (engine, server),
        pytest.raises(Refused, match="503 Service Unavailable: not now"),
    ):
        result(engine)

    assert len(server.asked) == 3


def test_a_rest_that_is_too_long_is_not_waited_for() -> None:
    busy = {"fault": lambda *_: Fault(status=429, headers={"retry-after": "999999"})}
    with (
        served(server=busy, seconds=30) as (engine, server),
        pytest.raises(Refused, match="left alone for"),
    ):
        result(engine)

    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_request_that_is_wrong_is_sent_once_and_free(status: int) -> None:
    with served(server={"fault": lambda *_: Fault(status=status)}) as (engine, server):
        outcome = solve(engine, "sample(n=1, max_tokens=16) >> vote()")

    assert len(server.asked) == 1
    assert outcome.usage.output_tokens == outcome.usage.input_tokens == 0


def test_a_prompt_that_is_too_long_is_told_as_such() -> None:
    long = Fault(status=400, message="This model's maximum context length is 10 tokens")
    with (
        served(server={"fault": faulty(long)}) as (engine, _),
        pytest.raises(ContextOverflow),
    ):
        result(engine)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(cut_after=2), "the connection broke"),
        (Fault(error_after=2), "gave up: out of memory"),
        (Fault(raw=b'data: {"choices": []}\n\n'), "cut before it told"),
        (Fault(raw=b"data: {]\n\n"), "sent no JSON"),
        (Fault(status=500), "500 Internal Server Error"),
    ],
)
def test_a_reply_that_breaks_is_one_failed_call_at_its_worst_case(fault: Fault, said: str) -> None:
    """And the others go on."""
    with served(server={"fault": faulty(fault)}) as (engine, server):
        outcome = solve(engine, "sample(n=4, max_tokens=16, ahead=1) >> vote()")

    statuses = [c.status for c in outcome.candidates]
    assert statuses == ["failed", "finished", "finished", "finished"]
    assert said in str(outcome.candidates[0].error)
    assert outcome.answer == "391"
    assert outcome.usage.output_tokens == 16 + 3 * 4
    assert len(server.asked) == 4


def test_a_body_that_never_ends_is_ended() -> None:
    """However busily it trickles."""
    drip = {"fault": faulty(Fault(raw=b": wait\n\n" * 999, pause=0.01))}
    with (
        served(server=drip, seconds=0.3) as (engine, _),
        pytest.raises(Unknown, match=r"more than 0\.3 seconds"),
    ):
        result(engine)


def test_a_budget_holds_whatever_goes_wrong() -> None:
    faults = faulty(*[Fault(cut_after=2), None, Fault(status=429), Fault(error_after=1)] * 9)
    behaviour = Behaviour(usage="none")
    with served(server={"fault": faults, "behaviour": behaviour}) as (engine, _):
        graph = 'sample(n="budget", max_tokens=16) >> vote()'
        outcome = solve(engine, graph, budget=Budget(tokens=300))

    assert outcome.stopped_by == "tokens"
    assert outcome.usage.tokens <= 300


# What is counted


@pytest.mark.parametrize("usage", ["none", "wrong"])
def test_tokens_that_nobody_tells_are_all_that_was_allowed(usage: Any) -> None:
    """And the trace says so."""
    behaviour = Behaviour(usage=usage)
    with served(server={"behaviour": behaviour}) as (engine, _):
        outcome = solve(engine, "sample(n=2, max_tokens=20) >> vote()")

    calls = [record for record in outcome.trace if record.kind == "call"]
    assert outcome.usage.output_tokens == 40
    assert [record.detail.get("uncounted") for record in calls] == [True, True]


def test_running_totals_are_not_added_up() -> None:
    """PX-03, through the ledger."""
    with served(server={"behaviour": Behaviour(usage="each", kind="hosted")}) as (engine, _):
        outcome = solve(engine, "sample(n=2, max_tokens=20) >> vote()")

    assert outcome.usage.output_tokens == 2 * 4
    assert all("uncounted" not in record.detail for record in outcome.trace)


def test_more_tokens_than_were_allowed_are_a_fault_of_the_server() -> None:
    with served(LONG, server={"behaviour": Behaviour(limits=False)}) as (engine, _):
        outcome = solve(engine, "sample(n=1, max_tokens=16) >> vote()", budget=Budget(tokens=200))

    assert "tokens where 16 were allowed" in str(outcome.candidates[0].error)
    assert outcome.usage.output_tokens == 16


def test_dollars_come_from_what_the_server_told() -> None:
    day = __import__("datetime").date(2026, 1, 1)
    price = Price(model="fake", date=day, input=1, output=10)  # type: ignore[arg-type]
    with served() as (engine, _):
        outcome = solve(
            engine,
            "sample(n=2, max_tokens=20) >> vote()",
            budget=Budget(cost_usd=0.01),
            prices=Prices([price]),
        )

    assert outcome.usage.input_tokens == 2 * 5
    assert outcome.usage.cost_usd == pytest.approx((10 * 1 + 8 * 10) / 1e6)


def test_a_cancelled_call_closes_its_connection_and_is_charged_what_came() -> None:
    begun = threading.Event()
    with served(LONG, server=FOREVER) as (engine, server):
        call = engine.submit(request(engine, max_tokens=400), lambda _: begun.set())
        assert begun.wait(20)
        produced = call.cancel()
        assert server.join()

    assert 1 <= produced < 400
    assert server.hung_up == 1
    assert server.billed <= produced + 2
    assert call.cancel() == produced
    assert call.usage.input_tokens == 5


def test_a_server_that_may_go_on_is_paid_in_full() -> None:
    """Where nobody knows whether it ends with the connection."""
    begun = threading.Event()
    report = replace(GOOD, kind="unknown")
    with served(LONG, server=FOREVER, report=report) as (engine, _):
        call = engine.submit(request(engine, max_tokens=400), lambda _: begun.set())
        assert begun.wait(20)

        assert call.cancel() == 400
        assert not engine.capabilities.cancel


def test_a_call_that_waits_is_cancelled_for_nothing() -> None:
    with served(LONG, server=FOREVER, concurrency=1) as (engine, server):
        first = engine.submit(request(engine, max_tokens=400))
        second = engine.submit(request(engine, max_tokens=400))

        assert second.cancel() == 0
        assert second.usage.input_tokens == 0
        first.cancel()

    assert len(server.asked) <= 1


def test_a_deadline_ends_what_runs() -> None:
    with served(LONG, server=FOREVER) as (engine, server):
        outcome = solve(engine, "sample(n=4, max_tokens=400) >> vote()", budget=Budget(seconds=0.3))
        assert server.join()

    assert outcome.stopped_by == "seconds"
    assert server.hung_up == 4
    assert outcome.usage.output_tokens < 4 * 400


def test_no_more_calls_run_at_once_than_a_server_may_have() -> None:
    with served(server={"latency": 0.01}, concurrency=3) as (engine, server):
        solve(engine, "sample(n=12, max_tokens=8) >> vote()")

    assert server.most_active == 3
