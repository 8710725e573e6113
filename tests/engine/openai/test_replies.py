"""What a server says of a call, and what it cannot mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ttc.engine.openai.failures import Unknown
from ttc.engine.openai.replies import Reply
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import Branch, Chunk, Sampling


def reply(*events: dict[str, Any], on_chunk: Any = None, **more: Any) -> Reply:
    """What some events come to."""
    sampling = more.pop("sampling", Sampling())
    branch = Branch(text="{}", token_ids=None)
    request = Request(branch=branch, max_tokens=50, sampling=sampling, seed=0, **more)
    made = Reply(request, on_chunk)
    for event in events:
        made.take(json.dumps(event).encode())
    return made


def said(content: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": reason, **more}
    return {"id": "a", "choices": [choice]}


def used(tokens: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 7, **more}}


def test_running_totals_are_not_added_up() -> None:
    """PX-03: 1, 2, 3, 4 and a last 4 are 4."""
    events = [{**said(f" w{n}"), **used(n), "choices": said(f" w{n}")["choices"]} for n in range(5)]

    segment = reply(*events, said("", "stop"), used(4)).segment()

    assert segment.length == 4
    assert segment.text == " w0 w1 w2 w3 w4"


def test_usage_that_nobody_told_is_unknown() -> None:
    """PX-03: and not 0."""
    segment = reply(said("a b c"), said("", "stop")).segment()

    assert segment.length is None


@pytest.mark.parametrize("tokens", [-1, "4", None, 2.5, True, 0])
def test_usage_that_cannot_be_is_unknown(tokens: Any) -> None:
    """A text has at least one token."""
    assert reply(said("a b c", "stop"), used(tokens)).segment().length is None


def test_usage_below_the_tokens_that_were_told_is_unknown() -> None:
    told = {"content": [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.2}]}

    assert reply(said("ab", "stop", logprobs=told), used(1)).segment().length is None


@pytest.mark.parametrize("odd", [float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_read_all_the_same(odd: float) -> None:
    """Some servers write them beside a text."""
    assert reply(said("ab", "stop", odd=odd)).segment().text == "ab"


def test_an_empty_reply_is_whole() -> None:
    segment = reply(said("", "stop"), used(0)).segment()

    assert (segment.text, segment.length, segment.finish_reason) == ("", 0, "stop")


def test_a_stream_that_does_not_tell_why_it_ended_was_cut() -> None:
    with pytest.raises(Unknown, match="cut before it told"):
        reply(said("The answer is 3"), used(5)).segment()


def test_an_error_in_a_stream_is_a_failure() -> None:
    with pytest.raises(Unknown, match="gave up: out of memory"):
        reply(said("The"), {"error": {"message": "out of memory"}})


@pytest.mark.parametrize("event", [b"[1]", b"nonsense", b"\xff"])
def test_what_is_no_event_is_a_failure(event: bytes) -> None:
    with pytest.raises(Unknown, match="the server sent"):
        reply().take(event)


def test_a_filter_ends_a_call_and_not_its_charge() -> None:
    with pytest.raises(EngineError, match="content_filter") as caught:
        reply(said("So", "content_filter"), used(3)).segment()

    assert caught.value.output_tokens == 3


def test_choices_that_nobody_asked_for_are_passed_over() -> None:
    other = {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}

    assert reply(said("own", "stop"), {"choices": [other]}).segment().text == "own"


def test_thoughts_are_no_text_and_count() -> None:
    thought = {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}
    made = reply(thought, said("", "stop"), used(0))

    assert made.segment().text == ""
    assert made.length is None


def test_a_stop_that_the_server_let_through_ends_the_text() -> None:
    chunks: list[Chunk] = []
    events = [said("yes\n"), said("\n"), said("more"), said("", "length")]

    segment = reply(*events, until=("\n\n",), on_chunk=chunks.append).segment()

    assert (segment.text, segment.finish_reason, segment.stop_reason) == ("yes", "stop", "\n\n")
    assert "".join(chunk.text for chunk in chunks) == "yes"


def test_pieces_join_to_the_text() -> None:
    chunks: list[Chunk] = []
    events = [said("a\n"), said("b\n"), said("c", "stop")]

    segment = reply(*events, until=("\n\n",), on_chunk=chunks.append).segment()

    assert "".join(chunk.text for chunk in chunks) == segment.text == "a\nb\nc"


def test_log_probabilities_come_in_two_forms() -> None:
    top = [{"token": "b", "logprob": -2.0}, {"token": "a", "logprob": -0.5}]
    chat = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": top}]}
    plain = {"token_logprobs": [-0.5], "top_logprobs": [{"b": -2.0, "a": -0.5}]}
    segments = [
        reply(said("a", "stop", logprobs=told), used(1), sampling=Sampling(logprobs=2)).segment()
        for told in (chat, plain)
    ]

    assert [s.logprobs for s in segments] == [(-0.5,)] * 2
    assert [s.top_logprobs for s in segments] == [((-0.5, -2.0),)] * 2


def test_cached_tokens_are_a_part_of_the_prompt() -> None:
    hit = reply(said("a", "stop"), used(1, prompt_tokens_details={"cached_tokens": 5}))
    wrong = reply(said("a", "stop"), used(1, prompt_tokens_details={"cached_tokens": 50}))

    assert (hit.usage.input_tokens, hit.usage.cached_input_tokens) == (7, 5)
    assert (wrong.usage.input_tokens, wrong.usage.cached_input_tokens) == (7, None)
