"""Tools: what agents call. See `docs/agents.md`."""

from __future__ import annotations

from ttc.tools.calculator import Calculator
from ttc.tools.folder import Folder, folder_tools
from ttc.tools.function import FunctionTool, tool, tool_faults
from ttc.tools.named import named_tool
from ttc.tools.port import Confirm, Effect, Tool, ToolResult, ToolStatus, schema_of
from ttc.tools.python import Python
from ttc.tools.retrieval import Corpus, retrieval_tool

__all__ = [
    "Calculator",
    "Confirm",
    "Corpus",
    "Effect",
    "Folder",
    "FunctionTool",
    "Python",
    "Tool",
    "ToolResult",
    "ToolStatus",
    "folder_tools",
    "named_tool",
    "retrieval_tool",
    "schema_of",
    "tool",
    "tool_faults",
]
