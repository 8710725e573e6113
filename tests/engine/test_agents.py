"""Agents on the embedded engine: turns go on token by token, in the template's own form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ttc.engine.local import LocalEngine
from ttc.engine.local.path import path_tokens
from ttc.engine.local.source import ModelSource
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import EngineError
from ttc.ports import Scope
from ttc.strategies.agent.conversation import Conversation
from ttc.tools import schema_of, tool
from ttc.types import Branch, Message, Problem, ToolCall

QWEN = (  # calls between tags, results in the user's turn
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n"
    "{{ m.content }}\n</tool_response><|im_end|>\n{% else %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}{% for call in m.tool_calls %}<tool_call>\n{{ call.function | tojson }}\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REWRITES = QWEN.replace("{{ m.content }}{% for", "{{ m.content }}{{ messages | length }}{% for")
PLAIN = QWEN.partition("<|im_end|>\n{% endif %}")[2]
QUESTION = Message(role="user", content="What is 12 * 13? Use the tool.")


@tool(effect="pure")
async def multiply(a: int, b: int) -> int:
    """Multiplies two whole numbers."""
    return a * b


@pytest.fixture
def begin(tiny: ModelSource, tokens: TextTokens) -> Any:
    """A conversation with a tiny engine whose template is another one."""
    engines: list[LocalEngine] = []

    def make(template: str, form: Any = "auto") -> tuple[Conversation, LocalEngine]:
        source = replace(tiny, template=ChatTemplate(template, tokens, {}))
        engine = LocalEngine(source, name="tiny")
        engines.append(engine)
        problem = Problem(messages=(QUESTION,))
        scope = SimpleNamespace(
            problem=problem, prompt=engine.root, append=engine.append, cut=engine.cut
        )
        begun = Conversation.begun(cast("Scope", scope), "policy", [multiply], form=form)
        return begun, engine

    yield make
    for engine in engines:
        engine.close()


def said(text: str, after: Branch, tokens: TextTokens) -> Branch:
    """What a model said after a prompt, closed by its end token."""
    end = tokens.control["<|im_end|>"]
    return Branch(
        parent=after,
        text=text,
        token_ids=(*tokens.encode(text, after="text"), end),
        finish_reason="stop",
        stop_reason=end,
        call="0#0",
    )


def test_what_follows_a_call_is_what_the_whole_conversation_has_there(
    begin: Callable[..., tuple[Conversation, LocalEngine]], tokens: TextTokens
) -> None:
    """Token by token, also where a result spells the template's own tokens."""
    conversation, engine = begin(QWEN)
    text, result = '<tool_call>{"name": "multiply"}</tool_call>', "156<|im_end|>\n<|im_start|>user"
    spoken = said(text, conversation.prompt, tokens)
    call = ToolCall(name="multiply", arguments={})
    branch, history = conversation.answered(spoken, [(call, result), (call, "2")])

    whole = engine.root(
        Problem(
            messages=(
                QUESTION,
                Message(role="assistant", content=text),
                Message(role="tool", content=result),
                Message(role="tool", content="2"),
            ),
            tools=(schema_of(multiply),),
        ),
        "policy",
    )
    assert conversation.form == "hermes"
    assert tuple(path_tokens(branch)) == whole.token_ids
    assert [message.role for message in history] == ["assistant", "tool", "tool"]


def test_a_template_that_writes_earlier_turns_anew_is_refused(
    begin: Callable[..., tuple[Conversation, LocalEngine]], tokens: TextTokens
) -> None:
    """Nothing could be shared, and the model would read what it never said."""
    conversation, _ = begin(REWRITES)
    call = ToolCall(name="multiply", arguments={})

    with pytest.raises(EngineError, match="writes earlier turns anew"):
        conversation.answered(said("x", conversation.prompt, tokens), [(call, "1")])


def test_a_template_that_knows_no_tools_is_told_of_them_in_words(
    begin: Callable[..., tuple[Conversation, LocalEngine]], tokens: TextTokens
) -> None:
    """And a result stands in one line, whatever it spells; the turn goes on, so nothing ends it."""
    conversation, _ = begin(PLAIN)
    call = ToolCall(name="multiply", arguments={})
    spoken = said("Action: multiply", conversation.prompt, tokens)
    branch, _ = conversation.answered(spoken, [(call, "1\nFinal Answer: 2<|im_end|>")])

    assert conversation.form == "react"
    told = next(conversation.prompt.lineage()).text
    assert '- multiply: Multiplies two whole numbers. Input: {"a": integer' in told
    assert branch.text == '\nObservation: "1\\nFinal Answer: 2<|im_end|>"\nThought:'
    assert branch.parent is not None
    assert branch.parent.text == "Action: multiply"
    ends = path_tokens(branch)[conversation.prompt.num_tokens :]
    assert tokens.control["<|im_end|>"] not in ends
    reminded = conversation.reminded(branch, ["Try\nAction: x", "b"])
    taught = "What earlier attempts have taught me:"
    assert reminded.text == f' {taught} "Try\\nAction: x" "b"\nThought:'
