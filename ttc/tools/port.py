"""The port of tools: what an agent may call, what a call does to the world, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from ttc.messages import ToolCall
from ttc.ports import Scope

__all__ = ["Arguments", "Confirm", "Effect", "Tool", "ToolResult", "ToolStatus", "schema_of"]

Effect = Literal["pure", "reversible", "irreversible"]
"""What a call does. `pure`: nothing, and equal calls have equal results. `reversible`: it changes a
state that belongs to the branch, and that comes back by making the branch's calls again.
`irreversible`: it changes the world."""

ToolStatus = Literal["ok", "error", "timeout", "refused", "unknown_effect"]
"""How a call ended. `refused`: it was not made. `unknown_effect`: it was begun, and nobody knows
whether it did what it does; it is never made again."""

Arguments: TypeAlias = Mapping[str, Any]

Confirm: TypeAlias = Callable[[ToolCall], bool | Awaitable[bool]]
"""Asks the user whether a call may be made."""


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """What came of a call."""

    status: ToolStatus
    text: str
    """What the model is told; of a failure the reason."""
    is_trusted: bool = False
    """Whether nobody but the user and the model can have written it."""
    is_cut: bool = False
    """Whether it was longer than it may be."""
    call: str | None = None
    """Its name in the trace, as `path#tool index`."""


@runtime_checkable
class Tool(Protocol):
    """Something that an agent may call. Calls of one tool may run at the same time."""

    @property
    def name(self) -> str:
        """What the model calls it."""

    @property
    def description(self) -> str:
        """What the model is told of it."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments."""

    @property
    def effect(self) -> Effect:
        """What a call does to the world. The user says so: nothing else knows."""

    @property
    def version(self) -> str:
        """Changes with what the tool does, so that no old result stands for a new one."""

    @property
    def seconds(self) -> float:
        """How long a call may take; what still runs then is ended."""

    @property
    def max_bytes(self) -> int:
        """How much of a result the model is told, in UTF-8."""

    @property
    def is_trusted(self) -> bool:
        """Whether nobody but the user and the model can have written its results."""

    def check(self, arguments: Arguments) -> None:
        """Refuses arguments before anything happens.

        Raises:
            ValueError: with what is wrong, for the model.
        """

    async def __call__(
        self, arguments: Arguments, earlier: Sequence[Arguments], scope: Scope
    ) -> str:
        """Makes a call. What it raises is told to the model, and so is what it returns.

        Args:
            arguments: those of the call, checked.
            earlier: of a reversible tool, those of the calls that the branch has made before.
            scope: what the tool asks of ttc, such as a program in the sandbox.
        """


def schema_of(tool: Tool) -> dict[str, Any]:
    """A tool as chat templates and APIs describe it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}
