"""A scripted server that speaks OpenAI's API, with faults on demand: what engines are tested with.

    with OpenAIServer(["The answer is 391.", "The answer is 401."]) as server:
        ttc.solve("What is 17 * 23?", "self_consistency(n=4)", model=f"openai:fake@{server.url}")
        print(server.billed)

It listens on the loopback interface alone, in a thread of its own, and counts what it is asked,
what it bills and who hangs up. Its tokens are words with the space before them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ttc.testing.openai_replies import Behaviour, Vocabulary, Wire, spelt, words_of

__all__ = ["Asked", "Fault", "OpenAIServer"]

Script = str | Sequence[str] | Callable[[Mapping[str, Any]], str]
_BLOCK = 16
"""Words of a prompt that its cache keeps together."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one request."""

    status: int | None = None
    """Refuses it with this status."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Beside the status."""
    message: str = "not now"
    """Likewise."""
    code: str | None = None
    """Likewise."""
    hang: float = 0.0
    """Takes it, bills it, and says nothing for so many seconds."""
    cut_after: int | None = None
    """Closes the connection after so many events."""
    error_after: int | None = None
    """Says after so many events that it has failed."""
    pause: float = 0.0
    """Seconds before each event."""
    raw: bytes | None = None
    """Streams these bytes instead of a reply, one at a time."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request, as it came."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


class OpenAIServer:
    """A server that says what it is told to, and counts everything that it is asked."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        behaviour: Behaviour | None = None,
        fault: Callable[[int, Asked], Fault | None] | None = None,
        models: Sequence[str] = ("fake",),
        latency: float = 0.0,
        deduplicates: bool = False,
        tokens: Vocabulary | None = None,
    ) -> None:
        """A server; `with` starts and ends it.

        Args:
            script: one reply, several, of which the seed takes one, or a function of the body. By
                default random words, by the seed.
            behaviour: what it honours and tells.
            fault: what goes wrong with the i-th request for a text.
            models: what it has.
            latency: seconds before each reply.
            deduplicates: whether it does one work for all requests with one `Idempotency-Key`.
            tokens: its vocabulary, with which it takes prompts of ids; by default its tokens are
                words, and have none.
        """
        self.behaviour = behaviour or Behaviour()
        self.asked: list[Asked] = []
        """Requests for texts, in order of arrival."""
        self.generations = 0
        """Texts that it has worked on."""
        self.prefilled = 0
        """Words of prompts that its cache did not hold."""
        self.hung_up = 0
        """Streams whose client was gone before their end."""
        self.active = 0
        """Requests that it works on now."""
        self.most_active = 0
        """The most that it ever worked on at once."""
        self._script, self._fault, self._models = script, fault, tuple(models)
        self._latency, self._deduplicates = latency, deduplicates
        self._tokens = tokens
        self._works: dict[str, str] = {}
        self._wires: list[Wire] = []
        self._cache: set[tuple[str, ...]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready, self._is_idle = threading.Event(), threading.Event()
        self._is_idle.set()
        self._thread = threading.Thread(target=self._serve, name="openai-server", daemon=True)
        self._port = 0

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def billed(self) -> int:
        """Output tokens of everything that it has worked on, each counted before it is sent."""
        return sum(wire.told for wire in self._wires)

    def join(self, seconds: float = 20.0) -> bool:
        """Waits until it works on nothing; whether it came to that in time."""
        return self._is_idle.wait(seconds)

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._connected, "127.0.0.1", self._port, backlog=2048)
        )
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0))  # whom it has just accepted begins
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET" and path.endswith("/models"):
            rows = [self.behaviour.model(name) for name in self._models]
            return await _whole(writer, 200, {"object": "list", "data": rows})
        if method != "POST" or not path.endswith("/completions"):
            return await _whole(writer, 404, {"error": {"message": f"no {path} here"}})
        asked = Asked(path=path, headers=headers, body=json.loads(body))
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        self._is_idle.clear()
        try:
            return await self._reply(asked, reader, writer)
        finally:
            self.active -= 1
            if not self.active:
                self._is_idle.set()

    async def _reply(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self.asked.append(asked)
        fault = self._fault(len(self.asked) - 1, asked) if self._fault else None
        fault = fault or Fault()
        if fault.status is not None:
            said = {"message": fault.message, "code": fault.code}
            return await _whole(writer, fault.status, {"error": said}, fault.headers)
        if refusal := self._refusal(asked.body):
            return await _whole(writer, 400, {"error": {"message": refusal}})
        wire = Wire(self.behaviour, asked.body, self._texts(asked), self._read(asked.body))
        self._wires.append(wire)
        await asyncio.sleep(self._latency + fault.hang)
        if not (asked.body.get("stream") and self.behaviour.streams):
            return await _whole(writer, 200, wire.whole())
        return await self._streamed(wire, fault, writer, reader)

    def _refusal(self, body: Mapping[str, Any]) -> str | None:
        if self._tokens is None and isinstance(body.get("prompt"), list):
            return "prompt is a text"
        return self.behaviour.refusal(body)

    async def _streamed(
        self,
        wire: Wire,
        fault: Fault,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
    ) -> bool:
        writer.write(
            _head(200, "text/event-stream; charset=utf-8", {"transfer-encoding": "chunked"})
        )
        events = wire.events() if fault.raw is None else (bytes([byte]) for byte in fault.raw)
        for count, event in enumerate(events):
            if fault.pause:
                await asyncio.sleep(fault.pause)
            if fault.cut_after == count:
                writer.transport.abort()
                return False
            if fault.error_after == count:
                event = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
            if reader.at_eof() or writer.transport.is_closing():
                self.hung_up += 1
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            if fault.pause or not count % 64:
                await writer.drain()
            if fault.error_after == count:
                break
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _texts(self, asked: Asked) -> list[list[str]]:
        """The words of every choice; a work that is done already is not done again."""
        key = asked.headers.get("idempotency-key", "")
        known = self._works.get(key) if self._deduplicates else None
        count = asked.body.get("n", 1) if self.behaviour.n else 1
        texts = []
        for choice in range(count):
            said = self._said(asked.body, choice) if known is None else known
            self._works[key] = said
            texts.append(words_of(said) if self._tokens is None else spelt(said, self._tokens))
        self.generations += count if known is None else 0
        return texts

    def _said(self, body: Mapping[str, Any], choice: int) -> str:
        if held := self.behaviour.held(body):
            return held[int(body.get("seed", 0)) % len(held)]
        if callable(self._script):
            return self._script(body)
        if isinstance(self._script, str):
            return self._script
        seed = int(body.get("seed", 0)) + choice
        if self._script is not None:
            return self._script[seed % len(self._script)]
        return self.behaviour.words(body, seed if self.behaviour.seed else len(self.asked))

    def _read(self, body: Mapping[str, Any]) -> tuple[int, int]:
        """The words of a prompt, and how many of them the cache holds."""
        prompt = body.get("prompt", "")
        messages = body.get("messages") or [{"content": prompt}]
        told = body.get("tools", ()) if self.behaviour.tools == "told" else ()
        texts = [*map(json.dumps, told), *(str(message["content"]) for message in messages)]
        words = list(map(str, prompt)) if isinstance(prompt, list) else " ".join(texts).split()
        held = 0
        for end in range(_BLOCK, len(words) + 1, _BLOCK):
            block = tuple(words[:end])
            held = end if block in self._cache and held == end - _BLOCK else held
            self._cache.add(block)
        self.prefilled += len(words) - held
        return len(words), held


async def _whole(
    writer: asyncio.StreamWriter,
    status: int,
    content: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> bool:
    body = json.dumps(content).encode()
    more = {"content-length": str(len(body)), **(headers or {})}
    writer.write(_head(status, "application/json", more) + body)
    await writer.drain()
    return True


def _head(status: int, kind: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"content-type: {kind}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
