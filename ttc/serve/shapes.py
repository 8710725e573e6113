"""Shapes: the JSON of replies and chunks, of both endpoints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ttc.serve.job import Job
from ttc.serve.reply import Choice, Token, by_id, namer, told_of, usage_of

__all__ = [
    "Told",
    "chunk",
    "delta",
    "echoed",
    "fingerprint",
    "last_delta",
    "prompt_ids",
    "rest_of_tokens",
    "told_of_tokens",
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
        **(prompt_ids(job, 0) if is_chat else {}),
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
        **_ids(job, choice),
    }


def _text(job: Job, choice: Choice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": echoed(job, choice.index) + choice.content,
        "logprobs": _all_logprobs(job, choice),
        "finish_reason": choice.finish_reason,
        **_ids(job, choice),
        **prompt_ids(job, choice.index),
    }


def _ids(job: Job, choice: Choice) -> dict[str, Any]:
    if not job.ask.token_ids:
        return {}
    return {"token_ids": None if choice.token_ids is None else list(choice.token_ids)}


def prompt_ids(job: Job, choice: int) -> dict[str, Any]:
    """The tokens of a choice's prompt, where they were asked for: of a chat there is one."""
    if not job.ask.token_ids:
        return {}
    return {"prompt_token_ids": list(job.prompt_of(choice).root.token_ids or ())}


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
        self.num_ids = 0
        """Tokens of it, and of a thought before it, by their ids."""
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
        return {"content": [_entry(job, token) for token in tokens], "refusal": None}
    all_tokens = [*before, *tokens]
    places = itertools.accumulate((len(token.text) for token in all_tokens), initial=told.end)
    *starts, told.end = places
    return {
        "tokens": [_name(job, token) for token in all_tokens],
        "token_logprobs": [token.logprob for token in all_tokens],
        "top_logprobs": [None if t.logprob is None else dict(t.top) for t in all_tokens],
        "text_offset": starts,
    }


def told_of_tokens(job: Job, choice: int, tokens: Sequence[Token], told: Told) -> dict[str, Any]:
    """What a chunk tells of the next tokens of a choice, those of a thought before it included."""
    found: dict[str, Any] = {}
    answer = [token for token in tokens if not token.is_thought]
    if job.ask.logprobs is not None and answer:
        found["logprobs"] = logprobs_of(job, choice, answer, told)
    if job.ask.token_ids and tokens:
        found["token_ids"] = [token.id for token in tokens]
        told.num_ids += len(tokens)
    return found


def rest_of_tokens(job: Job, choice: Choice, told: Told) -> dict[str, Any]:
    """What was not told before of a choice's tokens, or of a prompt that is echoed."""
    found: dict[str, Any] = {}
    if choice.tokens is not None and not 0 < told.num_tokens == len(choice.tokens):
        rest = choice.tokens[told.num_tokens :]
        found["logprobs"] = logprobs_of(job, choice.index, rest, told)
    if choice.token_ids is not None and told.num_ids < len(choice.token_ids):
        found["token_ids"] = list(choice.token_ids[told.num_ids :])
    return found


def _prompt(job: Job, choice: int) -> list[Token]:
    """The tokens of a prompt that is echoed; nothing is known of the first one."""
    engine: Any = job.engines["policy"]
    spelled: list[Token] = []
    names = namer(engine, job.ask) or str
    for token_ids, logprobs, tops in job.prompt_of(choice).read[:1]:
        for place, (token, logprob) in enumerate(zip(token_ids, [None, *logprobs], strict=True)):
            expected = tops[place - 1] if tops and place else None
            top = zip(expected.token_ids, expected.logprobs, strict=True) if expected else ()
            text = engine.spell(token).decode(errors="replace")
            named = tuple((names(t), value) for t, value in top)
            spelled.append(Token(text=text, logprob=logprob, top=named, id=token))
    return spelled


def _name(job: Job, token: Token) -> str:
    return by_id(token.id) if job.ask.names_by_id else token.text


def _entry(job: Job, token: Token) -> dict[str, Any]:
    own = {**_one(_name(job, token), token.logprob), "bytes": list(token.text.encode())}
    return {**own, "top_logprobs": [_one(*one) for one in token.top]}


def _one(name: str, logprob: float | None) -> dict[str, Any]:
    return {"token": name, "logprob": logprob, "bytes": list(name.encode())}
