"""Tools: the client's are told to the model, and its calls are returned; nothing is ever run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ttc.constraints import Schema
from ttc.messages import Message
from ttc.ports import Engine
from ttc.react import in_lines as in_react
from ttc.react import instruction
from ttc.registry import lookup
from ttc.serve.fields import Fields, boolean, choice, mapping, text
from ttc.serve.refusal import invalid, unsupported
from ttc.spoken import form_for, read_calls
from ttc.tool_calls import BadCall, call_schema
from ttc.types import Problem

__all__ = ["MAX_TOOLS", "calls_of", "held_to", "in_lines", "tool_choice", "tools"]

MAX_TOOLS = 128

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Tool = Mapping[str, Any]


def tools(where: str, given: Any) -> tuple[Tool, ...]:
    """The tools of a request."""
    if not isinstance(given, list) or len(given) > MAX_TOOLS:
        raise invalid(where, f"{where} are a list of at most {MAX_TOOLS} tools")
    found = tuple(_tool(f"{where}[{place}]", one) for place, one in enumerate(given))
    names = [tool["function"]["name"] for tool in found]
    if len(set(names)) < len(names):
        raise invalid(where, f"a tool's name comes twice in {where}")
    return found


def tool_choice(where: str, given: Any) -> str:
    """`none`, `auto`, `required`, or the name of a tool after a colon."""
    if isinstance(given, str):
        return choice(("none", "auto", "required"))(where, given)
    fields = Fields(given, where)
    fields.need("type", choice(("function",)))
    function = Fields(fields.need("function", mapping), f"{where}.function")
    name = function.need("name", text)
    function.end()
    fields.end()
    return f":{name}"


def _tool(where: str, given: Any) -> Tool:
    fields = Fields(given, where)
    fields.need("type", choice(("function",)))
    inner = Fields(fields.need("function", mapping), f"{where}.function")
    function: dict[str, Any] = {"name": inner.need("name", text)}
    if not _NAME.fullmatch(function["name"]):
        raise invalid(
            f"{where}.function.name",
            "a tool's name has 1 to 64 letters, digits, dots, dashes or underscores",
        )
    described = inner.take("description", text, None)
    function |= {} if described is None else {"description": described}
    function["parameters"] = inner.take("parameters", mapping, {"type": "object"})
    if inner.take("strict", boolean, False):
        function["strict"] = True
    inner.end()
    fields.end()
    return {"type": "function", "function": function}


def held_to(chosen: str, given: Sequence[Tool], engine: Engine) -> Schema | None:
    """What a generation has to be so that it is a call; `None` where it may be one.

    Raises:
        Refusal: nothing makes the model call one.
    """
    form = form_for(engine)
    if chosen == "auto":
        return None
    named = [tool for tool in given if chosen in ("required", f":{tool['function']['name']}")]
    if not named:
        raise invalid("tool_choice", f"there is no tool {chosen[1:81]!r}")
    if not engine.capabilities.grammar:
        raise unsupported(
            "tool_choice", "this model's engine cannot be made to call a tool; let it be auto"
        )
    try:
        return Schema(call_schema(named, "parameters" if form == "llama" else "arguments"))
    except ValueError as error:
        raise invalid("tools", f"the parameters cannot be held to: {error}") from None


async def calls_of(
    said: str, given: Sequence[Tool], engine: Engine, *, parallel: bool
) -> tuple[str, list[dict[str, Any]]]:
    """The words of a turn, and its calls; those that cannot be read, or are of no tool, are words.

    Args:
        said: the turn, without its thought.
        given: the tools that there are.
        engine: whose model has written it.
        parallel: whether several calls may be returned; else the first one is.
    """
    whole, turn = read_calls(said, engine, given)
    if whole is None:
        return said if turn.final is None else turn.final, []
    strict = {t["function"]["name"]: t["function"] for t in given if t["function"].get("strict")}
    calls = []
    for call in turn.calls if parallel else turn.calls[:1]:
        assert not isinstance(call, BadCall)
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        if call.name in strict and not await _fits(arguments, strict[call.name]["parameters"]):
            return said, []
        function = {"name": call.name, "arguments": arguments}
        calls.append({"id": call.id, "type": "function", "function": function})
    return _beside(said, turn.content), calls


def in_lines(problem: Problem, chosen: str) -> Problem:
    """A problem for a model whose chat template knows no tools: it is told of them in words."""
    must_call = chosen not in ("auto", "none")
    messages = in_react(problem.messages)
    told = Message(role="system", content=instruction(problem.tools, must_call=must_call))
    if messages[0].role == "system":
        whole = f"{messages[0].content}\n\n{told.content}"
        return replace(problem, messages=(replace(messages[0], content=whole), *messages[1:]))
    return replace(problem, messages=(told, *messages))


def _beside(said: str, words: str) -> str:
    """The words beside calls as they were written, but for blanks at their end.

    What stands before another thought, and blanks before the words, may have been told before the
    calls were known.
    """
    spoken = said.rpartition("</think>")[2]
    blanks = len(spoken) - len(spoken.lstrip())
    return f"{said[: len(said) - len(spoken) + blanks]}{words}".rstrip()


async def _fits(arguments: str, parameters: Mapping[str, Any]) -> bool:
    """Whether arguments are what a strict tool takes; undecided is no."""
    try:
        return await lookup("verifiers", "json_schema")(parameters).check(arguments) is True
    except ValueError:
        return False
