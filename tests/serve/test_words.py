"""Words: what of a turn is told before it is known whether it calls a tool."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.serve.tools import calls_of
from ttc.serve.words import Words
from ttc.testing import FakeEngine
from ttc.tool_calls import Form

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("weather", "I")
]
CALL = '{"name": "weather", "arguments": {"place": "Rome"}}'


def told(text: str, form: Form = "hermes", size: int = 1) -> str:
    """What is told of a turn before its end."""
    words = Words(form, TOOLS)
    return "".join(words.feed(text[at : at + size]) for at in range(0, len(text), size))


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("It is sunny. ", "hermes", "It is sunny."),
        (f"Let me look.\n<tool_call>{CALL}</tool_call>", "hermes", "Let me look."),
        ("1 <tool", "hermes", "1"),
        ("1 <tools> 2", "hermes", "1 <tools> 2"),
        (CALL, "hermes", ""),
        (f"```json\n{CALL}\n```", "hermes", ""),
        ("```python\nprint(1)\n```", "hermes", "```python\nprint(1)\n```"),
        ('weather {"place": "Rome"}', "hermes", ""),
        ("weather is fine", "hermes", "weather is fine"),
        ("I am here", "hermes", "I am here"),
        ("wea", "hermes", ""),
        ("Wait.[TOOL_CALLS][", "mistral", "Wait."),
        ("Hm. <|python_tag|>{", "llama", "Hm."),
        ("Thought: I know.", "react", ""),
        ("  two blanks", "xml", "  two blanks"),
    ],
)
def test_what_may_be_a_call_is_held_back(text: str, form: Form, said: str) -> None:
    """And blanks before it: beside a call they are no content."""
    assert told(text, form) == said


_PIECES = (
    "<tool_call>",
    "</tool_call>",
    CALL,
    "{",
    "weather",
    " ",
    "\n",
    "I",
    "```",
    "</think>",
    "x",
)


@given(
    st.lists(st.sampled_from(_PIECES), max_size=8).map("".join),
    st.sampled_from(["hermes", "xml", "llama", "mistral", "react"]),
    st.integers(1, 7),
)
@settings(max_examples=150, deadline=None)
def test_what_was_told_is_never_taken_back(text: str, form: Form, size: int) -> None:
    """Whatever the turn comes to, and however it was cut: its content begins with it."""
    engine = FakeEngine("")
    engine.call_form = form  # type: ignore[attr-defined]
    content, _ = asyncio.run(calls_of(text, TOOLS, engine, parallel=True))

    assert content.startswith(told(text, form, size))
