"""One HTTP/1.1 connection to a server, on asyncio's streams; h11 speaks the protocol.

A request is one write, and a reply is read as it comes, as many bytes at once as are there. What
goes wrong is told in the words of `failures`: before the first byte was written nothing was sent,
and afterwards nobody knows what was done.

*Cost:* a third of what a pooled client takes for the same request, which looks through all of its
connections, and writes heads and bodies apart.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import h11

from ttc.engine.openai.failures import Refused, Unknown

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["Connection"]

_AT_ONCE = 65_536
"""Bytes that one read takes at most."""
_MOST_OF_A_HEAD = 100_000
_IDLE_S = 2.0
"""How long an idle connection is kept: less than servers keep theirs, so none breaks in use."""
_PORTS = {"http": 80, "https": 443}


class Connection:
    """A connection to one server, for one request at a time. Of one event loop."""

    def __init__(self, url: str, trust: SSLContext | None) -> None:
        """A connection; `open` makes it.

        Args:
            url: the server's base URL.
            trust: the certificates that are trusted; `None` where there is nothing to verify.
        """
        parts = urlsplit(url)
        self._url, self._trust = url, trust
        self._host, self._port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        self._address, self._prefix = parts.netloc, parts.path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._protocol = h11.Connection(h11.CLIENT)
        self._idle_since: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and can take another request."""
        return self._idle_since is not None

    async def open(self, seconds: float) -> None:
        """Connects, unless it is connected.

        Raises:
            Refused: the server cannot be reached within so many seconds; nothing was sent.
        """
        if self._is_usable():
            return
        self.close()
        try:
            async with asyncio.timeout(seconds):
                self._streams = await asyncio.open_connection(
                    self._host, self._port, ssl=self._trust, happy_eyeballs_delay=0.25
                )
        except (OSError, UnicodeError) as error:
            said = f"{self._url} cannot be reached: {error!r:.200}"
            raise Refused(said, again=True) from None
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_OF_A_HEAD)

    def _is_usable(self) -> bool:
        """Whether it is open, and the server has not hung up and will not soon."""
        if self._streams is None or self._idle_since is None:
            return False
        reader, writer = self._streams
        if time.monotonic() > self._idle_since + _IDLE_S or reader.at_eof():
            return False
        own = select.poll()
        own.register(writer.get_extra_info("socket"), select.POLLIN)
        return not own.poll(0)  # what comes unasked is its end

    async def ask(
        self, path: str, headers: Sequence[tuple[str, str]], body: bytes, silence: float
    ) -> tuple[int, Mapping[str, str]]:
        """Sends a request, and reads the status and the headers of its answer.

        Raises:
            Unknown: the connection broke, or the server said nothing for `silence` seconds.
        """
        assert self._streams is not None
        self._idle_since = None
        own = [("host", self._address), ("content-length", str(len(body)))]
        request = h11.Request(method="POST", target=self._prefix + path, headers=[*own, *headers])
        events = (request, h11.Data(body), h11.EndOfMessage())
        _, writer = self._streams
        writer.write(b"".join(self._protocol.send(event) or b"" for event in events))
        with _faults(silence), suppress(ConnectionError):  # it may have answered, and hung up
            async with asyncio.timeout(silence):
                await writer.drain()
        answer = await self._event(silence)
        while not isinstance(answer, h11.Response):
            answer = await self._event(silence)  # one that only says that more will come
        told = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers)
        return answer.status_code, dict(told)

    async def piece(self, silence: float) -> bytes:
        """The next bytes of the answer, all that have come; none at its end.

        Raises:
            Unknown: as `ask`.
        """
        data: list[bytes] = []
        if self._idle_since is None and self._protocol.their_state is h11.SEND_BODY:
            event = await self._event(silence)
            while isinstance(event, h11.Data):
                data.append(event.data)
                event = self._next()
            if isinstance(event, h11.EndOfMessage):
                self._ended()
        return b"".join(data)

    def _ended(self) -> None:
        """Makes ready for another request, where the server lets the connection stay open."""
        if self._protocol.our_state is self._protocol.their_state is h11.DONE:
            self._protocol.start_next_cycle()
            self._idle_since = time.monotonic()

    def close(self) -> None:
        """Ends it at once, whatever was still to come."""
        if self._streams is not None:
            self._streams[1].transport.abort()
        self._streams = self._idle_since = None

    async def _event(self, silence: float) -> Any:
        """The protocol's next event, once it has come."""
        assert self._streams is not None
        reader, _ = self._streams
        while (event := self._next()) is h11.NEED_DATA:
            with _faults(silence):
                async with asyncio.timeout(silence):
                    data = await reader.read(_AT_ONCE)
            self._protocol.receive_data(data)
        return event

    def _next(self) -> Any:
        try:
            return self._protocol.next_event()
        except h11.RemoteProtocolError as error:
            raise Unknown(f"the connection broke: {error!r:.200}") from None


@contextmanager
def _faults(silence: float) -> Iterator[None]:
    """What goes wrong with the streams, in the words of `failures`."""
    try:
        yield
    except TimeoutError:
        raise Unknown(f"the server said nothing for {silence:g} seconds") from None
    except OSError as error:
        raise Unknown(f"the connection broke: {error!r:.200}") from None
