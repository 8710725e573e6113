"""Shapes: the JSON of replies and chunks, of both endpoints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ttc.serve.job import Job
from ttc.serve.reply import Choice, Token, told_of, usage_of

_Spelled = tuple[str, float | None, tuple[tuple[str, float], ...]]

__all__ = [
    "Told",
    "chunk",
    "delta",
    "echoed",
    "fingerprint",
    "last_delta",
    "logprobs_of",
    "whole",
]


def fingerprint(job: Job) -> str:
    """What decides the bits of a reply, beside its request."""
    return job.engines["policy"].numerics


def whole(job: Job, model: str, choices: Sequence[Choice]) -> dict[str, Any]:
    """A reply that is not streamed."""
    is_chat = job.ask.endpoint == "chat"
    return {
        **_head(job, model, "chat.completion" if is_chat else "text_completion"),
        "choices": [_message(job, c) if is_chat else _text(job, c) for c in choices],
        "usage": usage_of(job, choices),
        "ttc": told_of(job, choices),
    }


def chunk(job: Job, model: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    is_chat = job.ask.endpoint == "chat"
    usage = {"usage": None} if job.ask.include_usage else {}
    head = _head(job, model, "chat.completion.chunk" if is_chat else "text_completion")
    return {**head, "choices": choices, **usage, **more}


def delta(job: Job, index: int, **said: Any) -> dict[str, Any]:
    """A choice of a chunk that adds something."""
    if job.ask.endpoint == "chat":
        return {"index": index, "delta": said, "logprobs": None, "finish_reason": None}
    text = said.get("content", "")
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}


def last_delta(job: Job, choice: Choice) -> dict[str, Any]:
    """A choice of the chunk that ends it."""
    return {**delta(job, choice.index), "finish_reason": choice.finish_reason}


def _head(job: Job, model: str, kind: str) -> dict[str, Any]:
    prefix = "chatcmpl" if job.ask.endpoint == "chat" else "cmpl"
    return {
        "id": f"{prefix}-{job.id}",
        "object": kind,
        "created": job.created,
        "model": model,
        "system_fingerprint": fingerprint(job),
    }


def _message(job: Job, choice: Choice) -> dict[str, Any]:
    content = choice.content if choice.content or not choice.calls else None
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if choice.calls:
        message["tool_calls"] = list(choice.calls)
    if job.ask.ttc.thinking and choice.thought:
        message["reasoning_content"] = choice.thought
    return {
        "index": choice.index,
        "message": message,
        "logprobs": _all_logprobs(job, choice),
        "finish_reason": choice.finish_reason,
    }


def _text(job: Job, choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": echoed(job, choice.index) + choice.content,
        "logprobs": _all_logprobs(job, choice),
        "finish_reason": choice.finish_reason,
    }


def echoed(job: Job, choice: int) -> str:
    """What stands before a choice's text: its prompt, where that was asked for."""
    return (job.prompt_of(choice).problem.prompt or "") if job.ask.echo else ""


class Told:
    """What was told of a choice until now."""

    def __init__(self) -> None:
        self.num_chars = 0
        """Characters of its content."""
        self.num_tokens = 0
        """Tokens of it, with their log probabilities."""
        self.end = 0
        """Where the text of all tokens that were told ends, those of the prompt included."""


def _all_logprobs(job: Job, choice: Choice) -> dict[str, Any] | None:
    return None if choice.tokens is None else logprobs_of(job, choice.index, choice.tokens, Told())


def logprobs_of(job: Job, choice: int, tokens: Sequence[Token], told: Told) -> dict[str, Any]:
    """The next tokens of a choice, with those of its prompt before the first ones.

    Args:
        job: whose choice it is.
        choice: its number.
        tokens: what is told of it now.
        told: what was told before; it is brought up to date.
    """
    before = [] if told.num_tokens else _prompt(job, choice)
    told.num_tokens += len(tokens)
    if job.ask.endpoint == "chat":
        return {"content": [_entry(token) for token in tokens], "refusal": None}
    all_tokens = [*before, *((t.text, t.logprob, t.top) for t in tokens)]
    places = itertools.accumulate((len(text) for text, _, _ in all_tokens), initial=told.end)
    *starts, told.end = places
    return {
        "tokens": [text for text, _, _ in all_tokens],
        "token_logprobs": [logprob for _, logprob, _ in all_tokens],
        "top_logprobs": [None if logprob is None else dict(top) for _, logprob, top in all_tokens],
        "text_offset": starts,
    }


def _prompt(job: Job, choice: int) -> list[_Spelled]:
    """The tokens of a prompt that is echoed; nothing is known of the first one."""
    engine: Any = job.engines["policy"]
    spelled: list[_Spelled] = []
    for token_ids, logprobs, tops in job.prompt_of(choice).read[:1]:

        def spell(token: int) -> str:
            return str(engine.spell(token), "utf-8", "replace")

        spelled.append((spell(token_ids[0]), None, ()))
        for place, (token, logprob) in enumerate(zip(token_ids[1:], logprobs, strict=True)):
            expected = tops[place] if tops else None
            top = zip(expected.token_ids, expected.logprobs, strict=True) if expected else ()
            spelled.append((spell(token), logprob, tuple((spell(t), value) for t, value in top)))
    return spelled


def _entry(token: Token) -> dict[str, Any]:
    return {**_one(token.text, token.logprob), "top_logprobs": [_one(*one) for one in token.top]}


def _one(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
