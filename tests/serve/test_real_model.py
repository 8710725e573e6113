"""The server on SmolLM2-135M: the real engine, its grammar, its cache, its log probabilities."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import ttc
from tests.serve.lab import eventually
from ttc import Problem
from ttc.engine.local import load
from ttc.messages import Message
from ttc.ports import Engine
from ttc.serve import App, Keys, Service, Settings, background

pytestmark = pytest.mark.model

QUESTION = "What is 7 + 5? Answer with a number."
ASKED = [{"role": "user", "content": QUESTION}]
SECRETS = {name: f"{name}-{name}-{name}-{name}" for name in ("alice", "bobby", "carol")}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("smollm2-135m")


@pytest.fixture(scope="module")
def url(engine: Engine) -> Iterator[str]:
    keys = Keys.read(None, ",".join(f"{name}={secret}" for name, secret in SECRETS.items()))
    service = Service({"smollm2": engine}, settings=Settings())
    with background(App(service, keys)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    import openai

    with openai.OpenAI(base_url=url, api_key=SECRETS["alice"], max_retries=0) as client:
        yield client


def _ask(client: Any, **body: Any) -> Any:
    given = {"model": "smollm2", "messages": ASKED, "seed": 3, "max_tokens": 24, **body}
    return client.chat.completions.create(**given)


def test_http_gives_what_python_gives(client: Any, engine: Engine) -> None:
    """Byte for byte."""
    spec = "self_consistency(n=3, max_tokens=24)"
    problem = Problem(messages=(Message(role="user", content=QUESTION),))
    outcome = ttc.solve(problem, spec, model=engine, seed=3)
    reply = _ask(client, model=f"smollm2@{spec}")

    assert reply.choices[0].message.content == (outcome.text or "")
    assert reply.usage.total_tokens == outcome.usage.tokens


def test_a_stream_says_what_a_whole_reply_says(client: Any) -> None:
    whole = _ask(client).choices[0]
    chunks = list(_ask(client, stream=True))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]

    assert "".join(pieces) == whole.message.content
    assert sum(map(bool, pieces)) > 1
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_a_form_is_held_to(client: Any) -> None:
    """SO-02."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 1, "maximum": 10}},
        "required": ["x"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    plain = _ask(client, response_format=form, max_tokens=40)
    several = _ask(
        client, model="smollm2@sample(n=2) >> vote()", response_format=form, max_tokens=40
    )

    for reply in (plain, several):
        assert reply.choices[0].finish_reason == "stop"
        assert 1 <= json.loads(reply.choices[0].message.content)["x"] <= 10


def test_a_form_that_is_cut_is_not_mended(client: Any) -> None:
    """SO-01."""
    choice = _ask(client, response_format={"type": "json_object"}, max_tokens=2).choices[0]

    assert choice.finish_reason == "length"
    with pytest.raises(ValueError, match=r".+"):
        json.loads(choice.message.content)


def test_log_probabilities_are_the_engines(client: Any) -> None:
    choice = _ask(client, logprobs=True, top_logprobs=2, temperature=0, max_tokens=8).choices[0]
    tokens = choice.logprobs.content

    assert "".join(token.token for token in tokens) == choice.message.content
    for token in tokens:  # greedy: each is the most probable one
        assert token.logprob == token.top_logprobs[0].logprob
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob


def test_given_text_is_read(client: Any) -> None:
    """What lm-evaluation-harness asks for."""
    reply = client.completions.create(
        model="smollm2", prompt="The sky is blue.", max_tokens=1, echo=True, logprobs=1
    )
    told = reply.choices[0].logprobs

    assert "".join(told.tokens) == reply.choices[0].text
    assert told.token_logprobs[0] is None
    assert all(logprob < 0 for logprob in told.token_logprobs[1:])
    assert len(told.top_logprobs[2]) == 1


def test_a_key_finds_its_own_cache_and_no_others(url: str) -> None:
    import openai

    long = "Tell me of the number " + " ".join(map(str, range(150)))
    cached = []
    for name in ("bobby", "bobby", "carol"):
        with openai.OpenAI(base_url=url, api_key=SECRETS[name]) as client:
            usage = _ask(client, messages=[{"role": "user", "content": long}], max_tokens=1).usage
            cached.append(usage.prompt_tokens_details.cached_tokens)

    assert cached[0] == cached[2] == 0
    assert cached[1] > 100


def test_a_client_that_leaves_ends_its_branches(client: Any, engine: Any) -> None:
    """KV-04."""
    stream = _ask(
        client, model="smollm2@self_consistency(n=4)", stream=True, max_tokens=400, temperature=None
    )
    assert eventually(lambda: engine.num_live >= 1)
    stream.close()

    assert eventually(lambda: engine.num_live == 0, 5.0)
