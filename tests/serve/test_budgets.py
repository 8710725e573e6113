"""Budgets of requests, keys and the server: reserved before, settled after, never exceeded."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.lab import LONG, SAID, eventually, serving
from ttc import Budget
from ttc.errors import PriceError
from ttc.serve import Key, Keys, Refusal, Service, Settings, new_key
from ttc.serve.ledger import Ledger
from ttc.serve.line import Line
from ttc.testing import FakeEngine
from ttc.usage import Usage

SPEC = "fake@sample(n=8, max_tokens=50) >> vote()"


def test_a_request_never_spends_more_than_it_asked_for() -> None:
    with serving(FakeEngine(LONG)) as server:
        reply = server.post(model=SPEC, ttc={"budget": {"tokens": 120}}).json()

    assert reply["ttc"]["stopped_by"] == "tokens"
    assert reply["usage"]["total_tokens"] <= 120
    assert server.engine.output_tokens <= 120


def test_a_request_cannot_ask_for_more_than_is_allowed() -> None:
    with serving(FakeEngine(LONG), request_budget=Budget(tokens=100)) as server:
        usage = server.post(model=SPEC, ttc={"budget": {"tokens": 10_000}}).json()["usage"]

    assert usage["total_tokens"] <= 100


def test_a_budget_that_holds_no_call_is_refused_with_both_figures() -> None:
    with serving() as server:
        fault = server.fault(ttc={"budget": {"tokens": 3}})
        later = server.fault(
            model="fake@sample(at_least=100) >> vote()", ttc={"budget": {"tokens": 30}}
        )

    assert fault["code"] == later["code"] == "budget_too_small"
    assert "8 tokens" in fault["message"]
    assert "3" in fault["message"]
    assert "107" in later["message"]


def test_a_deadline_with_an_answer_is_a_success() -> None:
    engine = FakeEngine(
        "The answer is 4.", seconds_per_token=lambda r: 0.0 if r.call.endswith("#0") else 5.0
    )
    with serving(engine, deadline_s=0.6) as server:
        reply = server.post(model="fake@sample(n=2) >> vote()").json()

    assert reply["ttc"]["stopped_by"] == "seconds"
    assert engine.active == 0


def test_a_deadline_without_an_answer_is_an_empty_length() -> None:
    with serving(FakeEngine(LONG, seconds_per_token=5.0), deadline_s=0.2) as server:
        reply = server.post().json()

    choice = reply["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
    assert reply["ttc"]["stopped_by"] == "seconds"


def test_a_deadline_leaves_a_plain_stream_what_it_has_said() -> None:
    """What was sent is never revised."""
    with serving(FakeEngine(LONG, seconds_per_token=0.05), deadline_s=0.4) as server:
        chunks = server.chunks()
    said = "".join(c["delta"].get("content", "") for one in chunks for c in one["choices"])

    assert said.startswith("word0 word1")
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert chunks[-1]["ttc"]["stopped_by"] == "seconds"


def test_a_spent_budget_of_the_server_is_told_as_a_quota() -> None:
    with serving(FakeEngine(LONG), budget=Budget(tokens=60)) as server:
        assert server.post(max_tokens=40).status_code == 200
        reply = server.post(max_tokens=40)

    assert reply.status_code == 429
    assert reply.json()["error"]["code"] == "insufficient_quota"
    assert reply.headers["x-should-retry"] == "false"
    assert server.service.ledger.server.spent["tokens"] == 47


def test_a_budget_that_others_have_reserved_may_be_tried_again() -> None:
    engine = FakeEngine(LONG, seconds_per_token=0.02)
    with serving(engine, budget=Budget(tokens=1100)) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.post, max_tokens=60, model="fake", n=1)
        assert eventually(lambda: engine.active == 1)
        reply = server.post(max_tokens=1050)
        first.result()

    assert (reply.status_code, reply.json()["error"]["code"]) == (429, "budget_reserved")
    assert int(reply.headers["retry-after"]) >= 1


def test_a_strategy_that_shows_texts_again_reserves_what_its_prompts_can_come_to() -> None:
    """At most a context for each call."""
    engine = FakeEngine(lambda _: SAID[0], context=400)
    with serving(engine, budget=Budget(tokens=6_000)) as server:
        few, many = (
            server.post(model=f"fake@mixture_of_agents('policy', 'policy', layers={layers})")
            for layers in (2, 9)
        )

    assert few.status_code == 200
    assert (many.status_code, many.json()["error"]["code"]) == (429, "insufficient_quota")


def test_many_requests_at_once_spend_no_more_than_their_key_may() -> None:
    """Twenty want 50 tokens each, and five get them."""
    secret, _ = new_key("a")
    keys = Keys.read(None, f"a={secret}")
    with (
        serving(FakeEngine(LONG), keys=keys, key_budget=Budget(tokens=280)) as server,
        ThreadPoolExecutor(20) as pool,
    ):
        headers = {"authorization": f"Bearer {secret}"}
        replies = list(pool.map(lambda _: server.post(headers=headers, max_tokens=50), range(20)))
        spent = server.service.ledger.server.spent["tokens"]

    served = [reply for reply in replies if reply.status_code == 200]
    assert spent == sum(reply.json()["usage"]["total_tokens"] for reply in served) <= 280
    assert {reply.status_code for reply in replies} == {200, 429}


def test_a_limit_that_no_request_reserves_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="sandbox_seconds, which is known only afterwards"):
        Settings(budget=Budget(sandbox_seconds=1.0))
    with pytest.raises(ValueError, match="set the request budget's flops"):
        Settings(key_budget=Budget(flops=1e9))


def test_a_price_that_nobody_told_is_a_fault_of_the_request() -> None:
    with serving() as server:
        assert server.fault(ttc={"budget": {"cost_usd": 1}})["param"] == "ttc.budget"


ASKED = st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.floats(0, 1))


@given(st.lists(ASKED, max_size=40))
def test_no_order_of_requests_exceeds_a_limit(requests: list[tuple[str, int, float]]) -> None:
    """All or nothing: what is refused on the server leaves nothing on the key."""
    ledger = Ledger(Settings(budget=Budget(tokens=200), key_budget=Budget(tokens=90)))
    held = []
    for name, most, part in requests:
        with contextlib.suppress(Refusal):
            held.append((ledger.reserve(Key(name=name), {"tokens": most}), int(most * part)))
        if len(held) > 2:
            reservation, used = held.pop(0)
            reservation.settle(Usage(tokens=used))
            reservation.settle(Usage(tokens=used))  # twice is harmless
        accounts = [ledger.account(Key(name=n)) for n in "abc"]
        for account, limit in ((ledger.server, 200), *((a, 90) for a in accounts)):
            assert account.spent["tokens"] + account.reserved["tokens"] <= limit
        assert ledger.server.reserved["tokens"] == sum(a.reserved["tokens"] for a in accounts)


def test_keys_take_turns() -> None:
    """A key with many requests holds up nobody else."""

    async def order() -> list[str]:
        line, came = Line(1, 100), []

        async def one(key: str) -> None:
            await line.enter(key)
            came.append(key)
            await asyncio.sleep(0)
            line.leave()

        await asyncio.gather(*(one(key) for key in ["greedy"] * 6 + ["modest"] * 2))
        assert (line.running, line.waiting) == (0, 0)
        return came

    assert asyncio.run(order())[:5] == ["greedy", "greedy", "modest", "greedy", "modest"]


def test_a_full_line_refuses_whoever_waits_most() -> None:
    async def fill() -> list[bool]:
        line = Line(1, 3)
        await line.enter("greedy")
        waiting = [asyncio.ensure_future(line.enter("greedy")) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as full:
            await line.enter("greedy")
        assert full.value.status == 429
        modest = asyncio.ensure_future(line.enter("modest"))
        for _ in range(3):
            await asyncio.sleep(0)
        ended = [one.done() and one.exception() is not None for one in (*waiting, modest)]
        for one in (*waiting, modest):
            one.cancel()
        await asyncio.gather(*waiting, modest, return_exceptions=True)
        assert line.waiting == 0
        return ended

    assert asyncio.run(fill()) == [False, False, True, False]


def test_a_full_server_says_when_to_come_back() -> None:
    engine = FakeEngine(LONG, seconds_per_token=0.02)
    with serving(engine, concurrency=1, queue=0) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.post, max_tokens=50)
        assert eventually(lambda: engine.active == 1)
        whole, stream = server.post(), server.post(stream=True)
        first.result()

    for reply in (whole, stream):
        assert (reply.status_code, reply.json()["error"]["code"]) == (429, "queue_full")
        assert int(reply.headers["retry-after"]) >= 1


def test_a_draining_server_ends_what_runs_and_takes_no_more() -> None:
    engine = FakeEngine(LONG, seconds_per_token=0.02)
    with serving(engine, drain_s=30) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.post, max_tokens=20)
        assert eventually(lambda: engine.active == 1)
        server.service.is_draining = True
        refused = server.post()
        health = server.http.get(f"{server.root}/health")
        assert first.result().status_code == 200

    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert int(refused.headers["retry-after"]) >= 1
    assert (health.status_code, health.json()["status"]) == (503, "draining")


def test_what_outlasts_the_drain_gives_the_best_it_has() -> None:
    engine = FakeEngine(LONG, seconds_per_token=0.02)
    with ThreadPoolExecutor() as pool:
        with serving(engine, drain_s=0.1) as server:
            first = pool.submit(server.post, max_tokens=1000)
            assert eventually(lambda: engine.active == 1)
        reply = first.result()

    assert reply.status_code == 200
    assert reply.json()["ttc"]["stopped_by"] == "cancelled"
    assert engine.active == 0


def test_a_service_needs_prices_for_dollars() -> None:
    with pytest.raises(PriceError, match="has no price"):
        Service({"fake": FakeEngine("x")}, settings=Settings(request_budget=Budget(cost_usd=1.0)))
