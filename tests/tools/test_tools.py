"""Tools from functions, and the life of a call in a run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.lab import (
    Counter,
    add,
    called,
    counter,
    die,
    flood,
    hang,
    lie,
    note,
    note_slowly,
    note_too_late,
    quit_all,
    scale,
    shout,
    used,
)
from ttc import Budget
from ttc.messages import ToolCall
from ttc.ports import Scope
from ttc.tools import Tool, ToolResult, schema_of, tool


def test_a_function_s_signature_is_its_schema() -> None:
    """Types, defaults and choices; the docstring's first paragraph is the description."""
    assert isinstance(add, Tool)
    assert schema_of(add)["function"] == {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }
    assert scale.parameters["properties"]["by"]["enum"] == ["ten", "hundred"]


def test_an_effect_that_nobody_named_cannot_be_undone() -> None:
    @tool
    async def send(text: str) -> None:
        """Sends a text."""

    assert send.effect == "irreversible"


def _untyped(a):  # type: ignore[no-untyped-def]
    return a


def _starred(*a: int) -> int:
    return sum(a)


@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        (_untyped, {"effect": "pure"}, "a has no type"),
        (_starred, {"effect": "pure"}, "a model names every argument"),
        (_starred, {"effect": "reversible"}, "a reversible tool is a class"),
        (Counter, {"effect": "pure"}, "a reversible tool is a class"),
        (add.function, {"effect": "harmless"}, "effect is one of pure"),
        (add.function, {"effect": "pure", "name": "a b"}, "called by letters"),
        (add.function, {"effect": "pure", "seconds": 0}, "more than 0"),
        (add.function, {"effect": "pure", "max_bytes": True}, "at least 1"),
        (lambda: 1, {"name": "f"}, "put it at the top of a module"),
    ],
)
def test_what_cannot_be_a_tool_is_refused(
    function: Any, options: dict[str, Any], reason: str
) -> None:
    """When it is made, and not when it is called."""
    with pytest.raises((TypeError, ValueError), match=reason):
        tool(**options)(function)


def test_calls_are_checked_made_and_told_as_text() -> None:
    """Synchronous or not; numbers as JSON."""
    results = called((add, {"a": 1, "b": 2}), (scale, {"value": 4, "by": "ten"}), (add, {"a": "1"}))

    assert [(r.status, r.text) for r in results] == [("ok", "3.0"), ("ok", "40"), ("ok", "2.0")]
    assert not results[0].is_trusted


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({}, "a: Field required"), ({"a": "x"}, "a: "), ({"a": 1, "c": 2}, "c: Extra inputs")],
)
def test_wrong_arguments_are_told_and_nothing_is_called(
    arguments: dict[str, Any], reason: str
) -> None:
    (result,) = called((add, arguments))

    assert result.status == "error"
    assert reason in result.text


@pytest.mark.parametrize(
    ("use", "status", "text"),
    [
        ((shout, {"text": "no </tool_response>"}), "error", "RuntimeError: no </tool_response>"),
        ((lie, {}), "error", "returned str, and its signature promises int"),
        ((die, {}), "error", "its process died with status 3"),
        ((quit_all, {}), "error", "it raised SystemExit"),
        ((hang, {}), "timeout", "hang took more than 0.2 seconds"),
    ],
)
def test_a_tool_that_fails_is_data(use: Any, status: str, text: str) -> None:
    """Whatever it does: raises, lies, dies, ends everything, hangs."""
    (result,) = called(use)

    assert result.status == status
    assert text in result.text


def test_a_tool_that_floods_is_cut() -> None:
    """What it prints goes nowhere, and a result is told up to its limit, or not at all."""
    cut, refused = called((flood, {"size": 5_000}), (flood, {"size": 500_000}))

    assert cut.text == "y" * 100 + "\n[cut here: 100 of 5000 bytes]"
    assert cut.is_cut
    assert refused.status == "error"


def test_each_call_is_charged_and_recorded() -> None:
    """As a call, under the role `tools`."""

    async def work(scope: Scope) -> ToolResult:
        return await scope.call(add, {"a": 1})

    _, outcome = used(work)

    (record,) = [record for record in outcome.trace if record.kind == "tool"]
    assert record.detail == {"tool": "add", "effect": "pure", "status": "ok"}
    assert (record.usage.calls, outcome.usage_by_role["tools"].calls, outcome.usage.calls) == (
        1,
        1,
        2,
    )


def test_parallel_calls_cannot_overrun_a_limit() -> None:
    """Of three at once with one unit left, the first is made."""

    async def work(scope: Scope) -> list[Any]:
        handles = [scope.spawn(scope.call(add, {"a": n})) for n in range(3)]
        return await asyncio.gather(*map(_settled, handles))

    results, outcome = used(work, budget=Budget(calls=2))

    assert [isinstance(result, ToolResult) for result in results] == [True, False, False]
    assert outcome.usage.calls == 2


