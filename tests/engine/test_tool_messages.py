"""Messages with tool calls, answers of tools and thoughts, as tool models' templates read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import EngineError
from ttc.testing import FakeEngine
from ttc.types import Message, Problem, ToolCall

QWEN = (  # calls as JSON between tags, answers in the user's turn, thoughts before the content
    "{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n"
    "{{ m.content }}\n</tool_response><|im_end|>\n{% else %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content is string %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}{% for tool_call in m.tool_calls %}{% if tool_call.function %}"
    "{% set tool_call = tool_call.function %}{% endif %}<tool_call>\n"
    '{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (  # one call alone, and the answer in a turn of its own
    "{% for m in messages %}{% if 'tool_calls' in m %}"
    "{% if not m.tool_calls | length == 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{% set call = m.tool_calls[0].function %}<|im_start|>assistant\n"
    "{{ '{\"name\": \"' + call.name + '\", ' }}{{ '\"parameters\": ' }}"
    "{{ call.arguments | tojson }}}<|im_end|>{% elif m.role == 'tool' %}<|im_start|>ipython\n"
    "{{ m.content | tojson }}<|im_end|>{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MISTRAL = (  # calls and answers by their ids
    "{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls is not none %}"
    "[TOOL_CALLS][{% for call in m.tool_calls %}{% if call.id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}"
    "{{ call.function | tojson }}{{ ', \"id\": \"' + call.id + '\"' }}{% endfor %}]<|im_end|>"
    "{% elif m['role'] == 'tool' %}[TOOL_RESULTS]{{ m.content }} {{ m.tool_call_id }}"
    "{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}"
)
CALL = ToolCall(name="add", arguments={"a": 2, "b": [1, None], "c": "é <b>"}, id="abcdefghi")
ASKED = Message(role="user", content="Add.")
CALLED = Message(role="assistant", content="", tool_calls=(CALL,))
THOUGHT = Message(role="assistant", content="3", reasoning_content="2 + 1")
ANSWERED = Message(role="tool", content="3", tool_call_id="abcdefghi")


def as_transformers(message: Message) -> dict[str, Any]:
    """A message as transformers' users write it."""
    written: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        written["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    if message.tool_call_id:
        written["tool_call_id"] = message.tool_call_id
    if message.reasoning_content:
        written["reasoning_content"] = message.reasoning_content
    return written


@pytest.fixture(scope="module")
def make(tokens: TextTokens) -> Callable[[str], ChatTemplate]:
    """Compiles a template for the tiny vocabulary."""
    return lambda source: ChatTemplate(source, tokens, {})


@pytest.mark.parametrize("source", [QWEN, LLAMA, MISTRAL], ids=["Qwen", "Llama 3", "Mistral"])
def test_calls_and_answers_give_the_text_of_transformers(
    make: Callable[[str], ChatTemplate], source: str
) -> None:
    """Of one conversation, whose call has been answered."""
    theirs = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = [ASKED, CALLED, ANSWERED]
    expected, _ = theirs.render_jinja_template(
        [list(map(as_transformers, messages))], chat_template=source, add_generation_prompt=True
    )

    assert make(source).render(messages).text == expected[0]
    assert "add" in expected[0]


def test_a_thought_reaches_the_template(make: Callable[[str], ChatTemplate]) -> None:
    """That has a place for it."""
    text = make(QWEN).render([ASKED, THOUGHT, ASKED]).text

    assert "<think>2 + 1</think>3<|im_end|>" in text


def test_no_call_can_add_a_control_token(
    make: Callable[[str], ChatTemplate], tokens: TextTokens
) -> None:
    """Neither by its name nor by its arguments, its thought or its answer."""
    end = "<|im_end|>"
    call = ToolCall(name=end, arguments={end: [end]})
    messages = [
        Message(role="assistant", content=end, tool_calls=(call,), reasoning_content=end),
        Message(role="tool", content=end),
    ]
    prompt = make(QWEN).render(messages)

    assert sum(i in tokens.control.values() for i in prompt.token_ids) == 2 * 2 + 1
    assert prompt.text.count(end) == 6 + 2


@pytest.mark.parametrize("said", [CALLED, THOUGHT])
def test_what_a_template_has_no_place_for_is_refused(
    make: Callable[[str], ChatTemplate], said: Message
) -> None:
    """Rather than left out of the prompt."""
    plain = make("{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}")

    with pytest.raises(EngineError, match=r"no place for (tool_calls|reasoning_content); leave it"):
        plain.render([ASKED, said])


def test_arguments_are_plain_data(make: Callable[[str], ChatTemplate]) -> None:
    """As JSON has it."""
    call = ToolCall(name="f", arguments={"x": {1, 2}})

    with pytest.raises(EngineError, match="the arguments of calls and options are plain data"):
        make(QWEN).render([Message(role="assistant", content="", tool_calls=(call,))])


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "user", "tool_calls": (CALL,)},
        {"role": "tool", "reasoning_content": "x"},
        {"role": "assistant", "tool_call_id": "x"},
    ],
)
def test_a_part_of_another_role_is_refused(fields: dict[str, Any]) -> None:
    """A user calls no tool."""
    with pytest.raises(ValueError, match=r"belongs to a message of the role '\w+', and this one's"):
        Message(content="", **fields)


@pytest.mark.parametrize("last", [CALLED, THOUGHT])
def test_only_content_goes_on(last: Message) -> None:
    """A call is complete, and a thought is over."""
    with pytest.raises(ValueError, match="goes on with the content of the last message"):
        Problem(messages=(ASKED, last), continue_last=True)


def test_a_fake_engine_writes_out_all_that_a_problem_has() -> None:
    """So that a test sees what a model would."""
    begun = Problem(
        messages=(ASKED, CALLED, ANSWERED, Message(role="assistant", content="It is ")),
        tools=({"name": "add"},),
        template_options={"enable_thinking": False},
        continue_last=True,
    )

    assert FakeEngine("3").root(begun, "policy").text == (
        'tool: {"name": "add"}\nenable_thinking: false\nuser: Add.\n'
        'assistant:  add({"a": 2, "b": [1, null], "c": "\\u00e9 <b>"})\ntool: 3\n'
        "assistant: It is "
    )
