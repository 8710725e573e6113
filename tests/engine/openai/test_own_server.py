"""The engine of servers on ttc's own server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ttc
from tests.engine.conftest import TEMPLATE
from tests.serve.lab import LONG, eventually, serving
from ttc import Budget, EngineError
from ttc.engine.local import LocalEngine
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.openai import OpenAIEngine, Service, connect
from ttc.engine.texts import Texts
from ttc.ports import Request
from ttc.strategies import BeamSearch, Best
from ttc.strategies.tree.steps import FixedLength
from ttc.testing import FakeEngine, check_engine
from ttc.types import Branch, Problem, Sampling
from ttc.verifiers import MeanLogprob

COUNT = Problem.ask("Count.")
GREEDY = Sampling(temperature=0.0)
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


@pytest.fixture
def both(
    monkeypatch: pytest.MonkeyPatch, tokens: TextTokens, load: Callable[..., LocalEngine]
) -> Iterator[tuple[OpenAIEngine, LocalEngine]]:
    """A tiny engine, and the engine of ttc's own server in front of it. Both know its tokens."""
    monkeypatch.setattr(
        Texts,
        "load",
        lambda _, **more: Texts(tokens, ChatTemplate(TEMPLATE, tokens, tokens.special), **more),
    )
    own = load()
    with serving(models={"tiny": own}) as there:
        made = connect(Service(model="tiny", urls=(there.url,), tokenizer="."))
        yield made, own
        made.close()


def _result(engine: OpenAIEngine | LocalEngine, branch: Branch, **more: Any) -> Branch:
    asked = {"max_tokens": 12, "sampling": GREEDY, "seed": 1, **more}
    return engine.submit(Request(branch=branch, **asked)).future.result(20)


def test_ttcs_own_server_is_asked_by_tokens(both: tuple[OpenAIEngine, LocalEngine]) -> None:
    engine, _ = both

    assert (engine.report.kind, engine.report.tells_tokens) == ("ttc", "token_ids")
    assert check_engine(engine, COUNT).failed == ()


def test_a_cut_branch_goes_on_over_http_as_it_does_here(
    both: tuple[OpenAIEngine, LocalEngine],
) -> None:
    """Of a random model: its tokens are no whole characters, so no text would carry them."""
    found = []
    for engine in both:
        root = engine.root(COUNT, "policy")
        first = _result(engine, root)
        cut = engine.cut(first, root.num_tokens + 5)
        forks = [_result(engine, engine.append(cut, cue)) for cue in (" th", " a")]
        found.append([branch.token_ids for branch in (root, first, *forks)])

    assert found[0] == found[1]


def test_a_search_runs_on_ttcs_own_server(both: tuple[OpenAIEngine, LocalEngine]) -> None:
    engine, _ = both
    shape: dict[str, Any] = {"num_beams": 2, "beam_width": 1, "max_steps": 2}
    search = BeamSearch(MeanLogprob(), steps=FixedLength(4), **shape)

    outcome = ttc.solve(COUNT, search >> Best(), model=engine, seed=0)

    assert outcome.usage.output_tokens == 2 * 2 * 4
    assert {len(c.branch.token_ids or ()) for c in outcome.candidates} == {4}
