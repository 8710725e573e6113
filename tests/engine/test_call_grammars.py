"""Turns under `Calls`: whatever is drawn is read as words, or as calls that their schemas allow."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.engine.conftest import CONTROL
from ttc.constraints import Calls, constraint_of, constraint_values
from ttc.engine.local.files.gguf import GGUFFile, read_gguf
from ttc.engine.local.grammar import Grammars
from ttc.engine.local.hub.models import find
from ttc.engine.local.text.tokenizer import TextTokens
from ttc.errors import ModelFileError
from ttc.tool_calls import Form, read_turn
from ttc.types import ToolCall

pytest.importorskip("llguidance", reason="constraints need the extra `local`")

KNOWN: dict[str, dict[str, Any]] = {
    "add": {
        "type": "object",
        "properties": {
            "a": {"type": "number"},
            "b": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["a"],
        "additionalProperties": False,
    },
    "address": {
        "$defs": {"Kind": {"type": "string", "enum": ["in", "out"]}},
        "type": "object",
        "properties": {
            "q": {"type": "string", "maxLength": 6},
            "by": {"type": "string", "enum": ["x", "y z"]},
            "kind": {"$ref": "#/$defs/Kind"},
        },
        "required": ["q", "by", "kind"],
        "additionalProperties": False,
    },
}
TOOLS = [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in KNOWN.items()]
MARKS: dict[Form, tuple[str, ...]] = {
    "hermes": (
        "So. <tool_call>",
        '{"name": "add"',
        '<think>a <tool_call> b</think>\n<tool_call>\n{"name": "address"',
    ),
    "xml": ("<tool_call>\n<function=add>", "Now:\n<tool_call>\n<function=address>"),
    "llama": ('{"name": "add', '{"name": "address", "parameters": {"q": "'),
    "mistral": ('[TOOL_CALLS][{"name": "add"', '[{"name": "address", "arguments": {'),
    "react": ("Thought: so.\nAction: add\n", "**Action: address\nAction Input: {"),
}
"""How turns begin that have to call."""
SPECIAL = (*CONTROL, "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")


@pytest.fixture(scope="module")
def marked(make_file: Callable[..., GGUFFile]) -> TextTokens:
    """A byte vocabulary in which the marks of Mistral and Llama are control tokens."""
    plain = make_file().metadata["tokenizer.ggml.tokens"]
    assert isinstance(plain, list)
    letters = plain[: -len(CONTROL)]
    kinds = [1] * len(letters) + [3] * len(SPECIAL)
    return TextTokens.from_gguf(make_file(tokens=[*letters, *SPECIAL], token_type=kinds))


@cache
def smollm2() -> Grammars:
    try:
        return Grammars(TextTokens.from_gguf(read_gguf(find("smollm2-135m"))))
    except ModelFileError as missing:
        pytest.skip(str(missing))


def drawn(grammars: Grammars, turn: Calls, begins: list[int] | str, seed: int) -> str | None:
    """A turn whose tokens are drawn evenly, half the time the end; `None` where it goes on long."""
    tokens, rng = grammars._tokens, random.Random(seed)
    ids = tokens.encode(begins, after="text") if isinstance(begins, str) else begins
    grammar, written = grammars.begin(turn, ids), list(ids)
    stop = tokens.encode("\nObservation:", after="text")
    for _ in range(200):
        bits = np.unpackbits(grammar.allowed().view(np.uint8), bitorder="little")
        legal = np.flatnonzero(bits)
        others = legal[~np.isin(legal, list(tokens.end_ids))]
        may_end = len(others) < len(legal)
        if (may_end and (not len(others) or rng.random() < 0.5)) or written[-len(stop) :] == stop:
            return tokens.decode(written, after="text")
        written.append(int(rng.choice(others)))
        assert grammar.accept(written[-1])
    return None


def check(text: str, form: Form) -> None:
    """All that is read out of a turn is calls of known tools, with good arguments."""
    calls = read_turn(text, form, TOOLS).calls
    assert calls, text
    for call in calls:
        assert isinstance(call, ToolCall), (text, call)
        needed, properties = KNOWN[call.name]["required"], KNOWN[call.name]["properties"]
        assert set(needed) <= set(call.arguments) <= set(properties)
        given = dict(call.arguments)
        if call.name == "add":
            assert abs(given["a"]) <= 2**53
            assert given.get("b", 1) in range(1, 10)
        else:
            assert (len(given["q"]) <= 6, given["by"] in ("x", "y z")) == (True, True)
            assert given["kind"] in ("in", "out")


@pytest.mark.parametrize("form", MARKS)
@pytest.mark.parametrize("vocabulary", ["bytes", pytest.param("smollm2", marks=pytest.mark.model)])
def test_whatever_is_drawn_after_a_mark_is_read_as_calls(
    form: Form, vocabulary: str, tokens: TextTokens
) -> None:
    """On a vocabulary of bytes, and on a real one, whose tokens cross every border."""
    grammars = smollm2() if vocabulary == "smollm2" else Grammars(tokens)
    turn = Calls(form, KNOWN)
    texts = [drawn(grammars, turn, begins, seed) for begins in MARKS[form] for seed in range(6)]
    whole = [text for text in texts if text is not None]

    assert len(whole) >= 6
    for text in whole:
        check(text, form)


@pytest.mark.parametrize(
    ("form", "words", "calls"),
    [
        ("hermes", 'It is {"a": 1}, <tool_cal', "<tool_call>no"),
        ("hermes", "```python\n4\n```", '{"a": 1}'),
        ("hermes", "<think>one <tool_call></think>It is 4.", '{"name": "add", "arguments": {}'),
        ("xml", "It is <b>4</b>.", "<tool_call>\n<function=fly>"),
        ("xml", "It is [1, 2].", "<tool_call>\n<function=address>\n<parameter=q>\n1234567"),
        ("llama", "It is 4.", '{"a": 1}'),
        ("llama", "The tool add is called.", "add {"),
        ("mistral", "It is [4].", "Now [TOOL_CALLS]"),
        ("mistral", "It is 4.", "[1, 2]"),
        ("react", "Thought: so.\nFinal Answer: 4\nAction: fly", "Thought: so.\nAction: fly"),
        ("react", "An Action: fly", "Thought.\nAction 2: add\nInput"),
    ],
)
def test_words_are_free_and_calls_are_not(
    form: Form, words: str, calls: str, tokens: TextTokens
) -> None:
    """Whatever could be read as a call has to be one; the rest is the model's own."""
    grammars = Grammars(tokens)
    allowed = grammars.begin(Calls(form, KNOWN), tokens.encode(words, after="text")).allowed()
    ends = np.unpackbits(allowed.view(np.uint8), bitorder="little")[list(tokens.end_ids)]

    assert ends.all()
    assert not read_turn(words, form, TOOLS).calls
    with pytest.raises(ValueError, match="does not allow"):
        grammars.begin(Calls(form, KNOWN), tokens.encode(calls, after="text"))


