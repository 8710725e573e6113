"""Built-in tools by name, loaded when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ttc.tools.port import Tool

__all__ = ["named_tool"]


def _python() -> Any:
    from ttc.tools.python import Python

    return Python()


def _calculator() -> Any:
    from ttc.tools.calculator import Calculator

    return Calculator()


_BUILT_IN: dict[str, Callable[[], Any]] = {"calculator": _calculator, "python": _python}


def named_tool(name: str) -> Tool:
    """The built-in tool of a name, as it is by default.

    Raises:
        ValueError: there is none.
    """
    if name not in _BUILT_IN:
        raise ValueError(f"no tool is called {name!r}; there is {', '.join(_BUILT_IN)}")
    made: Tool = _BUILT_IN[name]()
    return made
