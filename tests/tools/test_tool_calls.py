"""Reading calls out of what models write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.tool_calls import (
    BadCall,
    CallDelta,
    Form,
    call_schema,
    canonical,
    form_of,
    join_deltas,
    read_arguments,
    read_turn,
)
from ttc.types import ToolCall


def described(name: str, **parameters: str) -> dict[str, Any]:
    """A tool, as chat APIs describe it, with a type for each parameter."""
    properties = {key: {"type": type_} for key, type_ in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [described("add", a="number", b="number"), described("python", code="string")]
ADD = ToolCall(name="add", arguments={"a": 1, "b": 2})
AS_JSON = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
FORMS: tuple[Form, ...] = ("hermes", "xml", "llama", "mistral", "react")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", f"<tool_call>\n{AS_JSON}\n</tool_call>"),
        ("hermes", f"<tool_call>{AS_JSON}"),
        ("hermes", AS_JSON),
        ("hermes", f"```json\n{AS_JSON}\n```"),
        ("hermes", f"<think>{AS_JSON}</think>\n<tool_call>{AS_JSON}</tool_call>"),
        (
            "xml",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n"
            "</parameter>\n</function>\n</tool_call>",
        ),
        ("llama", '{"name": "add", "parameters": {"a": 1, "b": 2}}'),
        ("llama", '<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": 2}}'),
        ("llama", "<|python_tag|>add.call(a=1, b=2)"),
        ("mistral", f"[TOOL_CALLS] [{AS_JSON}]"),
        ("mistral", f"[{AS_JSON}]"),
        ("mistral", '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}'),
        ("mistral", 'add{"a": 1, "b": 2}'),
        ("react", 'Thought: I add.\nAction: add\nAction Input: {"a": 1, "b": 2}\nObservation: 9'),
        ("react", 'Action: add[{"a": 1, "b": 2}]'),
    ],
)
def test_every_family_s_form_is_read(form: Form, text: str) -> None:
    """With its marks, and where these spell no text."""
    assert read_turn(text, form, TOOLS).calls == (ADD,)


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("<tool_call>\n{{ call | tojson }}\n</tool_call>", "hermes"),
        ("<tool_call><function=", "xml"),
        ("<|python_tag|>", "llama"),
        ('<|start_header_id|>ipython "parameters"', "llama"),
        ("[TOOL_CALLS]", "mistral"),
        ("<|im_start|>", "react"),
        (None, "react"),
    ],
)
def test_the_template_says_which_form_a_model_writes(template: str | None, form: str) -> None:
    """ReAct where it knows no tools."""
    assert form_of(template) == form


def test_parallel_calls_are_kept_apart_however_they_are_glued() -> None:
    """SO-04: the border is the end of an object, also where a text spells it."""
    odd = '{"name": "add", "arguments": {"a": "}{</tool_call>", "b": 2}}'
    glued = read_turn(f"<tool_call>{AS_JSON}{odd}</tool_call>Yes.", "hermes", TOOLS)
    apart = read_turn(f"Two: <tool_call>{AS_JSON}</tool_call><tool_call>{odd}", "hermes", TOOLS)

    assert [call.name for call in glued.calls] == ["add", "add"]
    assert glued.calls == apart.calls
    assert isinstance(glued.calls[1], ToolCall)
    assert glued.calls[1].arguments["a"] == "}{</tool_call>"
    assert (glued.content, apart.content) == ("Yes.", "Two:")


def test_pieces_without_index_and_id_are_two_calls_where_two_objects_end() -> None:
    """SO-04: names are not merged, and JSON is not joined."""
    pieces = [("get", None), (None, '{"q":"a"}'), ("get", None), (None, '{"q":"b"}')]
    deltas = [CallDelta(index=0, name=n, arguments=a) for n, a in pieces]
    split = [CallDelta(index=0, name="get", arguments='{"q":"}'), CallDelta(arguments='{"}')]

    expected = [ToolCall(name="get", arguments={"q": q}) for q in "ab"]
    assert list(join_deltas(deltas)) == expected
    assert join_deltas([CallDelta(name="get", arguments='{"q":"a"}{"q":"b"}')]) == tuple(expected)
    assert join_deltas(split) == (ToolCall(name="get", arguments={"q": "}{"}),)


def test_pieces_that_come_interleaved_are_put_in_order_of_their_index() -> None:
    """SO-04: with ids."""
    deltas = [
        CallDelta(index=1, id="y", name="g", arguments='{"b"'),
        CallDelta(index=0, id="x", name="f", arguments='{"a"'),
        CallDelta(index=1, arguments=": 2}"),
        CallDelta(index=0, id="x", arguments=": 1}"),
    ]

    assert join_deltas(deltas) == (
        ToolCall(name="f", arguments={"a": 1}, id="x"),
        ToolCall(name="g", arguments={"b": 2}, id="y"),
    )


def test_pieces_that_are_no_call_are_told_as_bad_ones() -> None:
    """Cut in the middle, or without a name."""
    cut, nameless = join_deltas(
        [
            CallDelta(index=0, id="x", name="f", arguments='{"a": '),
            CallDelta(index=1, arguments="{}"),
        ]
    )

    assert isinstance(cut, BadCall)
    assert (cut.name, cut.id) == ("f", "x")
    assert isinstance(nameless, BadCall)


@pytest.mark.parametrize(
    "given",
    ['{"a": 1}', {"a": 1}, '"{\\"a\\": 1}"', ' {"a": 1}\n'],
)
def test_arguments_may_be_encoded_twice(given: object) -> None:
    assert read_arguments(given) == {"a": 1}


@pytest.mark.parametrize("given", [None, "", "  ", "null", {}])
def test_no_arguments_are_none(given: object) -> None:
    assert read_arguments(given) == {}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("[1]", "arguments are a JSON object"),
        ("{'a': 1}", "no JSON"),
        ('{"a": 1,}', "no JSON"),
        ('{"a": NaN}', "NaN is no JSON"),
        ('{"a": 1e999}', "beyond a float"),
        ('{"a": 1, "a": 2}', "comes twice"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"a": 1} {"b": 2}', "follows the JSON"),
        ("[" * 100_000, "nested too deep"),
        ('"\\"{}\\""', "arguments are a JSON object"),
        ("__import__('os').getpid()", "no JSON"),
    ],
)
def test_malformed_arguments_are_refused_and_never_repaired(given: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_arguments(given)


@pytest.mark.parametrize(
    ("form", "text", "name"),
    [
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a": 1,}}</tool_call>', "add"),
        ("hermes", '<tool_call>{"name": "add", "arguments": {"a"', "add"),
        ("hermes", f"<tool_call>{AS_JSON}}}</tool_call>", "add"),
        ("hermes", "<tool_call>add(1, 2)</tool_call>", None),
        ("hermes", '{"name": "add", "arguments": {"a": 1', "add"),
        ("llama", "<|python_tag|>", None),
        ("mistral", "[TOOL_CALLS]", None),
        ("react", "Action: add\nAction Input: 1 and 2", "add"),
        ("react", "Action: add", "add"),
    ],
)
def test_what_was_meant_as_a_call_is_told_with_its_fault(
    form: Form, text: str, name: str | None
) -> None:
    """In its place, so that it can be answered."""
    tools = TOOLS[:1]
    (bad,) = read_turn(text, form, tools).calls

    assert isinstance(bad, BadCall)
    assert (bad.name, bool(bad.reason)) == (name, True)


@pytest.mark.parametrize(
    "text",
    [
        "The sum is 3.",
        '{"name": "Bob", "age": 3}',
        f"I would say {AS_JSON}.",
        "{}",
        f"<think>{AS_JSON}",
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_is_no_call(form: Form, text: str) -> None:
    """Neither JSON of something else, nor a call that is spoken of, nor one in a thought."""
    assert read_turn(text, form, TOOLS).calls == ()


def test_a_program_is_for_the_tool_that_runs_such() -> None:
    """Llama 3 after its mark; ReAct as plain text, with or without a fence."""
    expected = (ToolCall(name="python", arguments={"code": "print(1)"}),)

    assert read_turn("<|python_tag|>print(1)", "llama", TOOLS).calls == expected
    react = "Action: python\nAction Input:\n```python\nprint(1)\n```\nObservation: 1"
    assert read_turn(react, "react", TOOLS).calls == expected


@pytest.mark.parametrize(
    "text", ["Thought: so.\nFinal Answer: 3", "Thought: so.\nAction: Finish[3]"]
)
def test_react_says_what_is_final(text: str) -> None:
    """And imagines nothing behind it."""
    turn = read_turn(f"{text}\nObservation: no\nAction: add[1]", "react", TOOLS)

    assert (turn.content, turn.final, turn.calls) == ("Thought: so.", "3", ())


def test_calls_are_compared_by_name_and_canonical_arguments() -> None:
    """Order, spelling of numbers and what is ignored make no difference; a type does."""
    call = ToolCall(name="f", arguments={"b": 2.0, "a": [1, {"y": 1, "x": 2}]})
    same = ToolCall(name="f", arguments={"a": [1.0, {"x": 2, "y": 1}], "b": 2}, id="other")
    timed = ToolCall(name="f", arguments={**same.arguments, "at": "10:31"})

    assert canonical(call) == canonical(same) == canonical(timed, ignoring={"at"})
    assert canonical(call) != canonical(timed)
    text = ToolCall(name="f", arguments={**same.arguments, "b": "2"})
    assert canonical(text) != canonical(same)
    assert canonical(ToolCall(name="f", arguments={"b": True})) != canonical(
        ToolCall(name="f", arguments={"b": 1})
    )


@pytest.mark.parametrize("form", ["hermes", "llama", "mistral"])
def test_a_turn_that_is_a_call_of_no_tool_can_be_answered(form: Any) -> None:
    """A small model makes up a name, and forgets the tags; what only looks like it is an answer."""
    call = '{"name": "double", "arguments": {"x": 2}}'
    for text in (call, f"```json\n{call}\n```", f"[{call}]"):
        assert read_turn(text, form, TOOLS).calls == (ToolCall(name="double", arguments={"x": 2}),)
    for text in ('{"name": "Ann"}', '{"name": "Ann", "arguments": 3}', f"{call} is it."):
        assert read_turn(text, form, TOOLS).calls == ()


def test_a_schema_of_calls_names_tools_and_their_arguments() -> None:
    schema = call_schema(TOOLS, "parameters")

    assert [part["properties"]["name"]["const"] for part in schema["anyOf"]] == ["add", "python"]
    assert schema["anyOf"][0]["required"] == ["name", "parameters"]
    assert call_schema(TOOLS[:1]) == call_schema(TOOLS)["anyOf"][0]


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.text(max_size=20)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
_calls = st.builds(
    ToolCall,
    name=st.sampled_from(["add", "python", "unknown"]),
    arguments=st.dictionaries(
        st.text(max_size=8) | st.sampled_from(["<|python_tag|>", "</tool_call>", "[TOOL_CALLS]"]),
        _values,
        max_size=3,
    ),
)
WRITERS: dict[Form, Callable[[list[str]], str]] = {
    "hermes": lambda each: "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in each),
    "llama": lambda each: "<|python_tag|>" + "; ".join(each),
    "mistral": lambda each: f"[TOOL_CALLS][{', '.join(each)}]",
}


@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=40)
@given(calls=st.lists(_calls, min_size=1, max_size=3))
def test_calls_that_are_written_are_read_back(form: Form, calls: list[ToolCall]) -> None:
    """Whatever their texts spell, marks included."""
    written = [json.dumps({"name": c.name, "arguments": c.arguments}) for c in calls]

    assert list(read_turn(WRITERS[form](written), form, TOOLS).calls) == calls


_PIECES = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<function=add>",
    "</think>",
    "<parameter=a>",
    AS_JSON,
    "{",
    "}",
    '"',
    "[",
    "]",
    "\n",
    "Action: ",
    "add",
    "Action Input:",
    "Final Answer:",
    "Observation:",
    "add.call(",
    ")",
    "[ARGS]",
    "\\",
    "\x00",
    "\ud800",
]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=40)
@given(pieces=st.lists(st.sampled_from(_PIECES) | st.text(max_size=4), max_size=12))
def test_no_text_is_a_fault_of_the_reader(form: Form, pieces: list[str]) -> None:
    """Whatever a model writes is words, calls or bad calls."""
    turn = read_turn("".join(pieces), form, TOOLS)

    assert all(isinstance(call, ToolCall | BadCall) for call in turn.calls)