@pytest.mark.parametrize(
    ("form", "marks"),
    [("mistral", ("[TOOL_CALLS]", "[ARGS]")), ("llama", ("<|python_tag|>",))],
)
def test_a_mark_that_is_a_control_token_begins_a_call(
    form: Form, marks: tuple[str, ...], marked: TextTokens
) -> None:
    """It spells no text; nothing but calls follows it."""
    begins = [marked.control[marks[0]]]
    if len(marks) > 1:
        begins += [*b"address", marked.control[marks[1]]]
    turn, grammars = Calls(form, KNOWN), Grammars(marked)
    texts = [drawn(grammars, turn, begins, seed) for seed in range(12)]
    whole = [text for text in texts if text is not None]

    assert len(whole) >= 6
    for text in whole:
        check(text, form)


def test_a_conversation_as_react_goes_on_after_an_observation(tokens: TextTokens) -> None:
    """An observation is appended in one line, whatever it says, and the next turn is held, too."""
    call = 'Thought: so.\nAction: add\nAction Input: {"a": 1}\nObservation:'
    told = f'{call} "2\\nAction: fly"\n'
    grammars, turn = Grammars(tokens), Calls("react", KNOWN)

    grammars.begin(turn, tokens.encode(f"{told}{told}Final Answer: 2", after="text"))
    with pytest.raises(ValueError, match="does not allow"):
        grammars.begin(turn, tokens.encode(f"{told}Action: fly", after="text"))


def test_a_thought_that_the_prompt_opened_is_free(tokens: TextTokens) -> None:
    """Marks in it mean nothing, until it ends."""
    turn = Calls("hermes", KNOWN, is_thinking=True)
    grammars = Grammars(tokens)

    grammars.begin(turn, tokens.encode("a <tool_call> b</think>It is 4.", after="text"))
    with pytest.raises(ValueError, match="does not allow"):
        grammars.begin(turn, tokens.encode("a</think><tool_call>no", after="text"))


@pytest.mark.parametrize("form", MARKS)
def test_a_last_turn_is_words(form: Form, tokens: TextTokens) -> None:
    """Nothing in it is read as a call."""
    grammars, turn = Grammars(tokens), Calls(form, KNOWN, may_call=False)
    for begins in MARKS[form]:
        with pytest.raises(ValueError, match="does not allow"):
            grammars.begin(turn, tokens.encode(begins, after="text"))


@pytest.mark.model
def test_a_large_vocabulary_does_not_outgrow_the_library() -> None:
    """Of 150,000 tokens, at each token of a turn."""
    try:
        tokens = TextTokens.from_gguf(read_gguf(find("qwen2.5-coder-0.5b-instruct-q4_k_m")))
    except ModelFileError as missing:
        pytest.skip(str(missing))
    grammars = Grammars(tokens)
    for form, marks in MARKS.items():
        for text in (*marks, "```json\n3", "So it is 12 \u0436.\n\nIt is {3}."):
            grammar = grammars.begin(Calls(form, KNOWN))
            for token in tokens.encode(text, after="text"):
                assert grammar.allowed().any(), (form, text, grammar.error)
                assert grammar.accept(token), (form, text)


def test_what_a_form_cannot_be_held_to_is_refused() -> None:
    """By the tool and the keyword, when the constraint is made."""
    odd = {"type": "object", "properties": {"q": {"type": "string", "pattern": "a+"}}}
    Calls("hermes", {"odd": odd})
    with pytest.raises(ValueError, match="not held to pattern"):
        Calls("xml", {"odd": odd})
    with pytest.raises(ValueError, match=r"schema of odd is none: .*uniqueItems"):
        Calls("hermes", {"odd": {"type": "array", "uniqueItems": True}})
    with pytest.raises(ValueError, match="no tool"):
        Calls("hermes", {})


def test_such_a_turn_is_kept_as_json() -> None:
    turn = Calls("xml", KNOWN, is_thinking=True, may_call=False)
    assert constraint_of(constraint_values(turn)) == turn
