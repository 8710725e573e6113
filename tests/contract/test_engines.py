"""The contract of engines, kept by every adapter; and one problem on several of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.engine.openai.servers import served
from tests.pools.test_pool import completion
from tests.serve.lab import serving
from ttc import Budget, Problem
from ttc.engine.openai import OpenAIEngine, Report, Service, connect, named
from ttc.engine.replay import ReplayEngine
from ttc.engine.simulator import Lengths, SimulatedProblem, Simulator
from ttc.pools import Pool
from ttc.ports import Engine, Generation, Request
from ttc.testing import ENGINE_CHECK_NAMES, FakeEngine, NotConforming, check_engine
from ttc.testing.openai_replies import Behaviour
from ttc.testing.openai_server import Fault, OpenAIServer
from ttc.types import Branch, Sampling

QUESTION = Problem.ask("Name three animals.", id="q")
SAYINGS = ("So the answer is 391.", "I say: the answer is 401. No more.", "no answer here")

Made = Iterator[tuple[Engine, Problem]]


@contextmanager
def fake() -> Made:
    yield FakeEngine(SAYINGS), QUESTION


@contextmanager
def simulator() -> Made:
    law = SimulatedProblem(id="q", success=0.6, lengths=Lengths(median=9))
    yield Simulator([law]), QUESTION


@contextmanager
def replay() -> Made:
    drawn = (
        completion("q", i, SAYINGS[i % 3], num_tokens=7, finish_reason="stop") for i in range(60)
    )
    pool = Pool(drawn)
    yield ReplayEngine(pool), pool.problems[0]


@contextmanager
def openai() -> Made:
    with served(SAYINGS) as (engine, _):
        yield engine, QUESTION


@contextmanager
def openai_probed() -> Made:
    """On a server that does little, as it was found to."""
    weak = Behaviour(kind="hosted", seed=False, usage="none", top=0, schemas=False, stops=False)
    with OpenAIServer(behaviour=weak) as server:
        engine = connect(named(f"fake@{server.url}"))
        yield engine, QUESTION
        engine.close()


ENGINES = {make.__name__: make for make in (fake, simulator, replay, openai, openai_probed)}
EXEMPT = {
    "replay": {"until": "it holds what was recorded", "repeat": "it draws without replacement"}
}


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_keeps_the_contract(name: str) -> None:
    with ENGINES[name]() as (engine, problem):
        report = check_engine(engine, problem, exempt=EXEMPT.get(name))

    assert report.failed == ()
    assert [one.name for one in report.checked] == list(ENGINE_CHECK_NAMES)


@pytest.mark.model
def test_the_embedded_engine_keeps_the_contract() -> None:
    local = pytest.importorskip("ttc.engine.local")
    from ttc.engine.local.hub.models import find

    with local.LocalEngine.load(find("smollm2-135m"), name="smollm2-135m") as engine:
        report = check_engine(engine, max_tokens=4)

    assert report.failed == ()


class Broken(FakeEngine):
    """A fake engine that breaks a promise."""

    def __init__(self, changes: dict[str, Any]) -> None:
        super().__init__(SAYINGS)
        self._changes = changes

    def submit(self, request: Request, on_chunk: Any = None) -> Any:
        """A call whose result is changed."""
        return Changed(super().submit(request, on_chunk), self._changes)


class Changed:
    """A call with another result."""

    def __init__(self, call: Generation, changes: dict[str, Any]) -> None:
        self.future = Future[Branch]()
        self._call = call
        call.future.add_done_callback(
            lambda came: self.future.set_result(replace(came.result(), **changes))
        )

    @property
    def usage(self) -> ttc.Usage:
        """That of the call."""
        return self._call.usage

    def cancel(self) -> int:
        """Ends the call."""
        return self._call.cancel()


@pytest.mark.parametrize(
    ("changes", "caught"),
    [
        ({"parent": None}, "result"),
        ({"finish_reason": "error"}, "result"),
        ({"token_ids": tuple(range(99))}, "limit"),
        ({"text": "other"}, "chunks"),
        ({"logprobs": None}, "logprobs"),
        ({"logprobs": (0.5,)}, "logprobs"),
        ({"stop_reason": "nobody"}, "until"),
    ],
)
def test_the_contract_catches_what_breaks_it(changes: dict[str, Any], caught: str) -> None:
    with pytest.raises(NotConforming) as told:
        check_engine(Broken(changes), QUESTION)

    assert caught in told.value.report.failed


def test_a_check_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="'nothing' is no check"):
        check_engine(FakeEngine("so"), only=["nothing"])


@pytest.mark.parametrize("said", [*SAYINGS, "", "one"])
@pytest.mark.parametrize("more", [{}, {"max_tokens": 3}, {"until": ("answer", "say:")}])
def test_equal_requests_have_equal_results(said: str, more: dict[str, Any]) -> None:
    """On an engine in the process and on a server: text, tokens, charge, and why it ended."""

    async def result(engine: Engine) -> tuple[Any, ...]:
        asked = {"max_tokens": 16, "sampling": Sampling(), "seed": 5, **more}
        request = Request(branch=engine.root(QUESTION, "policy"), **asked)
        came = await asyncio.wrap_future(engine.submit(request).future)
        return came.text, came.finish_reason, came.logprobs

    with served(said) as (engine, _):
        assert asyncio.run(result(engine)) == asyncio.run(result(FakeEngine(said)))


def result_of(engine: Engine, problem: Problem = QUESTION, **more: Any) -> tuple[Any, ...]:
    """Text, tokens that are charged, and why it ended."""

    async def result() -> Branch:
        asked = {"max_tokens": 16, "sampling": Sampling(), "seed": 5, **more}
        request = Request(branch=engine.root(problem, "policy"), **asked)
        return await asyncio.wrap_future(engine.submit(request).future)

    came = asyncio.run(result())
    return came.text, came.length, came.finish_reason


@pytest.mark.parametrize("more", [{}, {"max_tokens": 3}, {"until": ("answer",)}])
def test_equal_requests_have_equal_results_through_ttcs_own_server(more: dict[str, Any]) -> None:
    """What the engine behind it would have given."""
    with serving(FakeEngine(SAYINGS[1])) as there:
        service = Service(model="fake", urls=(there.url,))
        engine = OpenAIEngine(service, Report(kind="ttc", tells_usage=True))
        assert result_of(engine, **more) == result_of(FakeEngine(SAYINGS[1]), **more)
        engine.close()


@pytest.mark.parametrize("said", SAYINGS)
def test_a_recorded_result_is_the_result_itself(said: str) -> None:
    """What an engine gave, given again by the pool that recorded it."""
    text, length, reason = first = result_of(FakeEngine(said))
    pool = Pool([completion("q", 0, text, num_tokens=length, finish_reason=reason)])

    assert result_of(ReplayEngine(pool), pool.problems[0]) == first


# Mixed engines in one run


def test_roles_run_on_different_engines_under_one_ledger(tmp_path: Path) -> None:
    """Answers of one in the process, chosen by a judge at a server; dollars of both add up."""
    prices = prices_of({"fake-policy": (0, 0), "fake": (2, 20)})
    policy = FakeEngine(["The answer is 391.", "The answer is 401."])
    policy.name = "fake-policy"
    with served("Score: 7") as (judge, server):
        outcome = ttc.solve(
            "What is 17 * 23?",
            "sample(n=3, max_tokens=8) >> judge() >> best()",
            model=policy,
            models={"judge": judge},
            budget=Budget(tokens=20_000, cost_usd=0.05),
            prices=prices,
            seed=0,
        )

    asked = outcome.usage_by_role
    assert policy.calls == 3
    assert len(server.asked) == asked["judge"].calls == 3
    assert asked["policy"].tokens + asked["judge"].tokens == outcome.usage.tokens <= 20_000
    assert asked["policy"].cost_usd == 0.0
    spent = asked["judge"]
    assert spent.cost_usd == pytest.approx(
        (2 * spent.input_tokens + 20 * spent.output_tokens) / 1e6
    )
    assert outcome.usage.cost_usd == spent.cost_usd


def prices_of(table: dict[str, tuple[float, float]]) -> ttc.prices.Prices:
    from datetime import date
    from decimal import Decimal

    from ttc.prices import Price, Prices

    day = date(2026, 1, 1)
    return Prices(
        Price(model=name, date=day, input=Decimal(str(given)), output=Decimal(str(output)))
        for name, (given, output) in table.items()
    )


LADDER = (
    "cascade(sample(n=2, max_tokens=8) >> vote(), "
    'sample(n=2, max_tokens=8, role="large") >> vote(), accept=confidence(0.9))'
)


@pytest.mark.parametrize(
    ("small", "answer", "asked"),
    [(["The answer is 4."], "4", 0), (["The answer is 1.", "The answer is 2."], "391", 2)],
)
def test_a_cascade_goes_from_an_embedded_engine_to_a_server(
    small: list[str], answer: str, asked: int
) -> None:
    """Only where the first one is not sure."""
    with served("The answer is 391.") as (large, server):
        outcome = ttc.solve(
            "?", LADDER, model=FakeEngine(small, in_order=True), models={"large": large}, seed=0
        )

    assert len(server.asked) == asked
    assert answer in {c.answer for c in outcome.candidates}


def test_a_limit_in_dollars_holds_over_all_engines() -> None:
    """It is reserved at the worst case, so a server that is too dear is not asked."""
    prices = prices_of({"fake-policy": (1, 1), "fake": (1000, 1000)})
    policy = FakeEngine("The answer is 1.")
    policy.name = "fake-policy"
    with served("Score: 7") as (judge, server):
        outcome = ttc.solve(
            "?",
            "sample(n=3, max_tokens=8) >> judge() >> best()",
            model=policy,
            models={"judge": judge},
            budget=Budget(cost_usd=0.001),
            prices=prices,
        )

    assert server.asked == []
    assert (outcome.usage.cost_usd or 0) <= 0.001


def test_a_server_that_breaks_fails_its_own_role_alone() -> None:
    with served("Score: 7", server={"fault": lambda *_: Fault(cut_after=1)}) as (judge, _):
        outcome = ttc.solve(
            "?",
            "sample(n=2, max_tokens=8) >> judge() >> best()",
            model=FakeEngine("The answer is 1."),
            models={"judge": judge},
            seed=0,
        )

    assert {c.status for c in outcome.candidates} == {"finished"}
    assert all(c.scores["judge"].value is None for c in outcome.candidates)