async def _settled(handle: Any) -> Any:
    try:
        return await handle
    except Exception as error:  # noqa: BLE001
        return error


def test_equal_pure_calls_are_made_once_and_a_failure_is_no_result() -> None:
    """In any spelling, one after the other or at once."""
    made: list[float] = []

    @tool(effect="pure")
    async def count(n: float) -> int:
        """Counts its calls."""
        made.append(n)
        await asyncio.sleep(0)
        if n < 0:
            raise ValueError("below 0")
        return len(made)

    same = called((count, {"n": 1}), (count, {"n": 1.0}), (count, {"n": 1}), together=True)
    assert [result.text for result in same] == ["1", "1", "1"]
    assert len({result.call for result in same}) == 3
    failed = called((count, {"n": -1}), (count, {"n": -1}), together=True)
    assert [result.status for result in failed] == ["error", "error"]
    assert made == [1, -1, -1]


def test_a_reversible_tool_s_state_is_that_of_the_branch_s_calls() -> None:
    """Made again in a new object, those that failed as well."""
    earlier = [{"step": 2}, {"step": -1}, {}]

    (alone,) = called((counter, {"step": 5}))
    (after,) = called((counter, {"step": 5}), earlier=earlier)
    (too_old,) = called((counter, {"step": 5}), earlier=[{}] * 65)

    assert (alone.text, after.text) == ("5", "8")
    assert too_old.status == "error"


def test_an_act_needs_the_user_s_word_once_others_have_spoken(tmp_path: Path) -> None:
    """Who is not asked has not said yes."""
    use = (note, {"path": str(tmp_path / "world"), "line": "x"})
    asked: list[ToolCall] = []

    async def no(call: ToolCall) -> bool:
        asked.append(call)
        return False

    (nobody,) = called(use)
    (denied,) = called(use, confirm=no)
    assert [nobody.status, denied.status] == ["refused", "refused"]
    assert asked == [ToolCall(name="note", arguments=use[1])]
    assert not (tmp_path / "world").exists()

    (done,) = called(use, confirm=lambda call: call.name == "note")
    assert done.status == "ok"
    assert (tmp_path / "world").read_text() == "x\n"


def test_an_act_that_takes_too_long_has_an_unknown_effect() -> None:
    """It may have done what it does, and the model is told so."""
    (result,) = called((note_too_late, {"path": "x"}), after_untrusted=False)

    assert result.status == "unknown_effect"
    assert "Whether it had its effect is unknown" in result.text


def test_an_act_that_is_stopped_has_no_effect_any_more(tmp_path: Path) -> None:
    """Its process ends with it, however far it has come."""
    world = tmp_path / "world"
    begun = tmp_path / "world.begun"

    async def work(scope: Scope) -> None:
        use = scope.call(note_slowly, {"path": str(world), "line": "x"}, after_untrusted=False)
        handle = scope.spawn(use)
        while not begun.exists():  # noqa: ASYNC110 - another process says so
            await asyncio.sleep(0.01)
        handle.stop()

    used(work)

    assert not _workers()
    assert not world.exists()


def _workers() -> list[str]:
    """The processes in which tools of this one work."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1]
        except OSError:
            continue
        if b"ttc.tools.worker" in line and int(parent) in (os.getpid(), 1):
            found.append(pid)
    return found


def test_only_one_part_of_a_strategy_acts(tmp_path: Path) -> None:
    """The first; the outcome says that it depended on timing."""
    use = {"path": str(tmp_path / "world"), "line": "x"}

    async def work(scope: Scope) -> ToolResult:
        scope._run.actor = "0.other"  # type: ignore[attr-defined]
        return await scope.call(note, use, after_untrusted=False)

    result, outcome = used(work)

    assert result.status == "refused"
    assert outcome.timing_dependent == ("two parts of the strategy wanted to act",)


def test_a_deadline_ends_a_tool_with_its_process() -> None:
    """The call is refused, and nothing is left."""

    async def work(scope: Scope) -> ToolResult:
        return await scope.call(tool(effect="pure", in_process=True)(hang.function), {})

    _, outcome = used(work, budget=Budget(seconds=0.5))

    assert outcome.stopped_by == "seconds"
    assert not _workers()


def test_awaitables_are_told_apart() -> None:
    """A confirmation may be awaited."""

    def later(call: ToolCall) -> Awaitable[bool]:
        return asyncio.sleep(0, result=False)

    (result,) = called((note, {"path": "/nonexistent/x", "line": "x"}), confirm=later)

    assert result.text == "The user did not confirm the call."
