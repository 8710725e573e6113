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


def test_streamed_log_probabilities_are_those_of_a_whole_reply(client: Any) -> None:
    """To the bit, with what else was likely, though it is found out while the text is written."""
    body: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "max_tokens": 12, "seed": 5}
    whole = _ask(client, **body).choices[0].logprobs.content
    told = [c.choices[0].logprobs for c in _ask(client, stream=True, **body)]
    deltas = [one.content for one in told if one]

    assert [token.model_dump() for one in deltas for token in one] == [
        t.model_dump() for t in whole
    ]
    assert len(deltas) > 1


def test_a_bias_forbids_a_token_and_forces_one(client: Any, engine: Any) -> None:
    def said(**bias: float) -> str:
        body = {"max_tokens": 3, "temperature": 0, "logit_bias": bias}
        return str(_ask(client, **body).choices[0].message.content)

    root = engine.root(Problem(prompt=said()), "policy")
    (sea,) = engine.append(root, " sea", as_token=True).token_ids
    assert said(**{str(root.token_ids[0]): -100}) != root.text
    assert said(**{str(sea): 100}) == " sea sea sea"
    with pytest.raises(Exception, match=f"no {engine.vocab_size}"):
        said(**{str(engine.vocab_size): 1})


CITIES = {"weather": ["Rome", "Oslo"], "population": ["Paris", "Lima"]}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Tells {name} of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": cities}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    for name, cities in CITIES.items()
]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("required", {"weather", "population"}),
        ({"type": "function", "function": {"name": "population"}}, {"population"}),
    ],
)
def test_a_call_that_was_asked_for_comes_whatever_the_model_wants(
    client: Any, chosen: Any, names: set[str]
) -> None:
    """Hot, and of a question that needs no tool; by a strategy as well."""
    body: dict[str, Any] = {"tools": TOOLS, "tool_choice": chosen, "max_tokens": 40, "n": 2}
    plain = _ask(client, temperature=2, **body).choices
    voted = _ask(client, model="smollm2@sample(n=2) >> vote()", **{**body, "n": 1}).choices
    for choice in (*plain, *voted):
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, call.function.name in names) == ("tool_calls", True)
        assert json.loads(call.function.arguments)["city"] in CITIES[call.function.name]


def test_token_prompts_are_measured_as_a_harness_reads_them(client: Any, engine: Any) -> None:
    """As lm-evaluation-harness cuts a reply: a batch of ids, its last token left out.

    The greedy continuation is found to be greedy, and each sum is the engine's own.
    """
    root = engine.root(Problem(prompt="The sea is"), "policy")
    greedy = client.completions.create(
        model="smollm2", prompt="The sea is", max_tokens=4, temperature=0
    )
    ends = [greedy.choices[0].text, " not purple."]
    whole = [engine.append(root, text) for text in ends]
    reply = client.completions.create(
        model="smollm2",
        prompt=[[*root.token_ids, *one.token_ids] for one in whole],
        max_tokens=1,
        temperature=0,
        logprobs=1,
        seed=1234,
        echo=True,
    )

    scores = engine.score(root, whole).future.result()
    for choice, branch, own, is_greedy in zip(
        reply.choices, whole, scores, (True, False), strict=True
    ):
        told, start = choice.logprobs, root.num_tokens
        assert len(told.token_logprobs) == branch.num_tokens + 1
        assert tuple(told.token_logprobs[start:-1]) == own
        tops = [max(top.values()) for top in told.top_logprobs[start:-1]]
        assert (tops == list(own)) == is_greedy
    assert reply.choices[0].text.startswith(f"The sea is{ends[0]}")


def test_an_end_is_a_token_of_a_raw_completion(client: Any, engine: Any) -> None:
    """Whoever cuts the last token off would else lose one of the prompt's."""
    branch = engine.root(Problem(messages=(Message(role="user", content="Say hi."),)), "policy")
    ids = [*branch.token_ids, *engine.append(branch, "Hi!").token_ids]
    (end,) = engine.append(branch, "<|im_end|>", as_token=True).token_ids
    choice = client.completions.create(
        model="smollm2",
        prompt=ids,
        max_tokens=1,
        logprobs=1,
        echo=True,
        logit_bias={str(end): 100},
    ).choices[0]

    assert choice.finish_reason == "stop"
    assert len(choice.logprobs.token_logprobs) == len(ids) + 1
    assert choice.logprobs.tokens[-1] == ""
    assert choice.text.endswith("Hi!")


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
