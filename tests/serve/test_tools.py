"""Tools: told to the model, never run; calls are returned, and candidates vote by them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ttc
from tests.serve.lab import ASKED, Served, serving
from ttc import Problem
from ttc.messages import Message
from ttc.testing import FakeEngine

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["place"],
        },
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Rome", "days": 2}}\n</tool_call>'
SAME = '<tool_call>{"arguments": {"days": 2.0, "place": "Rome"}, "name": "weather"}</tool_call>'
OTHER = '<tool_call>{"name": "weather", "arguments": {"place": "Oslo"}}</tool_call>'
BAD = '<tool_call>{"name": "weather", "arguments": {"place": "Rome"</tool_call>'


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(FakeEngine(CALL)) as server:
        yield server


def _message(server: Served, **body: Any) -> dict[str, Any]:
    reply = server.post(tools=[WEATHER], **body).json()
    choice: dict[str, Any] = reply["choices"][0]
    return {**choice["message"], "finish_reason": choice["finish_reason"]}


def test_a_call_is_returned(served: Served) -> None:
    message = _message(served)
    (call,) = message["tool_calls"]

    assert (message["content"], message["finish_reason"]) == (None, "tool_calls")
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"place": "Rome", "days": 2}
    assert call["id"]
    assert '"description": "The weather of a place."' in served.engine.requests[-1].branch.text


def _streamed(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pieces of calls."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return [call for delta in deltas for call in delta.get("tool_calls", ())]


def test_a_call_is_streamed_as_its_name_and_then_its_arguments(served: Served) -> None:
    chunks = served.chunks(tools=[WEATHER])
    name, arguments = _streamed(chunks)

    assert (name["index"], name["type"], name["function"]) == (
        0,
        "function",
        {"name": "weather", "arguments": ""},
    )
    assert arguments == {"index": 0, "function": {"arguments": '{"place": "Rome", "days": 2}'}}
    assert "<tool_call>" not in json.dumps(chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_words_are_streamed_until_a_call_may_begin() -> None:
    """Token by token; what is held back and turns out to be no call follows."""
    with serving(FakeEngine(f"Let me look.\n{CALL}", seconds_per_token=0.01)) as server:
        called = server.chunks(tools=[WEATHER])
    with serving(FakeEngine("1 <tool", seconds_per_token=0.01)) as server:
        plain = server.chunks(tools=[WEATHER])
    said = [
        [c["delta"]["content"] for one in chunks for c in one["choices"] if "content" in c["delta"]]
        for chunks in (called, plain)
    ]

    assert said == [["Let", " me", " look."], ["1", " <tool"]]
    assert len(_streamed(called)) == 2
    assert [one[-1]["choices"][0]["finish_reason"] for one in (called, plain)] == [
        "tool_calls",
        "stop",
    ]


def test_the_sdk_reads_calls(served: Served) -> None:
    with served.client() as client:
        whole = client.chat.completions.create(model="fake", messages=ASKED, tools=[WEATHER])
        with client.chat.completions.stream(
            model="fake", messages=ASKED, tools=[WEATHER]
        ) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()

    call = whole.choices[0].message.tool_calls[0]
    assert call.function.name == "weather"
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments
    assert "tool_calls.function.arguments.done" in kinds


def test_a_conversation_goes_on_with_a_tools_answer(served: Served) -> None:
    with served.client() as client:
        first = client.chat.completions.create(model="fake", messages=ASKED, tools=[WEATHER])
        message = first.choices[0].message
        answer = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
        client.chat.completions.create(
            model="fake", messages=[*ASKED, message, answer], tools=[WEATHER]
        )

    assert served.engine.requests[-1].branch.text.endswith("tool: sunny\n")


def test_candidates_vote_by_what_they_call() -> None:
    """However it is written: order of keys, 2.0 for 2, another wording around it."""
    replies = [OTHER, CALL, f"Let me look.\n{SAME}", BAD, "I do not know."]
    engine = FakeEngine(replies, in_order=True)
    with serving(engine) as server:
        message = _message(server, model="fake@sample(n=5) >> vote()")
    problem = Problem(messages=(Message(role="user", content="x"),), tools=(WEATHER,))
    outcome = ttc.solve(
        problem,
        "sample(n=5) >> vote()",
        model=FakeEngine(replies, in_order=True),
    )

    assert json.loads(message["tool_calls"][0]["function"]["arguments"])["place"] == "Rome"
    assert outcome.confidence == 2 / 5
    assert outcome.answer == '["[\\"weather\\",{\\"days\\":2,\\"place\\":\\"Rome\\"}]"]'


def test_several_calls_are_kept_apart() -> None:
    """SO-04."""
    with serving(FakeEngine(f"{CALL}\n{OTHER}")) as server:
        both = _message(server)
        one = _message(server, parallel_tool_calls=False)
        streamed = server.chunks(tools=[WEATHER])

    assert [json.loads(call["function"]["arguments"])["place"] for call in both["tool_calls"]] == [
        "Rome",
        "Oslo",
    ]
    assert len({call["id"] for call in both["tool_calls"]}) == 2
    assert len(one["tool_calls"]) == 1
    assert [call["index"] for call in _streamed(streamed)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "said", [BAD, CALL.replace("weather", "format_disk"), "It is sunny.", '{"place": "Rome"}']
)
def test_what_is_no_good_call_is_text(said: str) -> None:
    """SO-01: nothing is mended, and nothing is guessed."""
    with serving(FakeEngine(said)) as server:
        message = _message(server)

    assert "tool_calls" not in message
    assert (message["content"], message["finish_reason"]) == (said, "stop")


def test_a_call_that_was_cut_is_no_call() -> None:
    """SO-01."""
    with serving(FakeEngine(CALL)) as server:
        message = _message(server, max_tokens=4)

    assert "tool_calls" not in message
    assert message["finish_reason"] == "length"


def test_a_strict_tool_takes_only_what_its_schema_allows() -> None:
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    wrong = CALL.replace('"Rome"', "5")
    with serving(FakeEngine([CALL, wrong], in_order=True)) as server:
        good = server.post(tools=[strict]).json()["choices"][0]
        bad = server.post(tools=[strict]).json()["choices"][0]

    assert (good["finish_reason"], bad["finish_reason"]) == ("tool_calls", "stop")


def test_a_model_that_may_not_call_is_not_told_of_tools(served: Served) -> None:
    message = _message(served, tool_choice="none")

    assert "tool_calls" not in message
    assert "description" not in served.engine.requests[-1].branch.text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{}] * 129}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, "tool_choice"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "other"}},
            },
            "tool_choice",
        ),
        ({"tools": [WEATHER], "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_cannot_be_served_is_refused(served: Served, body: dict[str, Any], param: str) -> None:
    assert served.fault(**body)["param"] == param


@contextmanager
def _in_lines(*said: str) -> Iterator[Served]:
    """A model whose chat template knows no tools."""
    engine = FakeEngine(list(said), in_order=True)
    engine.call_form = "react"  # type: ignore[attr-defined]
    with serving(engine) as server:
        yield server


def test_a_model_whose_template_knows_no_tools_is_told_in_lines() -> None:
    """ReAct: it is told the form, its action is a call, and a result is an observation."""
    acts = 'Thought: I look.\nAction: weather\nAction Input: {"place": "Rome"}\nObservation: "sun"'
    with _in_lines(acts, "Thought: I know.\nFinal Answer: It is sunny.") as server:
        called = _message(server)
        told = server.engine.requests[-1].branch.text
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "sunny"}
        turns = [*ASKED, {k: v for k, v in called.items() if k != "finish_reason"}, result]
        end = _message(server, messages=turns)
        heard = server.engine.requests[-1].branch.text

    assert "- weather: The weather of a place. Input: {" in told
    assert (called["content"], called["finish_reason"]) == ("Thought: I look.", "tool_calls")
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"place": "Rome"}
    assert 'Action: weather\nAction Input: {"place": "Rome"}\nuser: Observation: "sunny"\n' in heard
    assert (end["content"], end["finish_reason"]) == ("It is sunny.", "stop")


def test_calls_in_lines_are_voted_on_and_streamed() -> None:
    """As those in a model's own form are; a turn that is a call's JSON alone is one, too."""
    acts = 'Action: weather\nAction Input: {"days": 2.0, "place": "Rome"}'
    bare = '{"name": "weather", "arguments": {"place": "Rome", "days": 2}}'
    with _in_lines(acts, "Final Answer: No.", bare) as server:
        voted = _message(server, model="fake@sample(n=3) >> vote()")
        chunks = server.chunks(tools=[WEATHER])

    assert json.loads(voted["tool_calls"][0]["function"]["arguments"])["days"] == 2
    assert [call["function"].get("name") for call in _streamed(chunks)] == ["weather", None]
