"""Completions: a raw prompt, n, stop, echo, and what a model thinks of given text."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.serve.lab import Served, serving
from ttc.testing import FakeEngine

PATH = "/completions"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    engine = FakeEngine([" one two three", " four five"])
    engine.said.update({zlib.crc32(word.encode()): word for word in ("a", " b", " c", " d")})
    with serving(engine, named={"few": "sample() >> vote()"}) as server:
        yield server


def test_a_prompt_goes_on(served: Served) -> None:
    reply = served.post(PATH, prompt="zero", seed=0, n=3).json()

    assert reply["object"] == "text_completion"
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert {choice["text"] for choice in reply["choices"]} <= {" one two three", " four five"}
    assert served.engine.requests[-1].branch.text == "zero"


def test_a_prompt_is_streamed(served: Served) -> None:
    whole = served.post(PATH, prompt="zero", seed=0).json()["choices"][0]
    chunks = served.chunks(PATH, prompt="zero", seed=0, echo=True)
    said = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])

    assert said == f"zero{whole['text']}"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_the_sdk_reads_completions(served: Served) -> None:
    with served.client() as client:
        reply = client.completions.create(model="fake", prompt=["zero"], echo=True, stop=" three")
        pieces = list(client.completions.create(model="fake", prompt="zero", stream=True))

    assert reply.choices[0].text in ("zero one two", "zero four five")
    assert pieces[-1].choices[0].finish_reason == "stop"


def test_given_text_is_read_without_a_token_more(served: Served) -> None:
    """KV-06, and what lm-evaluation-harness asks for a log-likelihood."""
    reply = served.post(PATH, prompt="a b c d", max_tokens=0, echo=True, logprobs=0).json()
    choice = reply["choices"][0]

    assert choice["text"] == "a b c d"
    assert choice["logprobs"]["tokens"] == ["a", " b", " c", " d"]
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5, -0.5, -0.5]
    assert choice["logprobs"]["text_offset"] == [0, 1, 3, 5]
    assert reply["usage"] == {**reply["usage"], "completion_tokens": 0, "total_tokens": 4}


def test_given_text_stands_before_what_follows(served: Served) -> None:
    body: dict[str, Any] = {"prompt": "a b", "max_tokens": 1, "echo": True, "logprobs": 0}
    choice = served.post(PATH, **body).json()["choices"][0]

    assert len(choice["logprobs"]["tokens"]) == 3
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[1, 2], []]}, "prompt"),
        ({"prompt": ["a", [1, 2]]}, "prompt"),
        ({"prompt": [1, -2]}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [1, 2**32]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": "a", "logit_bias": {"7": 1}}, "logit_bias"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "suffix": "z"}, "suffix"),
        ({"prompt": "a", "logprobs": 3}, "top_logprobs"),
        ({"prompt": "a", "messages": []}, "messages"),
        ({"prompt": "a", "model": "fake@few", "echo": True, "logprobs": 0}, "echo"),
    ],
)
def test_what_is_not_served_is_refused(served: Served, body: dict[str, Any], param: str) -> None:
    """PX-01 for best_of."""
    reply = served.post(PATH, **body)

    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_a_strategy_serves_a_raw_prompt(served: Served) -> None:
    reply = served.post(PATH, model="fake@few", prompt="zero").json()

    assert reply["usage"]["ttc"]["policy"]["calls"] == 1


def test_best_of_may_be_n(served: Served) -> None:
    assert len(served.post(PATH, prompt="a", n=2, best_of=2).json()["choices"]) == 2


def _texts(served: Served, **body: Any) -> list[tuple[int, str]]:
    reply = served.post(PATH, **body).json()
    return [(choice["index"], choice["text"]) for choice in reply["choices"]]


@pytest.mark.parametrize("model", ["fake", "fake@few"])
def test_each_prompt_has_the_choices_that_it_has_alone(served: Served, model: str) -> None:
    """All of the first one come first."""
    shared: dict[str, Any] = {"model": model, "n": 3, "seed": 4, "echo": True}
    alone = [_texts(served, prompt=prompt, **shared) for prompt in ("a", " b c")]
    both = _texts(served, prompt=["a", " b c"], **shared)

    assert [text for _, text in both] == [text for choices in alone for _, text in choices]
    assert [index for index, _ in both] == list(range(6))


def test_several_prompts_are_streamed(served: Served) -> None:
    body: dict[str, Any] = {"prompt": ["a", "b"], "n": 2, "seed": 4, "echo": True}
    said: dict[int, str] = {}
    for chunk in served.chunks(PATH, **body):
        for choice in chunk["choices"]:
            said[choice["index"]] = said.get(choice["index"], "") + choice["text"]

    assert sorted(said.items()) == _texts(served, **body)


def test_a_prompt_may_be_tokens(served: Served) -> None:
    """They reach the engine as they are, and are echoed as what they spell."""
    ids = [zlib.crc32(word.encode()) for word in ("a", " b")]
    one = _texts(served, prompt=ids, seed=1, echo=True)
    first = served.engine.requests[-1].branch
    two = _texts(served, prompt=[ids, ids[::-1]], seed=1, echo=True)

    assert first.token_ids == tuple(ids)
    assert one[0][1].startswith("a b")
    assert [text[: len("a b")] for _, text in two] == ["a b", " ba"]


def test_each_prompt_is_read_by_itself(served: Served) -> None:
    """In one request, as lm-evaluation-harness sends a batch."""
    ids = [zlib.crc32(word.encode()) for word in ("a", " b", " c")]
    body: dict[str, Any] = {"max_tokens": 1, "echo": True, "logprobs": 0}
    reply = served.post(PATH, prompt=[ids, ids[:2]], **body).json()

    counts = [len(choice["logprobs"]["token_logprobs"]) for choice in reply["choices"]]
    assert counts == [3 + 1, 2 + 1]
    assert [choice["text"][:4] for choice in reply["choices"]] == ["a b ", "a b "]


def test_prompts_share_one_budget_by_what_they_need(served: Served) -> None:
    """A long one is not cut for a short one, and what holds not all of them is refused at once."""
    words = " ".join(["a"] * 40)
    body: dict[str, Any] = {"prompt": [words, "a"], "max_tokens": 4}
    enough = served.post(PATH, **body, ttc={"budget": {"tokens": 49}}).json()
    before = served.engine.calls
    fault = served.post(PATH, **body, ttc={"budget": {"tokens": 40}})

    assert [choice["finish_reason"] for choice in enough["choices"]] == ["stop", "stop"]
    assert enough["usage"]["total_tokens"] <= 49
    assert fault.json()["error"]["code"] == "budget_too_small"
    assert served.engine.calls == before


def test_a_bias_reaches_the_engine() -> None:
    engine = FakeEngine(" one")
    engine.capabilities = replace(engine.capabilities, logit_bias=True)
    with serving(engine, named={"few": "sample() >> vote()"}) as server:
        for model in ("fake", "fake@few"):
            server.post(PATH, model=model, prompt="a", logit_bias={"9": 2, "7": -100, "8": 0})

    assert [request.sampling.logit_bias for request in engine.requests] == [
        ((7, -100.0), (9, 2.0))
    ] * 2
