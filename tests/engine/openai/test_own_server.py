"""The engine of servers on ttc's own server."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import ttc
from tests.serve.lab import LONG, eventually, serving
from ttc import Budget, EngineError
from ttc.engine.openai import OpenAIEngine, Service, connect
from ttc.ports import Request
from ttc.testing import FakeEngine, check_engine
from ttc.types import Sampling

WORDS = ("ant", "bee", "cat", "dog", "eel", "fox")


def babble(request: Request) -> str:
    """Words by the seed; the same ones where nothing else can be drawn."""
    sampling = request.sampling
    is_free = sampling.temperature > 0 and sampling.top_k != 1 and sampling.min_p != 1
    seeded = random.Random(request.seed if is_free else 0)
    return " ".join(seeded.choice(WORDS) for _ in range(40))


@pytest.fixture(scope="module")
def engine() -> Iterator[OpenAIEngine]:
    with serving(FakeEngine(babble)) as there:
        made = connect(Service(model="fake", urls=(there.url,)))
        yield made
        made.close()


def test_what_it_does_is_found_out(engine: OpenAIEngine) -> None:
    report = engine.report

    assert (report.kind, report.tells_usage, report.seed, report.n) == ("ttc", True, True, True)
    assert report.tools
    assert report.honours == {"top_k", "min_p"}


def test_it_keeps_the_contract(engine: OpenAIEngine) -> None:
    assert check_engine(engine).failed == ()


def test_a_vote_on_it_is_charged_what_its_engine_made() -> None:
    fake = FakeEngine("The answer is 391.")
    with serving(fake) as there:
        made = connect(Service(model="fake", urls=(there.url,)))
        before = fake.output_tokens
        outcome = ttc.solve(
            "What is 17 * 23?",
            "sample(n=4, max_tokens=16) >> vote()",
            model=made,
            budget=Budget(tokens=600),
        )
        made.close()

    assert outcome.answer == "391"
    assert outcome.usage.output_tokens == fake.output_tokens - before == 16


def test_a_cancelled_call_ends_on_it() -> None:
    """Nothing of it is left one step later."""
    fake = FakeEngine(LONG, seconds_per_token=0.01)
    with serving(fake) as there:
        made = OpenAIEngine(Service(model="fake", urls=(there.url,)))
        root = made.root(ttc.Problem.ask("?"), "policy")
        asked = Request(branch=root, max_tokens=900, sampling=Sampling(), seed=1)
        call = made.submit(asked)
        assert eventually(lambda: fake.active == 1)
        call.cancel()

        assert eventually(lambda: fake.active == 0)
        made.close()

    assert fake.output_tokens < 900


def test_a_strategy_that_spends_more_than_a_call_may_is_no_model() -> None:
    """No budget of calls would hold with it; it runs here instead."""
    with serving(FakeEngine(babble)) as there:
        service = Service(model="fake@self_consistency(n=5)", urls=(there.url,))
        with pytest.raises(EngineError, match="does not enforce max_tokens"):
            connect(service)
