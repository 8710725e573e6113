"""Tools: what agents call. See `docs/agents.md`."""

from __future__ import annotations

from ttc.tools.function import FunctionTool, tool
from ttc.tools.port import Confirm, Effect, Tool, ToolResult, ToolStatus, schema_of

__all__ = [
    "Confirm",
    "Effect",
    "FunctionTool",
    "Tool",
    "ToolResult",
    "ToolStatus",
    "schema_of",
    "tool",
]
