"""Words: the tokens of a fake engine, and its prompts, which are lines."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence

from ttc.errors import EngineError
from ttc.types import Problem

__all__ = ["check_script", "conversation", "ids_of", "longest_of", "pieces_of"]


def conversation(problem: Problem) -> str:
    """A prompt of lines; the last one ends where the model goes on with it."""
    lines = [f"tool: {json.dumps(tool, default=dict)}" for tool in problem.tools]
    for name, value in problem.template_options.items():
        lines.append(f"{name}: {json.dumps(value, default=dict)}")
    for message in problem.messages:
        said = message.content
        if message.reasoning_content is not None:
            said = f"<think>{message.reasoning_content}</think>{said}"
        for call in message.tool_calls:
            said += f" {call.name}({json.dumps(call.arguments, default=dict)})"
        lines.append(f"{message.role}: {said}")
    return "\n".join(lines) + ("" if problem.continue_last else "\n")


def pieces_of(text: str) -> list[str]:
    """The words of a text, each with the space before it."""
    return re.findall(r"\s*\S+|\s+$", text)


def ids_of(text: str) -> tuple[int, ...]:
    """The tokens of a text."""
    return tuple(zlib.crc32(piece.encode()) for piece in pieces_of(text))


def check_script(script: object) -> None:
    """Refuses what nothing can be said from.

    Raises:
        ValueError: there is no reply.
        TypeError: a reply is no text.
    """
    if callable(script) or isinstance(script, str | EngineError):
        return
    replies = list(script) if isinstance(script, Sequence) else [script]
    if not replies:
        raise ValueError("a fake engine says one reply at least; give it some, as ['It is 4.']")
    for reply in replies:
        if not isinstance(reply, str | EngineError):
            raise TypeError(f"a fake engine says texts, and raises an EngineError, not {reply!r}")


def longest_of(script: object) -> int | None:
    """The bytes of the longest word of all replies; `None` where they are not given beforehand."""
    replies = (script,) if isinstance(script, str) else script
    if not isinstance(replies, list | tuple):
        return None
    said = [piece for reply in replies if isinstance(reply, str) for piece in pieces_of(reply)]
    return max((len(piece.encode()) for piece in said), default=0)
