"""What a scripted server says, in the forms of servers that there are.

Source: the public documentation of the API's streams and usage, and of how vLLM, SGLang and
llama.cpp's server write them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol

__all__ = ["Behaviour", "Token", "Vocabulary", "Wire", "spelt", "words_of"]

_WORDS = (
    *("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"),
    *("ibis", "jay", "koi", "lark", "mole", "newt", "owl", "pug"),
)
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "ttc": "ttc"}
_KNOWN = {
    "model", "messages", "prompt", "temperature", "top_p", "seed", "stream", "stream_options", "n",
    "stop", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "response_format",
    "presence_penalty", "frequency_penalty", "tools", "logit_bias",
}  # fmt: skip
"""What OpenAI's own API takes."""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What a server honours, and what it tells. By default all of it, as a good one does."""

    kind: Literal["vllm", "sglang", "llamacpp", "ttc", "hosted"] = "vllm"
    usage: Literal["told", "each", "wrong", "none"] = "told"
    """`each` event tells the running total, as well as the last one; `wrong` tells nonsense."""
    seed: bool = True
    n: bool = True
    top: int = 20
    """Log probabilities that it tells of each token; 0 is none."""
    scales_logprobs: bool = False
    """Whether they are those after the temperature."""
    schemas: bool = True
    tools: Literal["told", "ignored", "refused"] = "told"
    """Whether its prompts tell of tools."""
    logprobs_beside_tools: bool = True
    """Or it refuses to stream both, as llama.cpp's does."""
    biases: bool = True
    """Whether it adds `logit_bias`, or passes over it."""
    limits: bool = True
    """Whether it ends a text at `max_tokens`."""
    length_field: Literal["both", "max_completion_tokens"] = "both"
    """Which limits it takes; others are refused."""
    stops: bool = True
    streams: bool = True
    """Whether it streams, or always answers in one piece."""
    ids: Literal["each", "one"] = "each"
    tells_tokens: Literal["token_ids", "logprobs"] | None = None
    """Where it tells the ids of its tokens, if it has a vocabulary."""

    def model(self, name: str) -> dict[str, Any]:
        """A row of its list of models."""
        row = {"id": name, "object": "model", "owned_by": _OWNERS.get(self.kind, "somebody")}
        return row | ({"max_model_len": 4096} if self.kind in ("vllm", "sglang") else {})

    def refusal(self, body: Mapping[str, Any]) -> str | None:
        """Why it takes a request for wrong."""
        if self.kind == "hosted" and (wrong := set(body) - _KNOWN):
            return f"Unrecognized request argument supplied: {min(wrong)}"
        if self.length_field == "max_completion_tokens" and "max_tokens" in body:
            return "'max_tokens' is not supported with this model; use 'max_completion_tokens'"
        if self.tools == "refused" and "tools" in body:
            return "tools are not enabled on this server"
        wants_both = "tools" in body and body.get("logprobs") and body.get("stream")
        if wants_both and not self.logprobs_beside_tools:
            return "logprobs is not supported with tools + stream"
        most = 20 if self.kind != "hosted" else 5
        if body.get("top_logprobs", 0) > most:
            return f"top_logprobs is at most {most}"
        return None

    def held(self, body: Mapping[str, Any]) -> Sequence[str]:
        """What it may say under a constraint; empty where it may say anything."""
        form, choice = body.get("response_format"), body.get("structured_outputs", {}).get("choice")
        if choice and self.kind == "vllm":
            return list(choice)
        if not form or not self.schemas:
            return ()
        fields = form["json_schema"]["schema"]["properties"]
        return [json.dumps({name: spec["enum"][0] for name, spec in fields.items()})]

    def words(self, body: Mapping[str, Any], seed: int) -> str:
        """Random words, by the seed; the likeliest ones where nothing else can be drawn."""
        if not body.get("temperature", 1) or body.get("top_k") == 1 or body.get("min_p") == 1:
            seed = 0
        for token, bias in body.get("logit_bias", {}).items() if self.biases else ():
            if bias == 100:  # nothing else can be drawn
                return " ".join([_WORDS[int(token) % len(_WORDS)]] * 60)
        noise = blake2b(str(seed).encode(), digest_size=60).digest()
        return " ".join(_WORDS[byte % len(_WORDS)] for byte in noise)


def words_of(text: str) -> list[str]:
    """The tokens of a text."""
    return re.findall(r"\s*\S+|\s+$", text)


class Vocabulary(Protocol):
    """Tokens with ids."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Those that end a text."""

    def encode(self, text: str, *, after: Any = ...) -> list[int]:
        """The tokens of a text."""

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to a text."""


class Token(str):
    """A token's text, with its id."""

    id: int


def spelt(text: str, vocabulary: Vocabulary) -> list[str]:
    """The tokens of a text, and the one that ends it."""
    tokens: list[str] = []
    for token_id in (*vocabulary.encode(text, after="text"), min(vocabulary.end_ids)):
        token = Token(vocabulary.bytes_of(token_id).decode(errors="replace"))
        token.id = token_id
        tokens.append(token)
    return tokens


