"""Conversations: how an agent's turns go on, in the form that its model was taught.

Where the chat template knows tools, calls and results stand in its own form; elsewhere they stand
in lines, as in ReAct. What is appended is only the template's text behind the model's own turn, so
a branch stays token-exact: it shares its state with its siblings, and no earlier turn is written
anew. A template that would write one anew is refused.

A chat API is told the whole conversation each time, with calls and results in messages of its own
form; what it replies holds calls between tags (see `ttc.engine.openai`).

What a tool gives is data. In a message of its own no control token can come of it, and the marks of
calls and results in it are broken; in a line it is one JSON text, which no line can end.

Source: for the lines Yao et al. 2022, ReAct (arXiv 2210.03629); see `ttc.react`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ttc.errors import ContextOverflow, EngineError
from ttc.ports import Scope
from ttc.react import NEXT_LINE, OBSERVATION, instruction, observed
from ttc.strategies.instruct import instructed
from ttc.tool_calls import BadCall, Call, Form, form_of, read_turn
from ttc.tools import Tool, schema_of
from ttc.types import Branch, Message, Problem, ToolCall

__all__ = ["Conversation"]

_THOUGHT = "Thought:"
"""How a turn of ReAct begins, where the engine goes on with text."""
_SIGN = hashlib.blake2b(b"the end of a turn", digest_size=8).hexdigest()
_MARK = re.compile(
    r"<(?=/?(?:tool_call|tool_response|tools|think|function|parameter)\b)"
    r"|\[(?=/?(?:TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|INST|ARGS|CALL_ID)\])",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"<(?=[|\uff5c]|/?s>|(?:start|end)_of_turn>|[be]os>)")
"""How control tokens of the usual families begin."""
_NO_MORE = "No further calls are made. Give your final answer with what you know."
_TAUGHT = "What earlier attempts have taught me:"
_LAST, _FINAL = "The final answer is", "Final Answer:"
"""How a last turn begins, where the engine goes on with text; the second of ReAct."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """How one agent speaks with one model about one problem."""

    scope: Scope
    role: str
    problem: Problem
    """The problem with what the model is told of the tools."""
    form: Form
    """How the model writes calls."""
    prompt: Branch

    @classmethod
    def begun(
        cls,
        scope: Scope,
        role: str,
        tools: Sequence[Tool],
        *,
        instructions: str = "",
        form: Form | Literal["auto"] = "auto",
    ) -> Conversation:
        """The beginning of a conversation.

        Raises:
            EngineError: the model has no form for it, or no room.
            ValueError: the problem has tools of its own, or a form that is none.
        """
        problem = scope.problem
        if problem.tools:
            raise ValueError("the problem has tools of its own, and the agent has some; leave one")
        if problem.prompt is not None:
            said = Message(role="user", content=problem.prompt)
            problem = replace(problem, prompt=None, messages=(said,))
        if instructions:
            problem = instructed(problem, instructions, "before")
        told = tuple(schema_of(tool) for tool in tools)
        if form == "auto":
            form = _native_form(scope, role, problem, told) if tools else "react"
        if form != "react":
            problem = replace(problem, tools=told)
        elif tools:
            problem = instructed(problem, instruction(told), "before")
        prompt = scope.prompt(problem, role)
        if prompt.token_ids is None and form not in ("hermes", "react"):
            raise EngineError(
                f"a chat API gives calls in a form of its own, not as calls={form!r}; leave it out"
            )
        begun = cls(scope=scope, role=role, problem=problem, form=form, prompt=prompt)
        goes_on = prompt.token_ids is not None and not begun.is_thinking
        if form == "react" and tools and goes_on:
            return replace(begun, prompt=scope.append(prompt, _THOUGHT))
        return begun

    @property
    def until(self) -> tuple[str, ...]:
        """What ends a turn beside the model's own end."""
        return (NEXT_LINE,) if self.form == "react" else ()

    @property
    def is_thinking(self) -> bool:
        """Whether the template opens a thought, in which a turn begins."""
        return self.prompt.text.rstrip().endswith("<think>")

    def answered(
        self,
        branch: Branch,
        results: Sequence[tuple[Call, str]],
        *,
        before: Sequence[Message] = (),
        is_last: bool = False,
    ) -> tuple[Branch, tuple[Message, ...]]:
        """The branch with what came of its calls, where the model goes on.

        Args:
            branch: ends with the turn in which the calls stand.
            results: each call with what the model is told, one for each and in their order.
            before: the turns before, for engines that hold no tokens.
            is_last: whether the model is told to come to an end.

        Returns:
            The branch, and all turns since the prompt.

        Raises:
            EngineError: the model's template writes earlier turns anew.
        """
        if branch.token_ids is None and self.form != "react":
            turns = _spoken(branch, self.problem, results, before)
        else:
            turns = (Message(role="assistant", content=branch.text), *self._results(results))
        if is_last:
            last = replace(turns[-1], content=f"{turns[-1].content}\n\n{_NO_MORE}")
            turns = (*turns[:-1], last)
        history = (*before, *turns)
        if branch.token_ids is None:
            history = tuple(map(_without_control, history))
            whole = replace(self.problem, messages=(*self.problem.messages, *history))
            return self.scope.prompt(whole, self.role), history
        if self.form == "react":
            told = observed(text for _, text in results)
            return self._line_after(branch, told, is_last=is_last), history
        after = self._turns_after(branch, turns[1:])
        if is_last and not self.is_thinking:  # small models would rather call once more
            after = self.scope.append(after, _LAST)
        return after, history

    def said(self, branch: Branch) -> str:
        """A turn's text, with the words that a last one was begun with."""
        begun = branch.parent
        if begun is None or begun.call is not None:
            return branch.text
        words = next((words for words in (_LAST, _FINAL) if begun.text.endswith(words)), "")
        return f"{words}{branch.text}"

    def reminded(self, branch: Branch, lessons: Sequence[str]) -> Branch:
        """A branch on whose end the model goes on, with lessons as its own words, each as data."""
        told = f"{_TAUGHT} {observed(map(_as_data, lessons))}\n"
        if self.form == "react" and not self.is_thinking:
            told = f" {told}{_THOUGHT}"
        return self.scope.append(branch, told)

    def _results(self, results: Sequence[tuple[Call, str]]) -> tuple[Message, ...]:
        """What came of calls, as messages."""
        if self.form == "react":
            told = observed(text for _, text in results)
            return (Message(role="user", content=f"{OBSERVATION} {told}"),)
        return tuple(
            Message(role="tool", content=_as_data(text), tool_call_id=_id_of(call, n))
            for n, (call, text) in enumerate(results)
        )

    def _line_after(self, branch: Branch, text: str, *, is_last: bool) -> Branch:
        """ReAct: the observation, behind its label, which the model wrote or not."""
        has_label = branch.stop_reason == NEXT_LINE
        if isinstance(branch.stop_reason, int):  # the turn goes on, so its end token is left out
            branch = self.scope.cut(branch, branch.num_tokens - 1)
        end = f"{_THOUGHT} {_NO_MORE}\n{_FINAL}" if is_last else _THOUGHT
        label = "" if has_label else NEXT_LINE
        return self.scope.append(branch, f"{label} {text}\n{end}")

    def _turns_after(self, branch: Branch, turns: tuple[Message, ...]) -> Branch:
        """What the template writes behind the model's turn, up to where its next one begins."""
        messages = (*self._signed.messages, *turns)
        after = self.scope.prompt(
            replace(self._signed, messages=messages, continue_last=False), self.role
        )
        before, ids = self._before.token_ids or (), after.token_ids or ()
        if ids[: len(before)] != before or not after.text.startswith(self._before.text):
            raise _rewrites()
        return Branch(
            parent=branch,
            role=branch.role,
            text=after.text[len(self._before.text) :],
            token_ids=ids[len(before) :],
        )

    @cached_property
    def _signed(self) -> Problem:
        """The conversation with a sign in the place of the model's turn."""
        said = Message(role="assistant", content=_SIGN)
        return replace(self.problem, messages=(*self.problem.messages, said), continue_last=True)

    @cached_property
    def _before(self) -> Branch:
        """All of it up to the sign."""
        before = self.scope.prompt(self._signed, self.role)
        if not before.text.startswith(self.prompt.text):
            raise _rewrites()
        return before


