"""The parameters of `/v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttc.constraints import Constraint, Schema
from ttc.serve.ask import INERT, Ask, common, merged
from ttc.serve.fields import Fields, boolean, choice, integer, mapping, text
from ttc.serve.messages import conversation
from ttc.serve.refusal import invalid
from ttc.serve.settings import Settings
from ttc.types import MAX_LOGPROBS, Problem

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
    asked = Ask(
        problem=Problem(messages=messages, answer_format=shared["ttc"].answer_format),
        max_tokens=merged(fields, "max_tokens", "max_completion_tokens"),
        constraint=fields.take("response_format", _response_format, None),
        logprobs=top if wants_logprobs else None,
        effort=fields.take("reasoning_effort", choice(tuple(settings.efforts)), None),
        **shared,
    )
    fields.inert({**INERT, **_WITHOUT_TOOLS})
    fields.end()
    return asked


_WITHOUT_TOOLS: Mapping[str, Any] = {
    "tools": lambda given: given == [],
    "tool_choice": lambda given: given in ("none", "auto"),
    "parallel_tool_calls": lambda given: isinstance(given, bool),
}


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
