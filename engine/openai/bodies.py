"""Requests as JSON: what a branch and its sampling are in the API's words.

A prompt is kept as the JSON of what will be sent, so a branch says everything that the server is
told, and a text needs no template here. The server's own template adds some tokens: fewer than the
JSON has bytes, and those are what is charged where nobody counts tokens.

With the model's own vocabulary a prompt is its tokens instead.

What the API has no word for, and what the server was not found to honour, is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ttc.constraints import Choice, Constraint, Pattern, Schema
from ttc.errors import EngineError
from ttc.types import Branch, Message, Problem, Sampling

if TYPE_CHECKING:
    from ttc.engine.openai.report import Report
    from ttc.ports import Request

__all__ = [
    "beginning_of",
    "body_of",
    "body_of_tokens",
    "constrained",
    "ids_told",
    "prompt_text",
    "short_seed",
]

_EXTENSIONS = ("top_k", "min_p", "repetition_penalty", "logit_bias")
"""What of a `Sampling` not every server honours."""
_RAW = '{"prompt":'
_TOOLS = ', "tools": ['
"""How a prompt tells of tools. No text in it spells this: its quotes are escaped there."""
_SEED_BITS = 53
"""What survives in every server's JSON."""


def prompt_text(problem: Problem) -> str:
    """What a server is told of a problem.

    Raises:
        EngineError: the API has no form for it.
    """
    if problem.continue_last:
        raise EngineError(
            "an OpenAI-compatible server begins a turn of its own, so continue_last cannot be "
            "served; run on an engine with the capability tokens"
        )
    if problem.prompt is not None:
        return _json({"prompt": problem.prompt})
    asked: dict[str, Any] = {"messages": [_message(message) for message in problem.messages]}
    if problem.tools:
        asked["tools"] = [dict(tool) for tool in problem.tools]
    if problem.template_options:
        asked["chat_template_kwargs"] = dict(problem.template_options)
    return _json(asked)


def _message(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning_content is not None:
        said["reasoning_content"] = message.reasoning_content
    if message.tool_call_id is not None:
        said["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id or f"call_{place}",
                "type": "function",
                "function": {"name": call.name, "arguments": _json(dict(call.arguments))},
            }
            for place, call in enumerate(message.tool_calls)
        ]
    return said


def beginning_of(branch: Branch) -> str:
    """What calls must share to go to one server: a conversation's first turns, or the prompt.

    Later turns of one conversation go where its first ones went.
    """
    text = next(branch.lineage()).text
    end = text.find('"role": "assistant"')
    return text if end < 0 else text[:end]


def body_of(request: Request, model: str, report: Report) -> tuple[str, bytes]:
    """The path and the body of a request, which begins with the prompt as it is.

    Raises:
        EngineError: it asks for what the server cannot do, or was not found to do.
    """
    root = request.branch
    if root.parent is not None:
        raise EngineError(
            f"{model} is asked by texts, which it does not go on with; run what forks or continues "
            "a text on an engine with the capability tokens, or name its tokenizer"
        )
    is_chat, sampling = not root.text.startswith(_RAW), request.sampling
    body = _common(request, model, report)
    can_tell = report.logprobs_beside_tools or _TOOLS not in root.text
    if sampling.logprobs and not can_tell:
        raise EngineError(
            f"the server of {model} tells no log probabilities beside tools; leave one of them out"
        )
    if report.logprobs and can_tell:
        own = {"logprobs": True, "top_logprobs": sampling.logprobs}
        body |= own if is_chat else {"logprobs": sampling.logprobs}
    if request.until:
        body["stop"] = _stops(request.until, model)
    whole = f"{root.text[:-1]}, {_json(body)[1:]}"
    return ("/chat/completions" if is_chat else "/completions"), whole.encode()


def body_of_tokens(
    request: Request, prompt: Sequence[int], model: str, report: Report
) -> tuple[str, bytes]:
    """The path and the body of a request that goes on from tokens; where it stops is seen here.

    Raises:
        EngineError: as `body_of`.
    """
    body = {**_common(request, model, report), "prompt": list(prompt), **ids_told(report)}
    if report.logprobs or "logprobs" in body:
        body["logprobs"] = max(request.sampling.logprobs, body.get("logprobs", 0))
    return "/completions", _json(body).encode()


def ids_told(report: Report) -> dict[str, Any]:
    """What makes a server tell the ids of its tokens."""
    if report.tells_tokens == "logprobs":
        return {"logprobs": 1}
    more = {"return_tokens_as_token_ids": True} if report.kind in ("vllm", "ttc") else {}
    return {"return_token_ids": True, **more}


def _common(request: Request, model: str, report: Report) -> dict[str, Any]:
    """What chats and completions have in common."""
    sampling = request.sampling
    body = {
        "model": model,
        report.length_field: request.max_tokens,
        "temperature": sampling.temperature,
        "seed": short_seed(request.seed),
        "stream": True,
        "stream_options": {"include_usage": True, **report.stream_options},
    }
    if not report.streams_usage:
        del body["stream_options"]
    body |= _filters(sampling, model, report)
    if sampling.constraint is not None:
        body |= constrained(sampling.constraint, report)
    return body


def short_seed(seed: int) -> int:
    """A seed that every server can read."""
    return seed >> (64 - _SEED_BITS)


def constrained(constraint: Constraint, report: Report) -> dict[str, Any]:
    """What holds a call to a constraint.

    Raises:
        ValueError: the server was not found to hold to it.
    """
    if isinstance(constraint, Schema) and report.holds_schemas:
        schema = json.loads(constraint.schema)
        named = {"name": "answer", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    if isinstance(constraint, Choice) and report.kind == "vllm":
        return {"structured_outputs": {"choice": list(constraint.options)}}
    if isinstance(constraint, Pattern) and report.kind == "vllm":
        return {"structured_outputs": {"regex": constraint.regex}}
    if isinstance(constraint, Pattern) and report.kind == "sglang":
        return {"regex": constraint.regex}
    raise ValueError(
        f"the server was not found to hold to a {type(constraint).__name__}; leave {constraint} "
        "out, or run on another engine"
    )


def _filters(sampling: Sampling, model: str, report: Report) -> dict[str, Any]:
    names = ("top_p", "presence_penalty", "frequency_penalty", *_EXTENSIONS)
    given: dict[str, Any] = {
        name: value for name in names if (value := getattr(sampling, name)) not in (None, ())
    }
    if wrong := [name for name in given if name in _EXTENSIONS and name not in report.honours]:
        raise EngineError(
            f"the server of {model} was not found to honour {', '.join(wrong)}; leave it out"
        )
    if "logit_bias" in given:
        given["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    if report.kind == "llamacpp" and "repetition_penalty" in given:
        given["repeat_penalty"] = given.pop("repetition_penalty")
    return given


def _stops(until: tuple[str | int, ...], model: str) -> list[str]:
    stops = [end for end in until if isinstance(end, str)]
    if len(stops) < len(until):
        raise EngineError(f"{model} is asked by texts: give strings as `until`, no token ids")
    return stops


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
