"""One call of a server: sent, read as it streams, and sent again only where that costs nothing.

Its task runs on the engine's own loop; `cancel` may come from any thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from ttc.engine.openai.bodies import beginning_of
from ttc.engine.openai.failures import Failure, Refused, Unknown, failure_of
from ttc.engine.openai.frames import MOST_BYTES, Frames
from ttc.engine.openai.service import CONNECT_S
from ttc.errors import EngineError
from ttc.types import Branch, Chunk, Usage

if TYPE_CHECKING:
    from ttc.engine.openai.connection import Connection
    from ttc.engine.openai.engine import OpenAIEngine
    from ttc.engine.openai.routes import Route, Routes
    from ttc.ports import Request

__all__ = ["Call"]

_SECRET, _COUNT = secrets.token_hex(12), count()
_DRAINED_S = 1.0
"""How long a stream may stay open after its last event."""


class Call:
    """A running call; implements `ttc.ports.Generation`."""

    def __init__(
        self,
        engine: OpenAIEngine,
        request: Request,
        on_chunk: Callable[[Chunk], None] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """A call; `start` sends it.

        Args:
            engine: whose it is.
            request: what was asked for.
            on_chunk: is told of every piece.
            loop: where `start` will be called.

        Raises:
            EngineError: it asks for what the server cannot do.
        """
        self._path, self._body = engine.body_of(request)
        self.future: Future[Branch] = Future()
        self._engine, self._service, self._request = engine, engine.service, request
        self._loop = loop
        self._key = f"{_SECRET}-{os.getpid():x}-{next(_COUNT):x}"  # the same for all attempts
        self._on_chunk = on_chunk
        self._reply = engine.reply_to(request, on_chunk)
        self._is_sent = self._may_be_done = False
        self._lock = threading.Lock()
        self._is_over = False
        self._produced = 0
        self._usage: Usage | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def usage(self) -> Usage:
        """What the server told; nothing where nothing was sent."""
        if self._usage is not None:
            return self._usage
        return self._reply.usage if self._is_sent else Usage()

    def cancel(self) -> int:
        """Closes its connection, and counts what the server may have written until then.

        Where the server is not known to end the call, it is all that was allowed.
        """
        if self._close():
            self._produced = self._spent()
            self._loop.call_soon_threadsafe(self._stop)
        return self._produced

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _spent(self) -> int:
        if not self._is_sent:
            return 0
        most = self._request.max_tokens
        if self._reply.finish is not None:
            return min(most, self._reply.charged)
        is_cut = self._engine.capabilities.cancel
        return min(most, self._reply.at_most + 1) if is_cut else most  # one is on its way

    def _close(self) -> bool:
        """Ends it for good; whether it had not ended before."""
        with self._lock:
            if self._is_over:
                return False
            self._usage = self.usage
            self._is_over = True
            return True

    def start(self, routes: Routes) -> None:
        """Sends it, on the loop of its routes, unless it was cancelled before."""
        if not self._is_over:
            self._task = asyncio.get_running_loop().create_task(self._run(routes))

    async def _run(self, routes: Routes) -> None:
        try:
            async with asyncio.timeout(self._service.seconds):
                await self._in_attempts(routes)
        except TimeoutError:
            said = f"the call took more than {self._service.seconds:g} seconds"
            self._fail(Unknown(said) if self._is_sent else Refused(said))
        except EngineError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self._fail(EngineError("the call was cancelled"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits has to hear of it
            self._fail(Unknown(f"{type(error).__name__}: {error}"))

    async def _in_attempts(self, routes: Routes) -> None:
        """The first attempt, and others where a failure allows them."""
        try:
            await self._attempt(routes)
        except Failure as failure:
            if self._service.attempts == 1 or not self._may_go_again(failure):
                raise
        else:
            return
        import tenacity

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(self._may_go_again),
            stop=tenacity.stop_after_attempt(self._service.attempts - 1),
            reraise=True,
        )
        await retrying(self._attempt, routes)

    def _may_go_again(self, error: BaseException) -> bool:
        known = isinstance(error, Unknown) and self._service.deduplicates
        return isinstance(error, Failure) and (error.again or known)

    async def _attempt(self, routes: Routes) -> None:
        route = await routes.take(beginning_of(self._request.branch), self._service.seconds)
        try:
            await self._ask(route)
            routes.well(route)
        except Failure as failure:
            self._may_be_done |= isinstance(failure, Unknown)
            if failure.again or isinstance(failure, Unknown):
                routes.rest(route, failure.after)
            raise
        finally:
            routes.leave(route)

    async def _ask(self, route: Route) -> None:
        self._reply = self._engine.reply_to(self._request, self._on_chunk, after=self._reply)
        headers = [*self._engine.headers, ("idempotency-key", self._key)]
        silence = self._service.silence
        with route.connection() as connection:
            await connection.open(CONNECT_S)
            self._is_sent = True
            try:
                status, told = await connection.ask(self._path, headers, self._body, silence)
                if status != 200:
                    said, code = _fault(await self._whole(connection))
                    raise failure_of(status, told, said, code=code)
                await self._read(connection, told)
            except Refused:
                self._is_sent = self._may_be_done
                raise

    async def _read(self, connection: Connection, told: Mapping[str, str]) -> None:
        if told.get("content-encoding", "identity") != "identity":
            raise Unknown("the server compressed its reply, unasked")
        if told.get("content-type", "").startswith("application/json"):
            self._reply.take(await self._whole(connection))  # it does not stream
            self._done()
            return
        frames = Frames()
        while piece := await connection.piece(self._service.silence):
            for event in frames.feed(piece):
                if event.strip() == b"[DONE]":
                    self._done()
                    await _drain(connection)
                    return
                self._reply.take(event)
            if self._reply.is_over:
                break
        self._done()  # some servers close the stream instead

    async def _whole(self, connection: Connection) -> bytes:
        body = bytearray()
        while piece := await connection.piece(self._service.silence):
            body += piece
            if len(body) > MOST_BYTES:
                raise Unknown(f"the server sent more than {MOST_BYTES:,} bytes")
        return bytes(body)

    def _done(self) -> None:
        """Gives the whole reply to who waits."""
        segment = self._reply.segment()
        self._engine.check_copy(self._reply)
        if self._close():
            self._produced = self._reply.charged
            self.future.set_result(segment)

    def _fail(self, error: EngineError) -> None:
        if isinstance(error, Unknown) or self._may_be_done:  # by an attempt before
            error.output_tokens = self._request.max_tokens
        key = self._service.key
        if key and key in str(error):
            error.args = (str(error).replace(key, "[the key]"),)
        if self._close():
            self._produced = error.output_tokens
            self.future.set_exception(error)


async def _drain(connection: Connection) -> None:
    """Reads what a server sends after its last event, so that the connection can be used again."""
    with suppress(Exception):  # the call has its result
        async with asyncio.timeout(_DRAINED_S):
            while await connection.piece(_DRAINED_S):
                pass


def _fault(answer: bytes) -> tuple[str, str]:
    """What an answer says that is no success, and the server's name of it."""
    said, code = answer.decode("utf-8", "replace"), ""
    with suppress(ValueError, AttributeError):
        error = json.loads(said)
        error = error.get("error", error)
        code = str(error.get("code") or error.get("type") or "")
        said = str(error.get("message", said))
    return said, code