def _spoken(
    branch: Branch,
    problem: Problem,
    results: Sequence[tuple[Call, str]],
    before: Sequence[Message],
) -> tuple[Message, ...]:
    """A turn with calls and what came of them, as chat APIs have it.

    A call that cannot be read is none there: it is a part of what was said, and the user answers.

    Args:
        branch: ends with the turn.
        problem: whose tools there are.
        results: each call with what the model is told.
        before: the turns before: no two calls of a conversation have one id, whatever a model
            calls them.
    """
    taken = {call.id for message in before for call in message.tool_calls}
    words = [read_turn(branch.text, "hermes", problem.tools).content]
    calls, told, unread = list[ToolCall](), list[Message](), list[str]()
    for n, (call, text) in enumerate(results, len(before)):
        if isinstance(call, BadCall):
            words.append(call.text)
            unread.append(_as_data(text))
        else:
            id_ = _id_of(call, n)
            while id_ in taken:
                id_ = _id_of(None, f"{n} {id_}")
            taken.add(id_)
            calls.append(replace(call, id=id_))
            told.append(Message(role="tool", content=_as_data(text), tool_call_id=calls[-1].id))
    said = Message(
        role="assistant", content="\n".join(filter(None, words)), tool_calls=tuple(calls)
    )
    answer = (Message(role="user", content="\n".join(unread)),) if unread else ()
    return (said, *told, *answer)


def _without_control(message: Message) -> Message:
    """A message as data, for servers that read control tokens out of any text."""
    return replace(message, content=_CONTROL.sub(lambda found: f"{found[0]} ", message.content))


def _native_form(
    scope: Scope, role: str, problem: Problem, tools: tuple[Mapping[str, Any], ...]
) -> Form:
    """How the model's template writes a call, read off one that it is given to write."""
    name = str(tools[0]["function"]["name"])
    call = ToolCall(name=name, arguments={"a": 1}, id=_id_of(None, 0))
    tried = (
        Message(role="user", content="?"),
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="1", tool_call_id=call.id),
    )
    try:
        prompt = scope.prompt(Problem(messages=tried, tools=tools), role)
    except ContextOverflow:
        raise
    except EngineError:
        return "react"  # the template has no place for tools
    return "hermes" if prompt.token_ids is None else form_of(prompt.text)  # see `engine.openai`


def _as_data(text: str) -> str:
    """A text in which no mark of a call or a result is whole."""
    return _MARK.sub(lambda found: f"{found[0]} ", text)


def _id_of(call: Call | None, place: object) -> str:
    """What a result names its call by: nine letters and digits, as some templates want them."""
    written = "" if call is None or isinstance(call, BadCall) else call.id
    if written:
        return written
    return hashlib.blake2b(str(place).encode(), digest_size=8).hexdigest()[:9]


def _rewrites() -> EngineError:
    return EngineError(
        "the model's chat template writes earlier turns anew when a tool has answered, so the "
        'conversation cannot go on token by token; use calls="react"'
    )
