"""Finding out what a server does, by asking it: a dozen requests of a few tokens each.

What a parameter should do is seen in what comes back, not in that it was accepted: one seed must
give one text and another seed another one; a limit of tokens must end a text; the log probabilities
of a first token must not move with the temperature, or they are not the model's own. A server that
does not enforce a limit of tokens is refused, since no budget can hold with it.

It costs some hundred tokens, outside of every run's budget; the report tells how many.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

from ttc.engine.openai.engine import OpenAIEngine, http_client, texts_of
from ttc.engine.openai.replies import Reply
from ttc.engine.openai.report import KINDS, Report, TellsTokens
from ttc.engine.openai.service import Service
from ttc.engine.thread import LoopThread
from ttc.errors import EngineError
from ttc.ports import Request
from ttc.types import MAX_LOGPROBS, Branch, Sampling

__all__ = ["connect", "probe"]

_THREAD = LoopThread("ttc-probe")
_MOST = 12
"""Output tokens of a probe."""
_PAUSES = (0.1, 1.0, 2.0)
"""Seconds after each attempt at a probe that broke: it is small, and may be paid twice."""
_ASKED = "Write a long list of random words."
_EXTENSIONS: Mapping[str, Any] = {"top_k": 1, "min_p": 1.0, "logit_bias": {"1000": 100}}
"""Parameters, with the value at which any seed gives one text: one token has all probability."""
_WAYS: tuple[TellsTokens, ...] = get_args(TellsTokens)
_BY_KIND = {
    "vllm": {"repetition_penalty"},
    "sglang": {"repetition_penalty"},
    "llamacpp": {"repetition_penalty"},
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "pick",
        "description": "Picks a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {"q7": {"type": "integer", "enum": [41]}},
    "required": ["q7"],
    "additionalProperties": False,
}


def connect(service: Service) -> OpenAIEngine:
    """An engine on a service, after its servers were asked what they do.

    Of several servers only what all of them do counts.

    Raises:
        EngineError: one cannot be reached, has no such model, or keeps to no limit of tokens.
    """
    return OpenAIEngine(service, probe(service))


def probe(service: Service) -> Report:
    """What all servers of a service were found to do.

    Raises:
        EngineError: as `connect`.
    """

    async def ask_all() -> list[Report]:
        return list(await asyncio.gather(*(_Probe(service, url).run() for url in service.urls)))

    reports = _THREAD.run(ask_all())
    report = reports[0]
    for other in reports[1:]:
        report = _both(report, other)
    return report


def _both(one: Report, other: Report) -> Report:
    if one.length_field != other.length_field:
        raise EngineError(
            f"one server limits tokens by {one.length_field} and another by {other.length_field}, "
            "so they cannot serve one model together"
        )
    if one.tells_tokens != other.tells_tokens:
        raise EngineError("the servers tell their tokens in two ways; leave tokenizer out")
    usage, more = ("streams_usage", "tells_usage"), ("tools", "logprobs_beside_tools")
    truths = (*usage, "seed", "n", "schemas", "ids", *more)
    contexts = [report.context for report in (one, other) if report.context is not None]
    return replace(
        one,
        kind=one.kind if one.kind == other.kind else "unknown",
        context=min(contexts, default=None),
        logprobs=min(one.logprobs, other.logprobs),
        honours=one.honours & other.honours,
        overhead=max(one.overhead, other.overhead),
        tokens=one.tokens + other.tokens,
        notes={**other.notes, **one.notes},
        **{name: getattr(one, name) and getattr(other, name) for name in truths},
    )


class _Refusal(Exception):
    """A server that takes a request for wrong."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {' '.join(said.split())[:200]}")
        self.status, self.said = status, said


