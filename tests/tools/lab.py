"""Tools that do as they are told, and a run in which they are called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal

import ttc
from tests.tools.apart import die, flood, hang, lie, note, note_slowly
from ttc import Budget, Outcome
from ttc.ports import Scope, Stream
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine
from ttc.tools import FunctionTool, ToolResult, tool
from ttc.types import Candidate

__all__ = [
    "EXAMPLE",
    "Counter",
    "add",
    "called",
    "counter",
    "die",
    "flood",
    "hang",
    "lie",
    "note",
    "note_slowly",
    "note_too_late",
    "quit_all",
    "scale",
    "shout",
    "used",
]

EXAMPLE = """To a question such as: What is 2 * 3?
you write:
Thought: I compute it.
Action: calculator
Action Input: {"expression": "2 * 3"}"""
"""A turn that a small model can go by."""


@tool(effect="pure")
def add(a: float, b: float = 1) -> float:
    """Adds two numbers.

    The rest of this is for people.
    """
    return a + b


@tool(effect="pure", name="scale")
async def scale(value: int, by: Literal["ten", "hundred"]) -> int:
    """Scales a number."""
    return value * {"ten": 10, "hundred": 100}[by]


@tool(effect="irreversible", seconds=0.05)
async def note_too_late(path: str) -> str:
    """Never ends."""
    await asyncio.sleep(60)
    return path


class Counter:
    """Counts, for each branch alone."""

    def __init__(self) -> None:
        self.total = 0

    async def __call__(self, step: int = 1) -> int:
        if step < 0:
            raise ValueError("it only counts up")
        self.total += step
        return self.total


counter = tool(effect="reversible")(Counter)


@tool(effect="pure")
def quit_all() -> str:
    """Tries to end everything."""
    raise SystemExit(1)


@tool(effect="pure")
async def shout(text: str) -> str:
    """Raises what it is told."""
    raise RuntimeError(text)


def called(
    *calls: tuple[FunctionTool, dict[str, Any]], together: bool = False, **more: Any
) -> list[ToolResult]:
    """What calls come to in a run, one after the other or together."""

    async def work(scope: Scope) -> list[ToolResult]:
        def one(use: tuple[FunctionTool, dict[str, Any]]) -> Awaitable[ToolResult]:
            return scope.call(use[0], use[1], **more)

        if together:
            handles = [scope.spawn(one(use)) for use in calls]  # type: ignore[arg-type]
            return [await handle for handle in handles]
        return [await one(use) for use in calls]

    results: list[ToolResult] = used(work)[0]
    return results


def used(
    work: Callable[[Scope], Awaitable[Any]], *, budget: Budget | None = None, **more: Any
) -> tuple[Any, Outcome]:
    """What a node does with its scope, and the outcome of its run."""
    found: list[Any] = []

    @ttc.node
    async def asks(candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        async for candidate in candidates:
            found.append(await work(scope))
            yield candidate

    strategy = Sample(n=1, max_tokens=8) >> asks >> Vote()
    model = FakeEngine("It is 4.")
    outcome = ttc.solve("2 + 2?", strategy, model=model, budget=budget, seed=1, **more)
    return (found or [None])[0], outcome
