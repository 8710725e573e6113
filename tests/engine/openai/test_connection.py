"""One connection: what goes over it, when it is used again, and what goes wrong with it."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ttc.engine.openai.connection import Connection
from ttc.engine.openai.failures import Failure, Refused, Unknown

BODY = b'{"seed": 1}'
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nso"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nso\r\n3\r\n it\r\n0\r\n\r\n"
SECONDS = 10.0


class Raw:
    """A server that writes given bytes to each request, and keeps what it was sent."""

    def __init__(self, *replies: bytes, closes: bool = False) -> None:
        self.asked: list[bytes] = []
        self.connections = 0
        self._replies, self._closes = list(replies), closes

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.asked.append(head + await reader.readexactly(len(BODY)))
                writer.write(self._replies.pop(0) if self._replies else PLAIN)
                if self._closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def served(raw: Raw, work: Callable[[str], Coroutine[Any, Any, Any]], **more: Any) -> Any:
    """What some work with the server's address comes to."""

    async def run() -> Any:
        async with await asyncio.start_server(raw.connected, "127.0.0.1", 0, **more) as server:
            return await work(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")

    return asyncio.run(asyncio.wait_for(run(), SECONDS))


async def ask(connection: Connection) -> tuple[int, bytes]:
    """One whole request."""
    await connection.open(SECONDS)
    status, _ = await connection.ask("/completions", [("accept", "*/*")], BODY, SECONDS)
    whole = b""
    while piece := await connection.piece(SECONDS):
        whole += piece
    return status, whole


def asked(raw: Raw, times: int = 1) -> list[tuple[int, bytes]]:
    """What requests come to that follow each other on one connection."""

    async def work(address: str) -> list[tuple[int, bytes]]:
        connection = Connection(f"http://{address}/v1", None)
        try:
            return [await ask(connection) for _ in range(times)]
        finally:
            connection.close()

    given: list[tuple[int, bytes]] = served(raw, work)
    return given


def test_a_request_is_what_http_asks_for() -> None:
    raw = Raw()
    asked(raw)

    head, _, body = raw.asked[0].partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    assert first == b"POST /v1/completions HTTP/1.1"
    assert lines[0].startswith(b"host: 127.0.0.1:")
    assert lines[1:] == [b"content-length: 11", b"accept: */*"]
    assert body == BODY


def test_requests_that_follow_each_other_share_a_connection() -> None:
    raw = Raw(PLAIN, CHUNKED, PLAIN)

    assert asked(raw, 3) == [(200, b"so"), (200, b"so it"), (200, b"so")]
    assert raw.connections == 1


@pytest.mark.parametrize("more", [b"", b"connection: close\r\n"])
def test_a_server_that_hangs_up_is_connected_to_again(more: bytes) -> None:
    """Whether it says so or not: no request is written where nobody reads."""
    reply = PLAIN.replace(b"content-length", more + b"content-length")
    raw = Raw(reply, reply, closes=True)

    assert asked(raw, 2) == [(200, b"so")] * 2
    assert raw.connections == 2


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nso it ends"

    assert asked(Raw(reply, closes=True)) == [(200, b"so it ends")]


def test_what_a_server_says_before_its_answer_is_passed_over() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"

    assert asked(Raw(early + PLAIN)) == [(200, b"so")]


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nso", b"\0\0\r\n\r\n"]
)
def test_a_connection_that_breaks_leaves_open_what_was_done(reply: bytes) -> None:
    with pytest.raises(Unknown, match="the connection broke"):
        asked(Raw(reply, closes=True))


def test_silence_leaves_open_what_was_done() -> None:
    async def work(address: str) -> None:
        connection = Connection(f"http://{address}", None)
        await connection.open(SECONDS)
        try:
            await connection.ask("/", [], BODY, 0.05)
        finally:
            connection.close()

    with pytest.raises(Unknown, match=r"said nothing for 0\.05 seconds"):
        served(Raw(b"HTTP/1.1 200"), work)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_a_server_that_is_not_there_was_sent_nothing(url: str) -> None:
    with pytest.raises(Refused, match="cannot be reached") as caught:
        asyncio.run(Connection(url, None).open(SECONDS))

    assert caught.value.again


def secret(folder: Path) -> tuple[str, str]:
    """A certificate of localhost for a day, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here, which would make a certificate")
    own, key = str(folder / "own.pem"), str(folder / "key.pem")
    made = ("openssl", "req", "-x509", "-nodes", "-days", "1", "-subj", "/CN=localhost")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    names = ("-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", own)
    subprocess.run([*made, *kind, *names], check=True, capture_output=True)
    return own, key


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_server_has_to_prove_who_it_is(tmp_path: Path, is_trusted: bool) -> None:
    own, key = secret(tmp_path)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(own, key)
    trust = ssl.create_default_context(cafile=own if is_trusted else None)

    async def work(address: str) -> list[tuple[int, bytes]]:
        connection = Connection(f"https://localhost:{address.split(':')[1]}/v1", trust)
        try:
            return [await ask(connection) for _ in range(2)]
        finally:
            connection.close()

    raw = Raw()
    if is_trusted:
        assert served(raw, work, ssl=ours) == [(200, b"so")] * 2
        assert raw.connections == 1
    else:
        with pytest.raises(Failure, match="CERTIFICATE_VERIFY_FAILED"):
            served(raw, work, ssl=ours)
        assert raw.asked == []