class _Probe:
    """The questions to one server."""

    def __init__(self, service: Service, url: str) -> None:
        self._service, self._url = service, url
        self._client = http_client(service, url)
        self._length_field = "max_tokens"
        self._tokens = 0
        self._notes: dict[str, str] = {}
        self._texts = None if service.tokenizer is None else texts_of(service)

    async def run(self) -> Report:
        """All questions."""
        try:
            async with asyncio.timeout(self._service.seconds):
                return await self._found()
        except TimeoutError:
            raise EngineError(
                f"{self._url} did not answer a dozen small requests in "
                f"{self._service.seconds:g} seconds"
            ) from None
        finally:
            await self._client.aclose()

    async def _found(self) -> Report:
        kind, context = await self._listed()
        streams_usage, first = await self._first()
        said = asyncio.gather(self._said(seed=1), self._said(seed=2))
        same = asyncio.gather(
            *(self._ignores_seeds(name, value) for name, value in _EXTENSIONS.items())
        )
        plain = first.usage.input_tokens
        does = asyncio.gather(
            self._choices(), self._schema(), self._logprobs(), self._takes_tools(plain)
        )
        (again, other), are_same, (n, schemas, logprobs, tools) = await asyncio.gather(
            said, same, does
        )
        beside = not (tools and logprobs) or await self._takes_both(logprobs, streams_usage)
        honours = {name for name, is_same in zip(_EXTENSIONS, are_same, strict=True) if is_same}
        texts = [reply.text for reply in (first, again, other)]
        ids = {reply.id for reply in (first, again, other)}
        if len(set(texts)) == 1:
            self._notes["seed"] = "every probe gave one text"
        length = len(Branch(text=_prompt(), token_ids=None).text.encode())
        return Report(
            kind=kind,
            context=context,
            length_field=self._length_field,
            streams_usage=streams_usage,
            tells_usage=first.length is not None,
            seed=texts[0] == texts[1] != texts[2],
            n=n,
            logprobs=logprobs,
            schemas=schemas,
            tools=tools,
            logprobs_beside_tools=beside,
            honours=frozenset(honours | _BY_KIND.get(kind, set())),
            ids=len(ids) == len(texts) and None not in ids,
            tells_tokens=await self._prompts_of_tokens(kind),
            overhead=max(0, first.usage.input_tokens - length),
            tokens=self._tokens,
            notes=self._notes,
        )

    async def _listed(self) -> tuple[str, int | None]:
        """The server's kind and context, out of its list of models."""
        http = _http()
        try:
            answer = await self._client.get(f"{self._url}/models")
        except http.HTTPError as error:
            raise EngineError(f"{self._url} cannot be reached: {error!r:.200}") from None
        if answer.status_code in (401, 403):
            raise EngineError(f"{self._url} wants another key; set OPENAI_API_KEY")
        try:
            models = answer.json()["data"] if answer.status_code == 200 else []
            found = {str(model["id"]): model for model in models}
        except (ValueError, KeyError, TypeError):
            found = {}
        name = self._service.model
        is_own = any(model.get("owned_by") == "ttc" for model in found.values())
        model = found.get(name.partition("@")[0] if is_own else name)  # ttc: MODEL@STRATEGY
        if found and model is None and len(found) < 50:
            raise EngineError(
                f"{self._url} has no model {self._service.model!r}; it has "
                f"{', '.join(sorted(found))}"
            )
        told = model or {}
        context = told.get("max_model_len")
        kind = KINDS.get(str(told.get("owned_by")), "unknown")
        return kind, context if type(context) is int else None

    async def _first(self) -> tuple[bool, Reply]:
        """A first text; finds out how the server wants to be told of limits and of usage."""
        streams_usage = True
        for _ in range(3):
            try:
                reply = await self._ask(stream_options=streams_usage, seed=1)
                break
            except _Refusal as refusal:
                if "stream_options" in refusal.said and streams_usage:
                    streams_usage = False
                elif self._length_field == "max_tokens" and "max_tokens" in refusal.said:
                    self._length_field = "max_completion_tokens"
                else:
                    raise EngineError(
                        f"{self._url} refuses the simplest request: {refusal}"
                    ) from None
        else:
            raise EngineError(f"{self._url} takes no limit of tokens")
        least = len(reply.text.split()) // 2  # a token is seldom two words
        if max(reply.length or 0, least) > _MOST:
            raise EngineError(
                f"{self._url} was asked for {_MOST} tokens and gave {reply.length or 'more'}: it "
                f"does not enforce {self._length_field}, so no budget would hold"
            )
        return streams_usage, reply

    async def _said(self, **more: Any) -> Reply:
        try:
            return await self._ask(**more)
        except _Refusal as refusal:
            raise EngineError(f"{self._url} refuses a simple request: {refusal}") from None

    async def _ignores_seeds(self, name: str, value: Any) -> bool:
        """Whether a parameter that leaves one token to draw gives one text for any seed."""
        try:
            hot: dict[str, Any] = {"temperature": 2.0, name: value}
            replies = await asyncio.gather(*(self._ask(seed=s, **hot) for s in (3, 4)))
        except _Refusal as refusal:
            self._notes.setdefault("further parameters", f"{name} is refused: {refusal}")
            return False
        return len({reply.text for reply in replies}) == 1

    async def _choices(self) -> bool:
        try:
            answer = await self._post({**self._body(seed=1), "n": 2, "stream": False})
        except _Refusal:
            return False
        choices = answer.get("choices") or ()
        self._tokens += _MOST * len(choices)
        return len(choices) == 2

    async def _schema(self) -> bool:
        """Whether a text is of a schema that nobody would write by chance."""
        named = {"name": "answer", "strict": True, "schema": _SCHEMA}
        form = {"type": "json_schema", "json_schema": named}
        try:
            reply = await self._ask(seed=1, response_format=form, most=4 * _MOST)
            return bool(json.loads(reply.text) == {"q7": 41})
        except (_Refusal, ValueError):
            return False

    async def _takes_tools(self, plain: int) -> bool:
        """Whether the prompt grows by a tool: who drops tools writes the same prompt.

        Args:
            plain: the tokens of the prompt without it.
        """
        try:
            reply = await self._ask(seed=1, tools=[_TOOL], most=1)
        except (_Refusal, EngineError) as refusal:  # some servers call it a fault of their own
            self._notes["tools"] = f"refused: {refusal}"
            return False
        return 0 < plain < reply.usage.input_tokens

    async def _takes_both(self, most: int, streams_usage: bool) -> bool:
        """Whether log probabilities can be asked for beside tools, in a stream."""
        asked: dict[str, Any] = {"logprobs": True, "top_logprobs": most, "tools": [_TOOL]}
        try:
            await self._ask(stream_options=streams_usage, seed=1, most=1, **asked)
        except (_Refusal, EngineError) as refusal:
            self._notes["logprobs"] = f"none beside tools, {refusal}"
            return False
        return True

    async def _logprobs(self) -> int:
        """How many log probabilities a token has, where they are the model's own."""
        for most in (MAX_LOGPROBS, 5):
            asked: dict[str, Any] = {"logprobs": True, "top_logprobs": most, "seed": 1, "most": 1}
            try:
                cool, hot = await asyncio.gather(
                    self._ask(temperature=0.5, **asked), self._ask(temperature=1.5, **asked)
                )
            except _Refusal as refusal:
                self._notes["logprobs"] = f"refused: {refusal}"
                continue
            tops = [reply.greatest for reply in (cool, hot)]
            if not all(tops):
                return 0
            pairs = list(zip(*tops, strict=False))
            self._notes.pop("logprobs", None)
            if any(abs(a - b) > 0.05 for a, b in pairs[:3]):
                self._notes["logprobs"] = "there, but they move with the temperature"
                return 0
            return min(map(len, tops))
        return 0

    async def _prompts_of_tokens(self, kind: str) -> TellsTokens | None:
        """Where replies to prompts of tokens have theirs; `None` where there is no vocabulary.

        Raises:
            EngineError: they have none, or the vocabulary is not the server's.
        """
        if self._texts is None:
            return None
        from ttc.engine.openai.token_replies import tokens_of

        tokens = self._texts.tokens
        prompt = tokens.encode(_ASKED)
        own = {"model": self._service.model, "prompt": prompt, "temperature": 0, "stream": False}
        body = {**own, self._length_field: _MOST, "return_token_ids": True}
        try:
            try:  # where some servers tell the ids, others refuse
                answer = await self._post({**body, "logprobs": 1}, "/completions")
            except _Refusal:
                answer = await self._post(body, "/completions")
            choice, count = answer["choices"][0], answer["usage"]["prompt_tokens"]
        except (_Refusal, LookupError, TypeError) as refusal:
            raise self._no_tokens(f"takes no prompts of tokens ({refusal})") from None
        self._tokens += len(prompt) + _MOST
        if count != len(prompt):
            raise self._no_tokens(f"read {count} tokens where {len(prompt)} were sent")
        if kind not in KINDS and not self._service.cancels:
            raise self._no_tokens("is not known to end a call that is left; set cancels=True")
        told = {way: [token for token, *_ in tokens_of(choice, way)] for way in _WAYS}
        way = next((way for way in _WAYS if told[way]), None)
        if way is None:
            raise self._no_tokens("does not tell the ids of its tokens")
        text = tokens.decode(told[way], after="text")
        if text.rstrip("\ufffd") != choice["text"].rstrip("\ufffd"):
            raise self._no_tokens(f"said {choice['text']!r}, and its ids are {text!r}")
        return way

    def _no_tokens(self, why: str) -> EngineError:
        return EngineError(
            f"{self._url} {why}, so {self._service.tokenizer} cannot be its tokenizer; leave it "
            "out, and the model is asked by texts"
        )

    def _body(self, *, most: int = _MOST, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": _ASKED}]
        body = {"model": self._service.model, "messages": messages, "temperature": 1.0}
        return {**body, self._length_field: most, **more}

    async def _ask(self, *, stream_options: bool = False, **more: Any) -> Reply:
        """A reply. Only the first one is streamed: the others are small."""
        body = self._body(**more)
        request = Request(
            branch=Branch(text=_prompt(), token_ids=None),
            max_tokens=body[self._length_field],
            sampling=Sampling(logprobs=int(more.get("top_logprobs", 0))),
            seed=0,
        )
        reply = Reply(request)
        if stream_options:
            body["stream_options"] = {"include_usage": True}
            body["stream"] = True
            await self._streamed(body, reply)
        else:
            reply.take(json.dumps(await self._post(body)).encode())
        self._tokens += reply.usage.input_tokens + reply.charged
        return reply

    async def _streamed(self, body: Mapping[str, Any], reply: Reply) -> None:
        from ttc.engine.openai.frames import Frames

        answer = await self._sent(body)
        if answer.headers.get("content-type", "").startswith("application/json"):
            reply.take(answer.content)
            return
        for event in Frames().feed(answer.content):
            if event.strip() == b"[DONE]":
                return
            reply.take(event)

    async def _post(
        self, body: Mapping[str, Any], path: str = "/chat/completions"
    ) -> dict[str, Any]:
        answer = await self._sent(body, path)
        try:
            content = answer.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise EngineError(f"{self._url} answered no JSON to a request: {answer.text[:80]!r}")
        return content

    async def _sent(self, body: Mapping[str, Any], path: str = "/chat/completions") -> Any:
        http, url, fault = _http(), f"{self._url}{path}", ""
        for pause in _PAUSES:
            try:
                answer = await self._client.post(url, json=dict(body))
                if answer.status_code not in (429, 503):
                    break
                fault = f"answered {answer.status_code} to a probe, over and over"
            except http.HTTPError as error:
                fault = f"broke a probe: {error!r:.200}"
            await asyncio.sleep(pause)
        else:
            raise EngineError(f"{self._url} {fault}")
        if answer.status_code in (400, 404, 422, 501):
            raise _Refusal(answer.status_code, answer.text)
        if answer.status_code != 200:
            said = " ".join(answer.text.split())[:200]
            raise EngineError(f"{self._url} answered {answer.status_code} to a probe: {said}")
        return answer


def _prompt() -> str:
    return json.dumps({"messages": [{"role": "user", "content": _ASKED}]})


def _http() -> Any:
    import httpx2

    return httpx2
