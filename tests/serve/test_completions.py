"""Completions: a raw prompt, n, stop, echo, and what a model thinks of given text."""

import zlib
from collections.abc import Iterator
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
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
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