class Wire:
    """One reply, as it goes over the wire."""

    def __init__(
        self,
        behaviour: Behaviour,
        body: Mapping[str, Any],
        choices: Sequence[Sequence[str]],
        prompt: tuple[int, int],
    ) -> None:
        self.told = 0
        """Output tokens that it has written until now."""
        self._behaviour, self._body = behaviour, body
        self._is_chat = "messages" in body
        whole = [self._cut(words) for words in choices]
        self._choices = [words for words, _, _ in whole]
        self._ends = [end for _, *end in whole]
        self._prompt, self._cached = prompt
        digest = blake2b(repr((body.get("seed"), id(self))).encode(), digest_size=8).hexdigest()
        self._id = f"chatcmpl-{digest if behaviour.ids == 'each' else 0}"

    def _cut(self, words: Sequence[str]) -> tuple[list[str], str, str | None]:
        """The words until a stop or the limit, why they end there, and at which stop."""
        reason, most = "stop", self._body.get("max_tokens", self._body.get("max_completion_tokens"))
        text = "".join(words[:most] if self._behaviour.limits else words)
        stops = (self._body.get("stop") or ()) if self._behaviour.stops else ()
        ends = [(text.index(stop), stop) for stop in stops if stop in text]
        kept = words_of(text[: min(ends)[0]]) if ends else list(words)
        if self._behaviour.limits and most is not None and len(kept) >= most and not ends:
            kept, reason = kept[:most], "length"
        return kept, reason, min(ends)[1] if ends else None

    def whole(self) -> dict[str, Any]:
        """In one piece."""
        choices = []
        for index, words in enumerate(self._choices):
            self.told += len(words)
            said = "".join(words)
            text: dict[str, Any] = {"message": {"role": "assistant", "content": said}}
            if not self._is_chat:
                text = {"text": said}
            choices.append(
                {
                    "index": index,
                    **text,
                    "logprobs": self._logprobs(words),
                    **self._told_ids(words),
                    **self._ending(index),
                }
            )
        usage = {} if self._behaviour.usage == "none" else {"usage": self._usage()}
        return {**self._common(), "choices": choices, **usage}

    def events(self) -> Iterator[bytes]:
        """As a stream of events."""
        if self._is_chat:
            yield self._event([self._choice(0, {"role": "assistant", "content": ""})])
        if self._behaviour.kind == "hosted":
            yield b": keep-alive\n\n"
        for index, words in enumerate(self._choices):
            for word in words:
                self.told += 1
                yield self._event([self._choice(index, {"content": word}, [word])])
            yield self._event([{**self._choice(index, {}), **self._ending(index)}])
        options = self._body.get("stream_options") or {}
        if options.get("include_usage") and self._behaviour.usage != "none":
            yield self._event([], usage=self._usage())
        yield b"data: [DONE]\n\n"

    def _common(self) -> dict[str, Any]:
        name = "chat.completion" if self._is_chat else "text_completion"
        return {"id": self._id, "object": name, "created": 0, "model": self._body.get("model")}

    def _event(self, choices: list[dict[str, Any]], usage: Any = None) -> bytes:
        event = {**self._common(), "choices": choices}
        options = self._body.get("stream_options") or {}
        is_told = self._behaviour.usage == "each" or options.get("continuous_usage_stats")
        if usage is not None or (is_told and self._behaviour.usage != "none"):
            event["usage"] = usage or self._usage()
        end = "\r\n\r\n" if self._behaviour.kind == "sglang" else "\n\n"
        return f"data: {json.dumps(event, ensure_ascii=False)}{end}".encode()

    def _choice(
        self,
        index: int,
        delta: Mapping[str, Any],
        words: Sequence[str] = (),
    ) -> dict[str, Any]:
        said: dict[str, Any] = {"delta": delta}
        if not self._is_chat:
            said = {"text": delta.get("content", "")}
        logprobs = self._logprobs(words) if words else None
        told = {"logprobs": logprobs, "finish_reason": None, **self._told_ids(words)}
        return {"index": index, **said, **told}

    def _told_ids(self, words: Sequence[str]) -> dict[str, Any]:
        """The ids of tokens, where they are asked for and told in a field of their own."""
        asked = self._body.get("return_token_ids") and self._behaviour.tells_tokens == "token_ids"
        return (
            {"token_ids": [word.id for word in words if isinstance(word, Token)]} if asked else {}
        )

    def _ending(self, index: int) -> dict[str, Any]:
        """Why a choice ended; vLLM names the stop as well."""
        reason, stop = self._ends[index]
        named = {"stop_reason": stop} if self._behaviour.kind == "vllm" else {}
        return {"finish_reason": reason, **named}

    def _logprobs(self, words: Sequence[str]) -> dict[str, Any] | None:
        """Geometric ones: the i-th greatest is -(i + 1) / 2."""
        if self._body.get("logprobs") in (None, False) or not self._behaviour.top:
            return None
        heat = self._body.get("temperature", 1) if self._behaviour.scales_logprobs else 1
        asked = self._body.get("top_logprobs", 0) if self._is_chat else self._body["logprobs"]
        most = min(asked, self._behaviour.top)
        top = [{"token": _WORDS[i % 16], "logprob": -(i + 1) / 2 / heat} for i in range(most)]
        entries = [{"token": w, "logprob": -0.5 / heat, "top_logprobs": top} for w in words]
        if self._behaviour.tells_tokens == "logprobs":
            ids = [{"id": word.id} for word in words if isinstance(word, Token)]
            entries = [entry | own for entry, own in zip(entries, ids, strict=True)]
        if self._is_chat or self._behaviour.kind == "llamacpp":
            return {"content": entries}
        rows = [{other["token"]: other["logprob"] for other in top} for _ in words]
        return {"token_logprobs": [e["logprob"] for e in entries], "top_logprobs": rows}

    def _usage(self) -> dict[str, Any]:
        if self._behaviour.usage == "wrong":
            return {"prompt_tokens": -1, "completion_tokens": "many", "total_tokens": None}
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self.told,
            "total_tokens": self._prompt + self.told,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }
