"""Shapes: the JSON of replies and chunks, of both endpoints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ttc.serve.job import Job
from ttc.serve.reply import Choice, Token, told_of, usage_of

_Spelled = tuple[str, float | None, tuple[tuple[str, float], ...]]

__all__ = ["chunk", "delta", "fingerprint", "last_delta", "whole"]


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


def last_delta(job: Job, choice: Choice, *, with_logprobs: bool) -> dict[str, Any]:
    """A choice of the chunk that ends it."""
    ended = {**delta(job, choice.index), "finish_reason": choice.finish_reason}
    if with_logprobs and choice.tokens is not None:
        ended["logprobs"] = _logprobs(job, choice)
    return ended


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
        "logprobs": None if choice.tokens is None else _logprobs(job, choice),
        "finish_reason": choice.finish_reason,
    }


def _text(job: Job, choice: Choice) -> dict[str, Any]:
    before = (job.ask.problem.prompt or "") if job.ask.echo else ""
    return {
        "index": choice.index,
        "text": before + choice.content,
        "logprobs": None if choice.tokens is None else _logprobs(job, choice),
        "finish_reason": choice.finish_reason,
    }


def _logprobs(job: Job, choice: Choice) -> dict[str, Any]:
    tokens = choice.tokens or ()
    before = _prompt(job)
    if job.ask.endpoint == "chat":
        return {"content": [_entry(token) for token in tokens], "refusal": None}
    all_tokens = [*before, *((t.text, t.logprob, t.top) for t in tokens)]
    places = itertools.accumulate((len(text) for text, _, _ in all_tokens), initial=0)
    return {
        "tokens": [text for text, _, _ in all_tokens],
        "token_logprobs": [logprob for _, logprob, _ in all_tokens],
        "top_logprobs": [None if logprob is None else dict(top) for _, logprob, top in all_tokens],
        "text_offset": list(places)[:-1],
    }


def _prompt(job: Job) -> list[_Spelled]:
    """The tokens of a prompt that is echoed; nothing is known of the first one."""
    engine: Any = job.engines["policy"]
    spelled: list[_Spelled] = []
    for token_ids, logprobs, tops in job.prompt:

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
