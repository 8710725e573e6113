"""Frames: a reply as a stream of server-sent events.

Content starts when the answer is decided and is never revised. A plain sample is decided from the
start, so its pieces go out as they come. Until then there are comments, and what the client asked
to be told. A failure after the first byte is a frame of its own, and no `finish_reason` follows.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send

from ttc.serve.door import direct
from ttc.serve.job import Job
from ttc.serve.news import News
from ttc.serve.refusal import Refusal, refusal_of
from ttc.serve.reply import Choice, choices_of, told_of, usage_of
from ttc.serve.service import Service
from ttc.serve.shapes import (
    Told,
    chunk,
    delta,
    echoed,
    last_delta,
    prompt_ids,
    rest_of_tokens,
    told_of_tokens,
)
from ttc.serve.telling import Telling
from ttc.serve.watching import ClientGone, disconnected, ended
from ttc.types import Chunk, Event, Outcome

__all__ = ["Frames"]

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
_MAX_EVENTS = 256
_MAX_SHOWN = 200
_PIECE = 4_000
_NOTHING: Mapping[str, Any] = {}
_COMMENT = b": waiting\n\n"
_DONE = b"data: [DONE]\n\n"


class Frames:
    """A response that runs a job while it is sent.

    Args:
        service: what runs it.
        job: what is run.
        model: the model's name, as the client wrote it.
        on_end: is told the choices, or what went wrong, and the seconds to the first event.
    """

    def __init__(
        self,
        service: Service,
        job: Job,
        model: str,
        on_end: Callable[[list[Choice], Exception | None, float | None], None],
    ) -> None:
        self._service, self._job, self._model, self._on_end = service, job, model, on_end
        self._news = News(service.settings.heartbeat_s)
        self._pieces: deque[tuple[int, str, str]] = deque()
        self._progress: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        policy = job.engines["policy"]
        self._tellings = [
            Telling(job.ask, policy, job.prompt_of(choice).root)
            for choice in range(job.num_choices)
        ]
        self._sent: list[list[str]] = [[] for _ in range(job.num_choices)]
        self._told = [Told() for _ in range(job.num_choices)]
        self._forms: dict[int, tuple[bytes, bytes]] = {}
        """What stands around the text of a piece, for each choice that was named."""
        self._first: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends everything."""
        job = self._job
        tell = None if job.plain is None else self._tell
        watch = self._watch if job.ask.ttc.events or job.ask.ttc.thinking else None
        work = asyncio.ensure_future(self._service.perform(job, tell, watch))
        work.add_done_callback(lambda _: self._news.tell())
        gone = asyncio.ensure_future(disconnected(receive))
        gone.add_done_callback(lambda _: self._news.tell())
        choices: list[Choice] = []
        fault: Exception | None = None
        try:
            # A task of its own: a piece wakes this alone, and not every layer that awaits it.
            served = asyncio.ensure_future(self._serve(work, gone, scope, receive, send))
            choices = await served
        except (Refusal, ClientGone) as error:
            fault = error
        except OSError:  # the connection broke while something was sent
            fault = ClientGone()
        except BaseException as error:
            fault = error if isinstance(error, Exception) else ClientGone()
            raise
        finally:
            gone.cancel()
            self._news.close()
            await ended(work, job)
            self._on_end(choices, fault, self._first)

    async def _serve(
        self,
        work: asyncio.Task[list[Outcome]],
        gone: asyncio.Task[None],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> list[Choice]:
        try:
            await self._until_begun(work, gone)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            refusal = refusal_of(error)
            await refusal.response()(scope, receive, send)
            raise refusal from refusal.__cause__
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        send = direct(scope, send)
        try:
            await self._send(send, _COMMENT)
            while not work.done():
                is_silent = await self._news.wait()
                if gone.done():
                    raise ClientGone
                if self._job.ask.logprobs:
                    for telling in self._tellings:
                        await telling.expect()
                await self._send(send, self._drained() or (_COMMENT if is_silent else b""))
            choices = await choices_of(self._job, work.result())
            await self._send(send, self._drained() + self._ending(choices))
        except (ClientGone, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - a bare cut would be taken for success
            refusal = refusal_of(error)
            await self._send(send, _frame(refusal.body))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            raise refusal from refusal.__cause__
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return choices

    async def _until_begun(
        self, work: asyncio.Task[list[Outcome]], gone: asyncio.Task[None]
    ) -> None:
        """Waits for the job's turn, as long as silence is allowed: so that a refusal has a status.

        Raises:
            Refusal: its turn will not come.
        """
        begun = asyncio.ensure_future(self._job.has_begun.wait())
        try:
            await asyncio.wait(
                {work, begun, gone},
                timeout=self._service.settings.heartbeat_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            begun.cancel()
        if gone.done():
            raise ClientGone
        if work.done() and not self._job.has_begun.is_set():
            work.result()

    async def _send(self, send: Send, body: bytes) -> None:
        if body:
            if self._first is None and body != _COMMENT:
                self._first = time.monotonic() - self._job.began
            await send({"type": "http.response.body", "body": body, "more_body": True})

    # What comes from the run, in its own event loop.

    def _tell(self, index: int, piece: Chunk) -> None:
        thought, answer = self._tellings[index].feed(piece)
        if answer or (thought and self._job.ask.ttc.thinking):
            self._pieces.append((index, thought, answer))
            self._news.tell()

    def _watch(self, index: int, event: Event) -> None:
        if self._job.ask.ttc.events:
            self._progress.append({"index": index, **_progress(event)})
        candidate = event.candidate
        if self._job.ask.ttc.thinking and candidate is not None and self._job.plain is None:
            self._pieces.append((index, f"{candidate.text}\n\n", ""))
        self._news.tell()

    # What is sent.

    def _drained(self) -> bytes:
        """Frames of all that has come since; pieces of one choice in a row are one."""
        frames = []
        while self._progress:
            told = self._progress.popleft()
            empty = delta(self._job, told["index"])
            frames.append(_frame(chunk(self._job, self._model, [empty], ttc=told)))
        while self._pieces:
            index, thought, answer = self._pieces.popleft()
            while self._pieces and self._pieces[0][0] == index:
                _, more_thought, more_answer = self._pieces.popleft()
                thought, answer = thought + more_thought, answer + more_answer
            tokens = self._due(index, answer) if self._job.ask.tells_tokens else {}
            frames.append(self._said(index, thought, answer, tokens))
        return b"".join(frames)

    def _due(self, index: int, answer: str) -> dict[str, Any]:
        """What is told of the tokens that an answer's next characters bring to their end."""
        told = self._told[index]
        told.num_chars += len(answer)
        return told_of_tokens(self._job, index, self._tellings[index].due(told.num_chars), told)

    def _said(
        self, index: int, thought: str, answer: str, tokens: Mapping[str, Any] = _NOTHING
    ) -> bytes:
        said: dict[str, Any] = {}
        self._sent[index].append(answer)
        form = self._forms.get(index)
        if form is not None and answer and not (thought or tokens):
            return form[0] + orjson.dumps(answer) + form[1]
        more: Mapping[str, Any] = _NOTHING
        if form is None:
            more = prompt_ids(self._job, index)
            self._forms[index] = self._form(index)
            said["role"] = "assistant"
            answer = echoed(self._job, index) + answer
        if thought and self._job.ask.ttc.thinking and self._job.ask.endpoint == "chat":
            said["reasoning_content"] = thought
        if answer or tokens or "role" in said:
            said["content"] = answer
        if not said:
            return b""
        choice = {**delta(self._job, index, **said), **tokens}
        if self._job.ask.endpoint == "chat":
            return _frame(chunk(self._job, self._model, [choice], **more))
        return _frame(chunk(self._job, self._model, [{**choice, **more}]))

    def _form(self, index: int) -> tuple[bytes, bytes]:
        """What stands before the text of a choice's next pieces, and after it."""
        piece = chunk(self._job, self._model, [delta(self._job, index, content="")])
        before, _, after = _frame(piece).rpartition(b'""')
        return before, after

    def _ending(self, choices: list[Choice]) -> bytes:
        """The rest of every choice, why it ended, and what was used."""
        frames = []
        for choice in choices:
            sent = "".join(self._sent[choice.index])
            if not choice.content.startswith(sent):
                raise Refusal(500, "the text was revised while it was sent", code="internal_error")
            rest = choice.content[len(sent) :]
            tokens = rest_of_tokens(self._job, choice, self._told[choice.index])
            if rest or tokens or choice.index not in self._forms:
                pieces = [rest[at : at + _PIECE] for at in range(0, len(rest), _PIECE)] or [""]
                frames.append(self._said(choice.index, "", pieces[0], tokens))
                frames += [self._said(choice.index, "", piece) for piece in pieces[1:]]
            frames += [_frame(chunk(self._job, self._model, [d])) for d in self._called(choice)]
        for choice in choices:
            last = last_delta(self._job, choice)
            told = {"ttc": told_of(self._job, choices)} if choice is choices[-1] else {}
            frames.append(_frame(chunk(self._job, self._model, [last], **told)))
        if self._job.ask.include_usage:
            usage = usage_of(self._job, choices)
            frames.append(_frame({**chunk(self._job, self._model, []), "usage": usage}))
        return b"".join([*frames, _DONE])

    def _called(self, choice: Choice) -> Iterator[dict[str, Any]]:
        """The pieces of a choice's calls: of each its name, and then its arguments."""
        for place, call in enumerate(choice.calls):
            function, head = call["function"], {"id": call["id"], "type": call["type"]}
            named = {"index": place, **head, "function": {**function, "arguments": ""}}
            yield delta(self._job, choice.index, tool_calls=[named])
            given = function["arguments"]
            for at in range(0, len(given), _PIECE):
                piece = {"index": place, "function": {"arguments": given[at : at + _PIECE]}}
                yield delta(self._job, choice.index, tool_calls=[piece])


def _frame(content: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(content) + b"\n\n"


def _progress(event: Event) -> dict[str, Any]:
    """An event as a client is told it: what was spent, by whom, and what was found."""
    told: dict[str, Any] = {
        "event": event.kind,
        "path": event.path,
        "tokens": event.usage.tokens,
        "calls": event.usage.calls,
        "tokens_by_role": {role: usage.tokens for role, usage in event.by_role.items()},
    }
    if event.call is not None:
        told["call"] = event.call
    if event.rule is not None:
        told["rule"] = event.rule
    if (candidate := event.candidate) is not None:
        answer = candidate.answer
        told["answer"] = answer if answer is None else answer[:_MAX_SHOWN]
        told["status"] = candidate.status
        told["scores"] = {name: score.value for name, score in candidate.scores.items()}
    return told
