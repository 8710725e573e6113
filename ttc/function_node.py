"""A node out of a user's async generator, as `@node` makes it.

Nothing is known of what it spends or writes, so nothing but the ledger bounds it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import overload

from ttc.flow import Cost, Flow, Port
from ttc.graph import Node
from ttc.ports import Scope, Stream
from ttc.types import Candidate

__all__ = ["FunctionNode", "node"]

Function = Callable[[Stream[Candidate], Scope], AsyncGenerator[Candidate, None]]
FINISHED = Port("finished", "many")
UNBOUNDED = Cost(tokens=None, calls=None, verifier_calls=None)


@dataclass(frozen=True)
class FunctionNode(Node):
    """A node out of a user's async generator; see `node`."""

    function: Function
    kinds: tuple[Port, Port] = (FINISHED, FINISHED)
    """What it takes and gives."""

    def __post_init__(self) -> None:
        takes, gives = self.kinds
        selects = takes == FINISHED and gives == Port("finished", "one")
        for name, value in (("takes", takes), ("gives", gives), ("selects", selects)):
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def flow(self, given: Flow) -> Flow:
        """As many as there may be, unless it gives one; candidates keep their scores."""
        count = 1 if self.gives.number == "one" else None
        return replace(given, kind=self.gives.kind, count=count)

    def longest(self, given: Flow) -> None:
        """Nobody knows what it writes."""

    def bound(self, given: Flow) -> Cost:
        """Nothing bounds a function but the ledger."""
        return UNBOUNDED

    def run(self, candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        """Calls the function."""
        return self.function(candidates, scope)


@overload
def node(function: Function, *, takes: Port = ..., gives: Port = ...) -> FunctionNode: ...


@overload
def node(
    function: None = None, *, takes: Port = ..., gives: Port = ...
) -> Callable[[Function], FunctionNode]: ...


def node(
    function: Function | None = None, *, takes: Port = FINISHED, gives: Port = FINISHED
) -> FunctionNode | Callable[[Function], FunctionNode]:
    """Makes a node of an async generator `(candidates, scope)`; a decorator.

    Raises:
        TypeError: it is no async generator function, or takes other arguments.
    """
    if function is None:
        return lambda given: node(given, takes=takes, gives=gives)
    if not inspect.isasyncgenfunction(function):
        raise TypeError(
            f"a node is an async generator function, `async def` with `yield`, which {function!r} "
            "is not"
        )
    signature = inspect.signature(function)
    try:
        signature.bind("candidates", "scope")
    except TypeError:
        raise TypeError(
            f"a node takes (candidates, scope), and {function.__name__} takes {signature}"
        ) from None
    return FunctionNode(function, (Port(*takes), Port(*gives)))
