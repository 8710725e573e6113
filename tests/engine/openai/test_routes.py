"""Which server a call goes to, and when."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from ttc.engine.openai.failures import Refused
from ttc.engine.openai.routes import Route, Routes

BEGINNINGS = [f"question {n}" for n in range(400)]


def routes(count: int = 3, **limits: Any) -> Routes:
    made = [Route(f"http://host{n}/v1", object) for n in range(count)]
    return Routes(made, **{"concurrency": 2, **limits})


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


def test_one_beginning_belongs_to_one_server() -> None:
    one, other = routes(), routes()

    for beginning in BEGINNINGS:
        assert one.order(beginning)[0].url == other.order(beginning)[0].url


def test_beginnings_are_spread_evenly() -> None:
    counts = Counter(routes(4).order(beginning)[0].url for beginning in BEGINNINGS)

    assert len(counts) == 4
    assert max(counts.values()) < 1.5 * min(counts.values())


def test_a_server_that_goes_moves_only_its_own() -> None:
    all_four = routes(4)
    three = Routes(all_four.all[:3], concurrency=2)
    gone = all_four.all[3]

    for beginning in BEGINNINGS:
        if all_four.order(beginning)[0] is not gone:
            assert all_four.order(beginning)[0] is three.order(beginning)[0]


def test_a_full_server_hands_over_to_the_next_one() -> None:
    async def work() -> list[str]:
        there = routes()
        return [(await there.take("q")).url for _ in range(6)]

    order = [route.url for route in routes().order("q")]

    assert run(work()) == [order[0]] * 2 + [order[1]] * 2 + [order[2]] * 2


def test_whoever_waits_is_served_in_turn() -> None:
    async def work() -> list[int]:
        there, served = routes(1, concurrency=1), list[int]()

        async def call(number: int) -> None:
            route = await there.take("q")
            served.append(number)
            await asyncio.sleep(0)
            there.leave(route)

        await asyncio.gather(*map(call, range(50)))
        return served

    assert run(work()) == list(range(50))


def test_a_cancelled_wait_passes_its_turn_on() -> None:
    async def work() -> Route:
        there = routes(1, concurrency=1)
        first = await there.take("q")
        waiting = [asyncio.ensure_future(there.take("q")) for _ in range(3)]
        await asyncio.sleep(0)
        there.leave(first)
        waiting[0].cancel()
        waiting[1].cancel()
        return await waiting[2]

    assert run(work()).running == 1


def test_a_server_that_rests_is_passed_over() -> None:
    async def work() -> Route:
        there = routes()
        there.rest(there.order("q")[0], 60.0)
        return await there.take("q")

    assert run(work()).url == routes().order("q")[1].url


def test_a_rest_ends() -> None:
    async def work() -> Route:
        there = routes(1)
        there.rest(there.all[0], 0.01)
        return await there.take("q")

    assert run(work()).running == 1


def test_nobody_waits_longer_than_he_may() -> None:
    """PX-07: a rest of a minute is no use to who has half of one."""

    async def work() -> None:
        there = routes(1)
        there.rest(there.all[0], 59.8)
        await there.take("q", most=30.0)

    with pytest.raises(Refused, match="left alone for 60 seconds"):
        run(work())


def test_what_many_calls_find_out_together_is_one_failure() -> None:
    async def work() -> tuple[int, float]:
        there = routes(1)
        for _ in range(64):
            there.rest(there.all[0], None)
        return there.all[0].failures, there.all[0].resumes_at - asyncio.get_running_loop().time()

    failures, left = run(work())

    assert failures == 1
    assert left <= 0.25


def test_each_further_failure_rests_longer() -> None:
    async def work() -> list[float]:
        there, rests = routes(1), []
        route, loop = there.all[0], asyncio.get_running_loop()
        for _ in range(12):
            there.rest(route, None)
            rests.append(round(route.resumes_at - loop.time(), 1))
            route.resumes_at = 0.0
        there.well(route)
        there.rest(route, None)
        return [*rests, round(route.resumes_at - loop.time(), 1)]

    rests = run(work())

    assert rests[:3] == [0.2, 0.5, 1.0]
    assert rests[-2:] == [30.0, 0.2]


def test_a_rate_spaces_requests_out() -> None:
    async def work() -> float:
        there, loop = routes(1, concurrency=9, rate=200.0), asyncio.get_running_loop()
        began = loop.time()
        for _ in range(9):
            await there.take("q")
        return loop.time() - began

    assert run(work()) >= 8 / 200 - 0.002
