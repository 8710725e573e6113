"""Streams: comments until the answer is decided, content that is never revised, usage last."""

import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

import ttc
from tests.serve.lab import LONG, Served, serving
from ttc.testing import FakeEngine

SAID = ("The answer is 391.", "The answer is 401.")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(FakeEngine(SAID), named={"careful": "self_consistency(n=5)"}) as server:
        yield server


def _content(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(c["delta"].get("content") or "" for c in choices if c["index"] == index)


@pytest.mark.parametrize("model", ["fake", "fake@careful"])
def test_a_stream_says_what_a_whole_reply_says(served: Served, model: str) -> None:
    whole = served.post(model=model, seed=4, n=2).json()
    chunks = served.chunks(model=model, seed=4, n=2)
    ends = {c["index"]: c["finish_reason"] for one in chunks for c in one["choices"]}

    for choice in whole["choices"]:
        assert _content(chunks, choice["index"]) == choice["message"]["content"]
        assert ends[choice["index"]] == choice["finish_reason"]
    assert chunks[-1]["ttc"] == whole["ttc"]


def test_a_plain_sample_comes_token_by_token() -> None:
    """It is decided from the start."""
    with serving(FakeEngine("one two three four five", seconds_per_token=0.02)) as server:
        chunks = server.chunks()
    pieces = [c["delta"].get("content") for chunk in chunks for c in chunk["choices"]]

    assert [piece for piece in pieces if piece][:3] == ["one", " two", " three"]


def test_a_strategy_says_nothing_before_it_has_decided(served: Served) -> None:
    lines = served.frames(model="fake@careful", seed=1)

    assert lines[0] == ": waiting"
    assert lines[-1] == "data: [DONE]"
    assert "391" in lines[1] or "401" in lines[1]


def test_silence_is_broken_by_comments() -> None:
    engine = FakeEngine("The answer is 4.", seconds_per_token=0.1)
    with serving(engine, heartbeat_s=0.05) as server:
        lines = server.frames(model="fake@self_consistency(n=2)")

    assert lines.count(": waiting") >= 3


def test_usage_comes_once_and_last_and_only_when_asked_for(served: Served) -> None:
    without = served.chunks(model="fake@careful")
    chunks = served.chunks(model="fake@careful", stream_options={"include_usage": True})
    usages = [chunk for chunk in chunks if chunk.get("usage")]

    assert not any("usage" in chunk for chunk in without)
    assert usages == [chunks[-1]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["ttc"]["policy"]["calls"] == 5
    assert all(chunk["choices"] for chunk in chunks[:-1])


def test_progress_is_told_on_request_and_changes_nothing(served: Served) -> None:
    body: dict[str, Any] = {"model": "fake@careful", "seed": 9}
    quiet = served.chunks(**body)
    told = served.chunks(**body, ttc={"events": True})
    events = [c for c in told if "ttc" in c and "event" in c["ttc"]]

    assert _content(quiet) == _content(told)
    assert {c["ttc"]["event"] for c in events} == {
        "opened", "closed", "admitted", "call", "candidate", "decision",
    }  # fmt: skip
    assert all(len(c["choices"]) == 1 and c["choices"][0]["delta"] == {} for c in events)
    assert [e["ttc"]["tokens"] for e in events] == sorted(e["ttc"]["tokens"] for e in events)


def test_thinking_is_shown_on_request(served: Served) -> None:
    chunks = served.chunks(model="fake@careful", seed=9, ttc={"thinking": True})
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]

    assert set(thoughts) <= {f"{said}\n\n" for said in SAID} | {f"{s}\n\n" * 2 for s in SAID}
    assert {key for delta in deltas for key in delta} == {"role", "content", "reasoning_content"}


def test_a_thought_of_a_plain_sample_is_held_back() -> None:
    """Whatever the pieces are."""
    said = "<think>two and two</think>\n\nIt is 4, and </think> is a word."
    with serving(FakeEngine(said)) as server:
        hidden = server.chunks()
        shown = server.chunks(ttc={"thinking": True})
    thoughts = [c["delta"].get("reasoning_content") for one in shown for c in one["choices"]]

    assert _content(hidden) == _content(shown) == "It is 4, and </think> is a word."
    assert "".join(thought or "" for thought in thoughts) == "two and two"


def test_a_failure_after_the_first_byte_is_a_frame_without_an_end() -> None:
    """A bare cut is taken for success."""
    with serving(FakeEngine(ttc.EngineError("out of order"))) as server:
        lines = server.frames()
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]

    assert data[-1]["error"]["code"] == "engine_error"
    assert not any("finish_reason" in str(one) for one in data)
    assert "data: [DONE]" not in lines


