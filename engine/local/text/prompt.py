"""A problem's messages as tokens, by the chat template that comes with the model.

Control tokens come from the template alone: where a message, a tool or an option spells one, a mark
is put inside before the template runs and taken out again afterwards, when only the template's own
are left to find. The text around the control tokens is then encoded as plain text, as one piece,
which gives the same tokens as the reference tokenizer for any message that spells none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from ttc.engine.local.files.gguf import GGUFFile
from ttc.engine.local.text.folder_vocabulary import read_json
from ttc.engine.local.text.templates import Program
from ttc.engine.local.text.tokenizer import TextTokens, clean_text
from ttc.errors import EngineError, ModelFileError
from ttc.types import Message

__all__ = ["ChatTemplate", "Prompt"]

_RESERVED = frozenset({"messages", "add_generation_prompt", "continue_final_message"})
_SPOKEN = ("tool_calls", "reasoning_content")
"""Parts of a message that a template may have no place for."""
_WITH_TOOLS = "tool_use"
_THINK = "<think>"


class Prompt(NamedTuple):
    """What a model is given."""

    text: str
    token_ids: list[int]


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja, as Hugging Face's templates are written.
        tokens: the model's vocabulary.
        special: texts of special tokens by the names that templates use, such as `bos_token`.
        with_tools: the template for conversations with tools, where it is another one.
        now: what `strftime_now` tells: the time of loading by default, in UTC. It does not move, so
            that one engine gives equal problems equal prompts.
    """

    def __init__(
        self,
        source: str,
        tokens: TextTokens,
        special: Mapping[str, str],
        *,
        with_tools: str | None = None,
        now: datetime | None = None,
    ) -> None:
        now = datetime.now(UTC) if now is None else now
        self._program = Program(source, now)
        self._with_tools = self._program if with_tools is None else Program(with_tools, now)
        self.with_tools = source if with_tools is None else with_tools
        """The template that is told of tools."""
        self._tokens = tokens
        self._special = special

    @classmethod
    def from_gguf(cls, file: GGUFFile, tokens: TextTokens) -> Self | None:
        """The template in a GGUF file, if there is one."""
        key = "tokenizer.chat_template"
        named = {"default": file.metadata.get(key)}
        named[_WITH_TOOLS] = file.metadata.get(f"{key}.{_WITH_TOOLS}")
        return cls._of_named(named, tokens)

    @classmethod
    def from_folder(cls, path: Path, tokens: TextTokens) -> Self | None:
        """The template in a model folder, if there is one; a file of its own wins."""
        named = read_json(path / "tokenizer_config.json").get("chat_template")
        if isinstance(named, list):
            named = {item.get("name"): item.get("template") for item in named}
        named = dict(named) if isinstance(named, dict) else {"default": named}
        files = {"default": path / "chat_template.jinja"}
        files[_WITH_TOOLS] = path / "additional_chat_templates" / f"{_WITH_TOOLS}.jinja"
        for name, file in files.items():
            if file.is_file():
                named[name] = file.read_text(encoding="utf-8")
        return cls._of_named(named, tokens)

    @classmethod
    def _of_named(cls, named: Mapping[str, object], tokens: TextTokens) -> Self | None:
        source, with_tools = named.get("default"), named.get(_WITH_TOOLS)
        if source is None:
            return None
        if not isinstance(source, str) or not isinstance(with_tools, str | None):
            raise ModelFileError(f"the model's chat template is {named!r}, not a text")
        return cls(source, tokens, tokens.special, with_tools=with_tools)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        continue_last: bool = False,
        asks: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """The prompt that asks the assistant for its next message, or for the rest of its last one.

        Args:
            messages: the conversation.
            tools: JSON schemas of the tools that the assistant may call.
            continue_last: the last message is the assistant's, and goes on. The prompt ends with
                exactly its text.
            asks: the assistant is asked for a message; without it the conversation ends where it
                ends, as a reward model reads it.
            options: what else the template may read, such as `enable_thinking`.

        Raises:
            EngineError: the template refuses the messages, or has no place for tools or an option.
        """
        program = self._with_tools if tools else self._program
        given = {"tools": list(tools)} if tools else {}
        given |= dict(options or {})
        _check(program, messages, given, continue_last)
        mark = _mark([*map(_fields, messages), given])
        pattern = self._tokens.control_pattern

        def broken(text: str) -> str:
            return _broken(clean_text(text), pattern, mark)

        turns = [_with_texts(_fields(message), broken) for message in messages]
        values = {**self._special, "tools": None, **_with_texts(given, broken)}

        def fill(turns: Sequence[object], asks: bool) -> str:
            try:
                return program.run({**values, "messages": turns, "add_generation_prompt": asks})
            except Exception as error:  # a template is someone else's program
                raise EngineError(
                    f"the model's chat template refused the messages: {error}"
                ) from error

        text = _continued(turns, fill, mark) if continue_last else fill(turns, asks)
        return self._encoded(text, mark)

    def _encoded(self, text: str, mark: str) -> Prompt:
        token_ids: list[int] = []
        end = 0
        for found in self._tokens.control_pattern.finditer(text):
            token_ids += self._encode(text[end : found.start()], mark, end)
            token_ids.append(self._tokens.control[found.group()])
            end = found.end()
        token_ids += self._encode(text[end:], mark, end)
        return Prompt(text.replace(mark, ""), token_ids)

    def _encode(self, text: str, mark: str, start: int) -> list[int]:
        return self._tokens.encode(text.replace(mark, ""), after="control" if start else "nothing")


