"""Tools of an MCP server by its address: one that hangs, floods or dies ends a call alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.tools.lab import called
from ttc.errors import SettingsError
from ttc.tools import ToolResult, mcp_http
from ttc.tools.mcp import McpServer, load_servers

pytest.importorskip("mcp")
pytest.importorskip("uvicorn")


def made() -> Any:
    """The server of the package itself, with tools that do as they are told."""
    import anyio
    from mcp.server import MCPServer
    from mcp.types import ToolAnnotations

    server = MCPServer("far", log_level="CRITICAL")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        return str(a + b)

    @server.tool()
    async def hang() -> str:
        """Never answers."""
        await anyio.sleep(600)
        return "late"

    @server.tool()
    def talk(size: int) -> str:
        """Says a lot."""
        return "y" * size

    @server.tool()
    def flood() -> str:
        """Is answered by what stands before it, without end."""
        return "x"

    @server.tool()
    def die() -> str:
        """Is answered by what stands before it, not at all."""
        return "x"

    return server


class Before:
    """What stands before the server: it floods, or breaks off, where such a tool is called."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.headers: dict[bytes, bytes] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        self.headers = dict(scope["headers"])
        message = await receive()
        asked = json.loads(message["body"] or b"{}")
        name = (asked.get("params") or {}).get("name")
        if name == "flood":
            await self._flood(send)
        elif name == "die":
            start = {"type": "http.response.start", "status": 200}
            await send({**start, "headers": [(b"content-type", b"application/json")]})
            raise ConnectionError
        else:
            given = iter([message])
            await self._app(scope, lambda: _next(given, receive), send)

    async def _flood(self, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-type", b"application/json")]})
        for _ in range(4_000):
            await send({"type": "http.response.body", "body": b" " * 65_536, "more_body": True})


async def _next(given: Iterator[Any], receive: Callable[[], Any]) -> Any:
    for message in given:
        return message
    return await receive()


@contextmanager
def listening() -> Iterator[tuple[str, Before]]:
    """The address of such a server."""
    import uvicorn

    app = Before(made().streamable_http_app())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="on"))
    server.config.load()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=lambda: server.run([bound]), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp", app
        server.should_exit = server.force_exit = True
        thread.join(timeout=10)


@pytest.fixture(scope="module")
def there() -> Iterator[tuple[str, Before]]:
    with listening() as there:
        yield there


def connected(url: str, **options: Any) -> McpServer:
    return McpServer("far", url=url, **{"effects": dict.fromkeys(NAMES, "pure"), **options})


NAMES = ("add", "hang", "talk", "flood", "die")


def told(server: McpServer, name: str, **arguments: Any) -> ToolResult:
    """What a call comes to."""
    tool = next(tool for tool in server.tools if tool.name == name)
    (result,) = called((tool, arguments), after_untrusted=False)  # type: ignore[arg-type]
    return result


def test_a_server_at_an_address_is_called(there: tuple[str, Before]) -> None:
    """With the key that it wants; what it says of itself is not trusted."""
    url, before = there
    with connected(url, headers={"authorization": "Bearer k"}, effects={}) as server:
        result = told(server, "add", a=2, b=3)

        assert (result.status, result.text, result.is_trusted) == ("ok", "5", False)
        assert {tool.effect for tool in server.tools} == {"irreversible"}
    assert before.headers[b"authorization"] == b"Bearer k"


def test_one_that_hangs_is_left_at_its_limit(there: tuple[str, Before]) -> None:
    """And answers the next call."""
    with connected(there[0], seconds=10.0) as server:
        object.__setattr__(server.tools[1], "seconds", 0.3)

        assert told(server, "hang").status == "timeout"
        assert told(server, "add", a=1, b=1).text == "2"


def test_a_long_result_is_cut(there: tuple[str, Before]) -> None:
    with connected(there[0], max_bytes=100) as server:
        result = told(server, "talk", size=100_000)

    assert (result.is_cut, len(result.text) < 200) == (True, True)


@pytest.mark.parametrize("name", ["flood", "die"])
def test_one_that_floods_or_dies_fails_the_call(
    there: tuple[str, Before], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before its limit of time; later calls say that it is gone, or are answered."""
    monkeypatch.setattr(mcp_http, "MOST_BYTES", 1 << 20)
    with connected(there[0], seconds=60.0) as server:
        begun = time.monotonic()
        result = told(server, name)
        later = told(server, "add", a=1, b=1)

        assert result.status == "error"
        assert (later.status, later.text) in (("ok", "2"), ("error", later.text))
        assert time.monotonic() - begun < 30


def test_a_server_that_is_shut_down_fails_the_calls_that_follow() -> None:
    with listening() as (url, _):
        server = connected(url, seconds=20.0)
    try:
        assert told(server, "add", a=1, b=1).status == "error"
        assert told(server, "add", a=1, b=2).status == "error"
    finally:
        server.close()


def test_an_address_that_says_nothing_is_given_up_on() -> None:
    """It takes the connection, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        with pytest.raises(SettingsError, match="does not answer"):
            connected(url, seconds=0.5)


def test_a_file_names_an_address_with_its_headers(there: tuple[str, Before], tmp_path: Any) -> None:
    file = tmp_path / "servers.json"
    options: dict[str, Any] = {"url": there[0], "headers": {"x-key": "k"}}
    file.write_text(json.dumps({"servers": {"far": options}}))
    with pytest.raises(SettingsError, match="write pin: ") as missing:
        load_servers(file)
    options["pin"] = str(missing.value).rpartition("pin: ")[2]
    file.write_text(json.dumps({"servers": {"far": options}}))
    (server,) = load_servers(file)
    server.close()

    assert there[1].headers[b"x-key"] == b"k"


@pytest.mark.parametrize(
    "options", [{"url": "https://x", "env": {"A": "b"}}, {"command": ["x"], "headers": {"a": "b"}}]
)
def test_an_option_of_the_other_kind_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="env belongs to a command"):
        McpServer("far", **options)
