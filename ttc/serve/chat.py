"""The parameters of `/v1/chat/completions`."""

from __future__ import annotations

from typing import Any

from ttc.constraints import Constraint, Schema
from ttc.serve.ask import INERT, Ask, common, merged
from ttc.serve.fields import Fields, boolean, choice, integer, mapping, text
from ttc.serve.messages import conversation
from ttc.serve.refusal import conflicting, invalid
from ttc.serve.settings import Settings
from ttc.serve.tools import tool_choice, tools
from ttc.types import MAX_LOGPROBS, AnswerFormat, Problem

__all__ = ["chat_ask"]


def chat_ask(body: Any, settings: Settings) -> Ask:
    """What a body asks for.

    Raises:
        Refusal: with the parameter that is wrong, or that is not served.
    """
    fields = Fields(body)
    shared = common(fields, settings.max_choices)
    messages = fields.need("messages", conversation)
    wants_logprobs = fields.take("logprobs", boolean, False)
    top = fields.take("top_logprobs", integer(0, MAX_LOGPROBS), 0)
    if top and not wants_logprobs:
        raise invalid("top_logprobs", "top_logprobs need logprobs: true")
    given = fields.take("tools", tools, ())
    chosen = fields.take("tool_choice", tool_choice, "auto" if given else "none")
    if not given and chosen not in ("none", "auto"):
        raise invalid("tool_choice", "tool_choice asks for a tool, and there are no tools")
    told = () if chosen == "none" else given
    form = fields.take("response_format", _response_format, None)
    if form is not None and told:
        raise conflicting("response_format", "a call has a form of its own; leave one out")
    asked = Ask(
        problems=(
            Problem(
                messages=messages,
                tools=told,
                answer_format=_answer_format(shared["ttc"].answer_format, form),
            ),
        ),
        tools=told,
        tool_choice=chosen,
        parallel_tool_calls=fields.take("parallel_tool_calls", boolean, True),
        max_tokens=merged(fields, "max_tokens", "max_completion_tokens"),
        constraint=form,
        logprobs=top if wants_logprobs else None,
        effort=fields.take("reasoning_effort", choice(tuple(settings.efforts)), None),
        **shared,
    )
    fields.inert(INERT)
    fields.end()
    return asked


def _answer_format(asked: AnswerFormat, form: Constraint | None) -> AnswerFormat:
    """How answers are read: of texts that are JSON, as JSON, where the request says nothing."""
    return "json" if asked == "auto" and form is not None else asked


def _response_format(where: str, given: Any) -> Constraint | None:
    fields = Fields(given, where)
    kind = fields.need("type", choice(("text", "json_object", "json_schema")))
    schema: Any = {"type": "object"}
    if kind == "json_schema":
        inner = Fields(fields.need("json_schema", mapping), f"{where}.json_schema")
        inner.need("name", text)
        inner.take("description", text, None)
        inner.take("strict", boolean, None)
        schema = inner.need("schema", mapping)
        inner.end()
    fields.end()
    if kind == "text":
        return None
    try:
        return Schema(schema)
    except ValueError as error:
        raise invalid(where, f"the schema cannot be held to: {error}") from None