def _fields(message: Message) -> dict[str, Any]:
    """A message as templates read it, which is as chat APIs have it, with arguments as data."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                **({} if call.id is None else {"id": call.id}),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    for name in ("tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            fields[name] = value
    return fields


def _check(
    program: Program, messages: Sequence[Message], given: Mapping[str, Any], continue_last: bool
) -> None:
    """Refuses what the template would pass over in silence."""
    if continue_last and (not messages or messages[-1].role != "assistant"):
        raise EngineError("continue_last needs a last message of the assistant; add one")
    if reserved := sorted(given.keys() & _RESERVED):
        raise EngineError(
            f"the option {', '.join(reserved)} is set by the engine itself: continue_last goes on "
            "with the last message, and a new one is asked for without it"
        )
    needed = {name for name in _SPOKEN for message in messages if getattr(message, name)}
    missing = sorted([*(given.keys() - program.variables), *(needed - program.names)])
    if missing:
        raise EngineError(
            f"the model's chat template has no place for {', '.join(missing)}; leave it out"
        )


def _continued(
    turns: Sequence[Any], fill: Callable[[Sequence[object], bool], str], mark: str
) -> str:
    """The prompt up to the end of the last message.

    The template writes it, a sign behind it shows where it ends, and nothing follows. Where the
    template changes the text, or shows no thought before an answer but the text spells one, the
    text follows the beginning of a new message as it stands.
    """
    *earlier, last = turns
    said = last["content"]
    sign = hashlib.sha256(mark.encode()).hexdigest()
    filled = fill([*earlier, {**last, "content": said + sign}], False)
    written, found, _ = filled.partition(sign)
    is_exact = found and written.endswith(said)
    if is_exact and _THINK not in said:
        return written
    opened = fill(earlier, True)
    return written if is_exact and opened.rstrip().endswith(_THINK) else opened + said


def _mark(spoken: object) -> str:
    """A text that no message can hold: a hash of them all."""
    try:
        return hashlib.sha256(json.dumps(spoken).encode()).hexdigest()
    except (TypeError, ValueError) as error:
        raise EngineError(
            f"tools, the arguments of calls and options are plain data, as JSON has it: {error}"
        ) from error


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Plain data with every text in it changed; a template is given nothing else."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_with_texts(k, change): _with_texts(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(item, change) for item in value]
    return value


def _broken(text: str, pattern: re.Pattern[str], mark: str) -> str:
    """The text with a mark inside whatever spells a control token, overlapping ones too."""
    pieces, start = [], 0
    while found := pattern.search(text, start):
        pieces += [text[start : found.start() + 1], mark]
        start = found.start() + 1
    return "".join([*pieces, text[start:]])
