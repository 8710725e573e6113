"""The turns of a conversation. Exported by `ttc.types`, with the other nouns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

__all__ = ["Message", "ToolCall"]


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call of a tool that the assistant asked for."""

    name: str
    arguments: Mapping[str, Any]
    """A JSON object."""
    id: str | None = None
    """What the tool's answer names it by, where the model's chat template wants that."""


Role = Literal["system", "user", "assistant", "tool"]
_ROLES = get_args(Role)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One turn of a conversation. Its content is data: it never becomes a control token."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant asked tools for, after its content."""
    tool_call_id: str | None = None
    """Which call a tool's message answers. Many chat templates go by the order alone."""
    reasoning_content: str | None = None
    """What the assistant thought before its content."""

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise ValueError(f"a message's role is one of {', '.join(_ROLES)}, not {self.role!r}")
        if not isinstance(self.content, str):
            raise TypeError(f"a message's content is a text, not {self.content!r}")
        for field_, role in (
            ("tool_calls", "assistant"),
            ("reasoning_content", "assistant"),
            ("tool_call_id", "tool"),
        ):
            if getattr(self, field_) not in ((), None) and self.role != role:
                raise ValueError(
                    f"{field_} belongs to a message of the role {role!r}, and this one's is "
                    f"{self.role!r}"
                )
