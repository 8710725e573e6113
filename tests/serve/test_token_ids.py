"""Token ids: `return_token_ids` and `return_tokens_as_token_ids`, as vLLM names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.lab import ASKED, SAID, Served, serving
from ttc.ports import Capabilities
from ttc.testing import FakeEngine
from ttc.testing.words import ids_of

PATHS = ("/chat/completions", "/completions")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    named = {"cued": "budget_forcing(max_thinking=2, max_tokens=20, ends='.') >> vote()"}
    with serving(named=named) as server:
        yield server


def _asked(path: str) -> dict[str, Any]:
    return {"messages": ASKED} if "chat" in path else {"prompt": "zero"}


@pytest.mark.parametrize("path", PATHS)
def test_a_reply_tells_the_tokens_of_prompt_and_answer(served: Served, path: str) -> None:
    reply = served.post(path, **_asked(path), seed=1, return_token_ids=True).json()
    choice, made = reply["choices"][0], served.engine.requests[-1].branch
    text = choice["message"]["content"] if "chat" in path else choice["text"]
    prompt = reply if "chat" in path else choice

    assert choice["token_ids"] == list(ids_of(text))
    assert prompt["prompt_token_ids"] == list(made.token_ids or ())
    assert reply["usage"]["completion_tokens"] == len(choice["token_ids"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("model", ["fake", "fake@self_consistency(n=3)"])
def test_a_stream_tells_the_tokens_of_a_whole_reply(served: Served, path: str, model: str) -> None:
    body = {**_asked(path), "model": model, "seed": 1, "return_token_ids": True}
    whole = served.post(path, **body).json()
    chunks = served.chunks(path, **body)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    firsts = [owner for owner in (*chunks, *choices) if "prompt_token_ids" in owner]
    ids = [token for choice in choices for token in choice.get("token_ids", ())]

    assert ids == whole["choices"][0]["token_ids"]
    owner = whole if "chat" in path else whole["choices"][0]
    assert [first["prompt_token_ids"] for first in firsts] == [owner["prompt_token_ids"]]


def test_pieces_and_their_tokens_come_together(served: Served) -> None:
    chunks = served.chunks(seed=1, return_token_ids=True, logprobs=True)
    choices = [chunk["choices"][0] for chunk in chunks[:-1]]

    for choice in choices:
        assert choice["token_ids"] == list(ids_of(choice["delta"]["content"]))
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])


def test_a_thought_is_told_by_its_tokens() -> None:
    """They are what the model wrote; in a completion the text is, too."""
    said = "<think>Well.</think>\n\nIt is 4."
    with serving(FakeEngine(said)) as server:
        chat = server.post(return_token_ids=True, logprobs=True).json()["choices"][0]
        raw = server.post("/completions", prompt="?", return_token_ids=True).json()["choices"][0]
        chunks = server.chunks(return_token_ids=True)

    streamed = [t for chunk in chunks for t in chunk["choices"][0].get("token_ids", ())]
    assert (chat["message"]["content"], raw["text"]) == ("It is 4.", said)
    assert chat["token_ids"] == raw["token_ids"] == streamed == list(ids_of(said))
    assert len(chat["logprobs"]["content"]) < len(chat["token_ids"])


def test_what_a_strategy_writes_into_an_answer_is_among_its_tokens(served: Served) -> None:
    choice = served.post(model="fake@cued", seed=1, return_token_ids=True).json()["choices"][0]
    thought, cue, answer = choice["message"]["content"].partition("\nThe final answer is")
    parts = (thought.removesuffix("."), ".", cue, answer)

    assert all(parts)
    assert choice["token_ids"] == [token for part in parts for token in ids_of(part)]


def test_an_answer_on_another_prompt_has_no_tokens() -> None:
    """Its own ones would go on from a prompt that the client has never seen."""
    said = ["It is 4.", "It is 5.", "So it is 4."]
    with serving(FakeEngine(said)) as server:
        graph = "sample(n=2, max_tokens=9) >> recursive_aggregation(size=2, rounds=1) >> vote()"
        reply = server.post(model=f"fake@{graph}", seed=1, return_token_ids=True)

    assert reply.json()["choices"][0]["token_ids"] is None
    assert reply.json()["prompt_token_ids"]


def test_a_model_without_tokens_refuses_to_tell_them() -> None:
    engine = FakeEngine(SAID)
    engine.capabilities = Capabilities()
    with serving(engine) as server:
        assert server.fault(return_token_ids=True)["param"] == "return_token_ids"


def test_tokens_are_named_by_their_ids_on_request(served: Served) -> None:
    """Many a token is a part of a character, and several of them look alike."""
    body: dict[str, Any] = {"logprobs": True, "return_tokens_as_token_ids": True, "seed": 1}
    reply = served.post(**body).json()["choices"][0]
    names = [entry["token"] for entry in reply["logprobs"]["content"]]
    raw = served.post("/completions", prompt="zero", **{**body, "logprobs": 0}).json()["choices"][0]

    assert names == [f"token_id:{token}" for token in ids_of(reply["message"]["content"])]
    assert raw["logprobs"]["tokens"] == [f"token_id:{token}" for token in ids_of(raw["text"])]
