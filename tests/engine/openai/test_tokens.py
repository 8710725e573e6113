"""Servers that are asked by tokens: branches fork, are cut and gone on with, to the token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import ttc
from tests.engine.conftest import TEMPLATE
from tests.engine.openai.servers import QUESTION
from ttc import Budget, EngineError, Sampling
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.engine.openai import OpenAIEngine, Service, connect
from ttc.engine.texts import Texts
from ttc.ports import Request
from ttc.testing import check_engine
from ttc.testing.openai_replies import Behaviour
from ttc.testing.openai_server import Fault, OpenAIServer
from ttc.types import Branch, Chunk

SAID = "So the answer is 391."
Connect = Callable[..., AbstractContextManager[tuple[OpenAIEngine, OpenAIServer]]]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tokens: TextTokens) -> Connect:
    """An engine on a server that both have the tiny vocabulary."""

    def load(path: Path, **more: Any) -> Texts:
        return Texts(tokens, ChatTemplate(TEMPLATE, tokens, tokens.special), **more)

    monkeypatch.setattr(Texts, "load", load)

    @contextmanager
    def make(
        said: Any = SAID, *, server: dict[str, Any] | None = None, **behaviour: Any
    ) -> Iterator[tuple[OpenAIEngine, OpenAIServer]]:
        does = Behaviour(**{"tells_tokens": "token_ids", **behaviour})
        with OpenAIServer(said, behaviour=does, **{"tokens": tokens, **(server or {})}) as there:
            engine = connect(Service(model="fake", urls=(there.url,), tokenizer="."))
            assert there.join()  # what the probe asked and left
            there.asked.clear()
            yield engine, there
            engine.close()

    return make


def result(engine: OpenAIEngine, branch: Branch, on_chunk: Any = None, **more: Any) -> Branch:
    asked = {"max_tokens": 64, "sampling": Sampling(), "seed": 1, **more}
    return engine.submit(Request(branch=branch, **asked), on_chunk).future.result(20)


@pytest.mark.parametrize(("kind", "tells"), [("vllm", "token_ids"), ("llamacpp", "logprobs")])
def test_it_keeps_the_contract(served: Connect, kind: str, tells: str) -> None:
    with served(kind=kind, tells_tokens=tells) as (engine, _):
        report = check_engine(engine, QUESTION)

        assert report.failed == ()
        assert engine.capabilities.has("tokens")
        assert engine.capabilities.has("fork")
        assert engine.capabilities.has("cut")


def test_a_branch_is_gone_on_with_as_it_is(served: Connect, tokens: TextTokens) -> None:
    """The tokens that were sent and those that came, and none of them made anew."""
    with served() as (engine, server):
        root = engine.root(QUESTION, "policy")
        first = result(engine, root, max_tokens=9)
        cue = engine.append(engine.cut(first, root.num_tokens + 4), " th")
        result(engine, cue)

    prompts = [asked.body["prompt"] for asked in server.asked]
    assert prompts[0] == list(root.token_ids or ())
    assert first.token_ids == tuple(tokens.encode(SAID, after="text"))[:9]
    assert prompts[1] == [*prompts[0], *(first.token_ids or ())[:4], *tokens.encode(" th")]
    assert {asked.path for asked in server.asked} == {"/v1/completions"}


def test_an_end_is_a_token_as_well(served: Connect, tokens: TextTokens) -> None:
    end = min(tokens.end_ids)
    with served() as (engine, server):
        before = server.billed
        whole = result(engine, engine.root(QUESTION, "policy"))

        assert (whole.text, whole.finish_reason, whole.stop_reason) == (SAID, "stop", end)
        assert (whole.token_ids or ())[-1] == end
        assert whole.length == server.billed - before


def test_a_stop_string_is_found_here_and_the_call_is_left(served: Connect) -> None:
    pieces: list[Chunk] = []
    with served(server={"fault": lambda *_: Fault(pause=0.001)}) as (engine, server):
        root = engine.root(QUESTION, "policy")
        cut = result(engine, root, pieces.append, until=("answer",))
        assert server.join()

    assert cut.text == "".join(piece.text for piece in pieces) == "So the "
    assert (cut.finish_reason, cut.stop_reason) == ("stop", "answer")
    assert "stop" not in server.asked[-1].body
    assert server.hung_up == 1


@pytest.mark.parametrize("tells", ["token_ids", "logprobs"])
def test_a_search_runs_on_it_within_its_budget(served: Connect, tells: str) -> None:
    kind = "vllm" if tells == "token_ids" else "llamacpp"
    with served(kind=kind, tells_tokens=tells) as (engine, server):
        outcome = ttc.solve(
            QUESTION,
            "beam_search(num_beams=2, max_steps=2, verifier=mean_logprob()) >> vote()",
            model=engine,
            budget=Budget(tokens=900),
            seed=0,
        )

    assert outcome.answer == "391"
    assert outcome.usage.tokens <= 900
    assert all(isinstance(asked.body["prompt"], list) for asked in server.asked)


def test_tokens_whose_ids_are_lost_fail_their_call(served: Connect) -> None:
    """A server may tell one id for a character of several tokens; nothing could go on from it."""
    lost = (
        b'data: {"choices": [{"index": 0, "text": "So", "token_ids": [83]}]}\n\n'
        b'data: {"choices": [{"index": 0, "text": "", "finish_reason": "length"}],'
        b' "usage": {"prompt_tokens": 5, "completion_tokens": 3}}\n\n'
        b"data: [DONE]\n\n"
    )
    with served() as (engine, server):
        server._fault = lambda *_: Fault(raw=lost)
        with pytest.raises(EngineError, match="the ids of 1 of 3 tokens") as caught:
            result(engine, engine.root(QUESTION, "policy"), max_tokens=3)

    assert caught.value.output_tokens == 3


@pytest.mark.parametrize(
    ("behaviour", "server", "said"),
    [
        ({}, {"tokens": None}, "takes no prompts of tokens"),
        ({"tells_tokens": None}, {}, "does not tell the ids of its tokens"),
        ({"kind": "hosted"}, {}, "takes no prompts of tokens"),
    ],
)
def test_what_a_server_does_not_do_with_tokens_is_told(
    served: Connect, behaviour: dict[str, Any], server: dict[str, Any], said: str
) -> None:
    """And what to do: without a tokenizer it is asked by texts."""
    with pytest.raises(EngineError, match=said) as caught, served(server=server, **behaviour):
        pass

    assert "leave it out, and the model is asked by texts" in str(caught.value)


def test_a_vocabulary_that_is_not_the_servers_is_found_out(
    served: Connect, make_file: Callable[..., Any]
) -> None:
    """Its ids would be other words."""
    letters = make_file().metadata["tokenizer.ggml.tokens"]
    turned = [*letters[1:256], letters[0], *letters[256:]]
    other = TextTokens.from_gguf(make_file(tokens=turned))
    with (
        pytest.raises(EngineError, match="and its ids are"),
        served(server={"tokens": other}),
    ):
        pass