def test_a_fault_of_ours_is_told_and_its_text_is_not(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a-secret-of-a-client")

    monkeypatch.setattr("ttc.serve.frames.choices_of", fail)
    monkeypatch.setattr("ttc.serve.app.choices_of", fail)
    lines, whole = served.frames(), served.post()

    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "internal_error"
    assert (whole.status_code, whole.json()["error"]["code"]) == (500, "internal_error")
    assert "RuntimeError" in caplog.text
    assert "a-secret-of-a-client" not in "".join(lines) + whole.text + caplog.text


def test_a_refusal_before_the_first_byte_has_its_status(served: Served) -> None:
    reply = served.post(stream=True, temperature=9)

    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "temperature"


def test_log_probabilities_are_streamed_with_their_text() -> None:
    """Token by token, a thought's left out, and in all what a whole reply says."""
    said = "<think>two and two</think> It is 4."
    with serving(FakeEngine(said, seconds_per_token=0.02)) as server:
        (whole,) = server.post(logprobs=True).json()["choices"]
        chunks = server.chunks(logprobs=True)
    deltas = [choice for chunk in chunks for choice in chunk["choices"]]
    told = [c["logprobs"]["content"] for c in deltas if c["logprobs"]]

    assert [token for tokens in told for token in tokens] == whole["logprobs"]["content"]
    assert [[token["token"] for token in tokens] for tokens in told] == [[" It"], [" is"], [" 4."]]
    assert [c["delta"]["content"] for c in deltas if c["logprobs"]] == [" It", " is", " 4."]


def test_log_probabilities_wait_where_their_text_waits() -> None:
    """For a stop that may come, and for a call that may begin."""
    body: dict[str, Any] = {"logprobs": True, "stop": [" three four"]}
    with serving(FakeEngine("one two three four", seconds_per_token=0.01)) as server:
        (whole,) = server.post(**body).json()["choices"]
        chunks = server.chunks(**body)
    told = [c["logprobs"]["content"] for one in chunks for c in one["choices"] if c["logprobs"]]

    assert [token for tokens in told for token in tokens] == whole["logprobs"]["content"]
    assert len(told) >= 2
    assert _content(chunks) == "one two"


def test_an_echoed_prompt_is_streamed_with_its_log_probabilities() -> None:
    """Before the first token, and also where no token follows."""
    engine = FakeEngine(" c d", seconds_per_token=0.01)
    engine.said.update({zlib.crc32(word.encode()): word for word in ("a", " b")})
    with serving(engine) as server:
        for most in (0, 2):
            body: dict[str, Any] = {"prompt": "a b", "echo": True, "logprobs": 0}
            body["max_tokens"] = most
            (whole,) = server.post("/completions", **body).json()["choices"]
            chunks = server.chunks("/completions", **body)
            told = [c["logprobs"] for one in chunks for c in one["choices"] if c["logprobs"]]

            assert len(told) == max(1, most)
            for name, values in whole["logprobs"].items():
                assert [value for one in told for value in one[name]] == values


def test_a_limit_ends_a_stream_with_a_length() -> None:
    with serving(FakeEngine(LONG)) as server:
        chunks = server.chunks(max_tokens=5, ttc={"budget": {"tokens": 10}})

    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
