"""The engine of servers on llama.cpp's own; `make test-llamacpp` runs it, others skip it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ttc
from tests.llamacpp.server import SECONDS, serving
from ttc import Budget, Sampling
from ttc.engine.openai import OpenAIEngine, Service, connect
from ttc.ports import Request
from ttc.testing import check_engine
from ttc.types import Branch

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving("smollm2-135m", "smollm2") as url:
        yield url


@pytest.fixture(scope="module")
def engine(url: str) -> Iterator[OpenAIEngine]:
    made = connect(Service(model="smollm2", urls=(url,)))
    yield made
    made.close()


@pytest.fixture(scope="module")
def by_tokens(url: str) -> Iterator[OpenAIEngine]:
    """The same server, asked by tokens."""
    made = connect(Service(model="smollm2", urls=(url,), tokenizer="smollm2-135m"))
    yield made
    made.close()


def test_what_it_does_is_found_out(engine: OpenAIEngine) -> None:
    report = engine.report

    assert report.kind == "llamacpp"
    assert (report.tells_usage, report.seed, report.n, report.schemas) == (True,) * 4
    assert report.logprobs == 20


def test_it_keeps_the_contract(engine: OpenAIEngine) -> None:
    assert check_engine(engine, max_tokens=8).failed == ()


def test_a_vote_runs_on_it_within_its_budget(engine: OpenAIEngine) -> None:
    outcome = ttc.solve(
        "What is 2 + 3?",
        "sample(n=4, max_tokens=32) >> vote()",
        model=engine,
        budget=Budget(tokens=600),
        seed=1,
    )

    assert 0 < outcome.usage.tokens <= 600
    assert {c.status for c in outcome.candidates} <= {"finished", "truncated"}
    assert all("uncounted" not in record.detail for record in outcome.trace)


def test_a_cancelled_call_frees_its_place(engine: OpenAIEngine) -> None:
    root = engine.root(ttc.Problem.ask("Count to a thousand."), "policy")
    asked = Request(branch=root, max_tokens=500, sampling=Sampling(), seed=1)
    calls = [engine.submit(asked) for _ in range(4)]
    produced = [call.cancel() for call in calls]
    after = engine.submit(Request(branch=root, max_tokens=2, sampling=Sampling(), seed=1))

    assert all(count <= 500 for count in produced)
    assert after.future.result(SECONDS).length == 2


# Asked by tokens


def test_it_keeps_the_contract_by_tokens(by_tokens: OpenAIEngine) -> None:
    assert by_tokens.report.tells_tokens == "logprobs"
    assert by_tokens.capabilities.has("fork")
    assert check_engine(by_tokens, max_tokens=8).failed == ()


def test_a_text_that_is_gone_on_with_is_the_text_itself(by_tokens: OpenAIEngine) -> None:
    """Its first tokens, sent as they came, go on as they went on."""
    root = by_tokens.root(ttc.Problem.ask("What is the capital of France?"), "policy")

    def said(branch: Branch, most: int) -> Branch:
        greedy = Sampling(temperature=0)
        asked = Request(branch=branch, max_tokens=most, sampling=greedy, seed=1)
        return by_tokens.submit(asked).future.result(SECONDS)

    whole = said(root, 8)
    rest = said(by_tokens.cut(whole, root.num_tokens + 3), 5)

    assert rest.token_ids == (whole.token_ids or ())[3:]


def test_a_search_runs_on_it(by_tokens: OpenAIEngine) -> None:
    outcome = ttc.solve(
        "What is 2 + 3?",
        "beam_search(num_beams=2, max_steps=2, verifier=mean_logprob()) >> vote()",
        model=by_tokens,
        budget=Budget(tokens=600),
        seed=0,
    )

    assert 0 < outcome.usage.tokens <= 600
    assert {c.status for c in outcome.candidates} <= {"finished", "truncated", "failed"}
