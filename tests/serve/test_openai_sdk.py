"""OpenAI's own client, as applications use it, and curl."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from tests.serve.lab import ASKED, LONG, SAID, Served, eventually, serving
from ttc import Budget, EngineError
from ttc.testing import FakeEngine

CAREFUL = "fake@self_consistency(n=5)"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Any]:
    with served.client() as client:
        yield client


def test_a_call_is_answered(client: Any) -> None:
    reply = client.chat.completions.create(
        model=CAREFUL,
        messages=ASKED,
        seed=1,
        extra_body={"ttc": {"budget": {"tokens": 500}}},
    )

    assert reply.choices[0].message.content in SAID
    assert reply.usage is not None
    assert reply.usage.completion_tokens_details is not None
    assert (reply.usage.completion_tokens_details.reasoning_tokens or 0) > 0
    assert reply.model_extra is not None
    assert reply.model_extra["ttc"]["seed"] == 1


def test_a_call_is_answered_without_blocking(served: Served) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=served.url, api_key="none") as client:
            replies = await asyncio.gather(
                *(
                    client.chat.completions.create(model=CAREFUL, messages=ASKED, seed=n)
                    for n in range(8)
                )
            )
        return [reply.choices[0].message.content for reply in replies]

    assert set(asyncio.run(ask())) <= set(SAID)


@pytest.mark.parametrize("model", ["fake", CAREFUL])
def test_a_stream_is_read(client: Any, model: str) -> None:
    stream = client.chat.completions.create(
        model=model,
        messages=ASKED,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ttc": {"events": True, "thinking": True}},
    )
    chunks = list(stream)
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

    assert said in SAID
    assert chunks[-1].usage is not None


@pytest.mark.parametrize("model", ["fake", CAREFUL])
def test_the_stream_helper_gathers_it(client: Any, model: str) -> None:
    """It fails at a named event, at an empty list of choices, and at a new key of a delta."""
    with client.chat.completions.stream(
        model=model,
        messages=ASKED,
        n=2,
        logprobs=True,
        stream_options={"include_usage": True},
        extra_body={"ttc": {"events": True, "thinking": True}},
    ) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()

    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert {choice.message.content for choice in whole.choices} <= set(SAID)
    assert [choice.finish_reason for choice in whole.choices] == ["stop", "stop"]


def test_choices_and_log_probabilities_are_read(client: Any) -> None:
    reply = client.chat.completions.create(
        model="fake",
        messages=ASKED,
        n=3,
        logprobs=True,
    )

    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    for choice in reply.choices:
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        assert "".join(token.token for token in tokens) == choice.message.content


def test_errors_have_their_classes(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="fake", messages=ASKED, temperature=9)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=ASKED)

    assert bad.value.param == "temperature"


def test_a_failure_within_a_stream_is_raised() -> None:
    with serving(FakeEngine(EngineError("out of order"))) as server, server.client() as client:
        stream = client.chat.completions.create(model="fake", messages=ASKED, stream=True)
        with pytest.raises(openai.APIError, match="out of order"):
            list(stream)


def test_a_full_server_is_asked_again() -> None:
    """The SDK waits as long as `Retry-After` says, and tries again."""
    engine = FakeEngine("The answer is 4.")
    with serving(engine, concurrency=1, queue=0) as server:
        server.service.line.running = 1
        seen: list[int] = []

        def note(response: httpx2.Response) -> None:
            seen.append(response.status_code)
            server.service.line.running = 0

        http = httpx2.Client(event_hooks={"response": [note]})
        with server.client(max_retries=2, http_client=http) as client:
            reply = client.chat.completions.create(model="fake", messages=ASKED)

    assert reply.choices[0].message.content == "The answer is 4."
    assert seen == [429, 200]


def test_a_spent_budget_is_not_asked_again() -> None:
    with serving(FakeEngine(LONG), budget=Budget(tokens=20)) as server:
        before = server.service.ledger.server.spent["tokens"]
        with (
            server.client(max_retries=5) as client,
            pytest.raises(openai.RateLimitError, match="budget"),
        ):
            client.chat.completions.create(model="fake", messages=ASKED, max_tokens=100)

    assert before == server.service.ledger.server.spent["tokens"]


def test_a_stream_that_is_closed_ends_its_calls() -> None:
    engine = FakeEngine(LONG, seconds_per_token=0.01)
    with serving(engine) as server, server.client() as client:
        stream = client.chat.completions.create(
            model="fake",
            messages=ASKED,
            stream=True,
            max_tokens=1000,
        )
        next(iter(stream))
        stream.close()

        assert eventually(lambda: engine.active == 0)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is missing")
def test_curl_reads_a_stream(served: Served) -> None:
    body = json.dumps({"model": CAREFUL, "messages": ASKED, "stream": True})
    told = subprocess.run(
        ["curl", "-sN", f"{served.url}/chat/completions", "--json", body],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert told.returncode == 0
    assert told.stdout.startswith(": waiting\n\ndata: {")
    assert told.stdout.endswith("data: [DONE]\n\n")
