"""Tools, and calls of them, that do what nobody expects: each is data, and the run goes on."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from math import inf
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import ttc
from tests.tools.lab import add, called
from ttc import Outcome
from ttc.strategies import Agent
from ttc.testing import FakeEngine
from ttc.tool_calls import BadCall, Form, read_turn
from ttc.tools import process, schema_of, tool
from ttc.tools.process import call_in_process


class Mute(Exception):
    """Cannot even be told."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Base(BaseException):
    """No exception that anybody catches."""


@tool(effect="pure")
async def echo(value: Any = None) -> Any:
    """Gives what it is given."""
    return value


def asked(text: str, *, form: Form = "hermes") -> Outcome:
    """An agent whose model writes a turn, and then its answer."""

    def script(request: Any) -> str:
        if request.branch.parent is None:
            return text
        return "It is 4."

    agent = Agent(tools=(echo, add), calls=form, max_tokens=1_000_000)
    return ttc.solve("2 + 2?", agent, model=FakeEngine(script), seed=0)


# What a tool raises, and what it gives


@pytest.mark.parametrize(
    "error",
    [Mute(), Base(), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("is_async", [True, False])
def test_whatever_a_tool_raises_is_a_result(error: BaseException, is_async: bool) -> None:
    """At once, in the event loop and in a thread; the next call is made."""

    async def fails() -> str:
        raise error

    def fails_too() -> str:
        raise error

    made = tool(effect="pure", name="fails")(fails if is_async else fails_too)
    results = called((made, {}), (add, {"a": 1}))

    assert [result.status for result in results] == ["error", "ok"]


def test_no_number_of_calls_starts_more_processes_than_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred at the same time take turns."""
    alive: list[int] = []
    peaks: list[int] = []

    async def made(*_: Any) -> str:
        alive.append(1)
        peaks.append(len(alive))
        await asyncio.sleep(0)
        alive.pop()
        return "7"

    async def calls() -> list[str]:
        return await asyncio.gather(*(call_in_process(print, [], 9) for _ in range(100)))

    monkeypatch.setattr(process, "_called", made)
    assert asyncio.run(calls()) == ["7"] * 100
    assert max(peaks) == 16


def test_an_iterator_is_no_result() -> None:
    """It may have no end."""

    async def count() -> Any:
        return itertools.count()

    (result,) = called((tool(effect="pure")(count), {}))

    assert (result.status, "nobody knows the end" in result.text) == ("error", True)


def test_what_yields_is_no_tool() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, later):
        with pytest.raises(TypeError, match="a tool returns its result"):
            tool(effect="pure")(function)


# What a tool takes


class Point(BaseModel):
    """A part of an argument."""

    x: int = 1
    after: Point | None = None


@tool(effect="pure")
def nested(
    point: Point,
    points: dict[str, list[Point]] = {},  # noqa: B006 - pydantic copies it
    limit: float | None = inf,
    key: int | str | None = "k",
    mode: Literal["a", 1] = "a",
) -> str:
    """Tells what it was given."""
    return repr((point.x, {k: len(v) for k, v in points.items()}, limit, key, mode))


def test_nested_arguments_come_as_what_they_are_annotated_with() -> None:
    """Defaults fill in; a default that is no JSON is not told; what fits nothing is refused."""
    deep = {"point": {"x": "7", "after": {"after": {}}}, "points": {"p": [{}]}, "key": 5, "mode": 1}
    results = called(
        (nested, {"point": {}}),
        (nested, {**deep, "limit": None}),
        (nested, {"point": {"x": "y"}, "mode": "b"}),
    )

    assert results[0].text == "(1, {}, inf, 'k', 'a')"
    assert results[1].text == "(7, {'p': 1}, None, 5, 1)"
    assert "point.x: Input should be" in results[2].text
    assert "mode: Input should be" in results[2].text
    json.dumps(schema_of(nested), allow_nan=False)


@pytest.mark.parametrize("name", ["model_config", "model_dump", "_x", "json", "self"])
def test_an_argument_may_have_any_name(name: str, recwarn: pytest.WarningsRecorder) -> None:
    """Also one that a class of pydantic has, or that begins with a line."""
    space: dict[str, Any] = {}
    exec(f"def given({name}: int, other: int = 0) -> int: return {name}", space)
    made = tool(effect="pure")(space["given"])
    known = schema_of(made)["function"]["parameters"]

    assert (list(known["properties"]), known["required"]) == ([name, "other"], [name])
    results = called((made, {name: 5}), (made, {f"argument_{name}": 5}))
    assert [result.status for result in results] == ["ok", "error"]
    assert results[0].text == "5"
    assert not recwarn.list


def test_a_type_that_json_has_none_of_is_refused_before_any_call() -> None:
    def takes(value: object, then: Callable[[int], int]) -> int:
        return then(1)

    def gives() -> Mute:
        return Mute()

    for function in (takes, gives):
        with pytest.raises(TypeError, match="none of JSON"):
            tool(effect="pure")(function)
    strange: Any
    for strange in (json, 3, Mute()):
        with pytest.raises(TypeError, match="a function or of a class"):
            tool(effect="pure")(strange)


# What a model writes


@pytest.mark.parametrize("depth", [90, 101, 700, 5_000])
def test_arguments_that_are_nested_deep_end_no_run(depth: int) -> None:
    """Whoever walks through them would go too deep."""
    value = "[" * depth + "]" * depth
    outcome = asked(f'<tool_call>{{"name": "echo", "arguments": {{"value": {value}}}}}</tool_call>')
    told = outcome.candidates[0].branch.output

    assert outcome.answer == "4"
    assert ("cannot be read: the JSON is nested" in told) == (depth > 90)


@pytest.mark.parametrize(
    "call",
    [
        {"name": "x" * 30_000, "arguments": {}},
        {"name": "add", "arguments": {"k" * 30_000: 1}},
        {"name": "add", "arguments": {f"key{n}": 1 for n in range(1_000)}},
    ],
    ids=["name", "key", "keys"],
)
def test_what_a_wrong_call_is_told_has_an_end(call: Any) -> None:
    """However long the model's own words are."""
    text = f"<tool_call>{json.dumps(call)}</tool_call>"
    outcome = asked(text)

    assert outcome.answer == "4"
    assert len(outcome.candidates[0].branch.output) < len(text) + 17_000


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", "<tool_call>" * 20_000),
        ("xml", "<tool_call>" + "<function=" * 30_000),
        ("xml", "<tool_call><function=add>" + "<parameter=" * 30_000),
        ("mistral", "[TOOL_CALLS]a" + " " * 300_000),
        ("react", "Action: " + "*" * 300_000),
    ],
    ids=["tags", "functions", "parameters", "blanks", "stars"],
)
def test_marks_without_end_are_read_once(form: Form, text: str) -> None:
    """A reader that looks for the end of each anew takes minutes."""
    turn = read_turn(text, form, [schema_of(add)])

    assert turn.calls
    assert all(isinstance(call, BadCall) or call.name == "add" for call in turn.calls)


@pytest.mark.parametrize("words", [4, 6, 9])
def test_a_turn_that_is_cut_within_its_calls_has_no_answer(words: int) -> None:
    """A number in an argument is none, and nothing is called."""
    call = json.dumps({"name": "add", "arguments": {"a": 391}})
    agent = Agent(tools=(add,), calls="hermes", max_tokens=words)
    outcome = ttc.solve("2 + 2?", agent, model=FakeEngine(f"{call}\n{call}\n{call}"), seed=0)

    assert [c.status for c in outcome.candidates] == ["truncated"]
    assert outcome.answer is None
    assert not [record for record in outcome.trace if record.kind == "tool"]
