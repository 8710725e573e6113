"""Tools of MCP servers, by the official client: the extra `agents`.

A server is someone else's program. What it runs as and where it listens comes from you alone, in
Python or from a file of yours; it inherits no environment; it is asked for tools and calls of them,
and whatever it asks for itself (a model's text, a form, your folders) is refused. What its tools do
to the world you say: what it says itself counts only where you trust it. Names, descriptions and
schemas are pinned by a hash, so that a tool cannot become another one overnight. Results are data,
capped, and not to be trusted. One that hangs, floods or dies ends a call, and never the run.

Source: the Model Context Protocol, modelcontextprotocol.io, and its official client `mcp`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from ttc.errors import SettingsError
from ttc.ports import Scope
from ttc.registry import install_hint
from ttc.tools.function import tool_faults
from ttc.tools.mcp_http import bounded_client
from ttc.tools.mcp_stdio import program_streams
from ttc.tools.port import Arguments, Effect

__all__ = ["McpServer", "McpTool", "load_servers"]

_MOST_PAGES = 20
_LONGEST_DESCRIPTION = 4_000
_PATIENCE_S = 5.0


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """One tool of a server."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect
    version: str
    """The server's pin: another description makes another tool."""
    seconds: float
    max_bytes: int
    is_trusted: bool
    server: McpServer = field(repr=False, compare=False)

    def check(self, arguments: Arguments) -> None:
        """The server checks them itself."""

    async def __call__(
        self, arguments: Arguments, earlier: Sequence[Arguments], scope: Scope
    ) -> str:
        """Asks the server.

        Raises:
            RuntimeError: the tool failed, in the server's words.
        """
        return await asyncio.wrap_future(self.server.call(self.name, arguments))


class McpServer:
    """A connection to a server; `with` ends it."""

    def __init__(  # noqa: PLR0913 - all keywords but one, each of its own
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        effects: Mapping[str, Effect] | None = None,
        pin: str | None = None,
        is_trusted: bool = False,
        seconds: float = 30.0,
        max_bytes: int = 16_384,
    ) -> None:
        """Connects, and asks for the tools.

        Args:
            name: what errors call it.
            command: the program and its arguments, where it is one that is to be started.
            url: where it listens, where it runs already; https, or on this machine.
            env: the whole environment of the program, beside a plain PATH.
            headers: what every request to the address carries, such as a key.
            effects: what its tools do to the world, by name; `irreversible` where it is not said.
            pin: the hash of its tools, as `McpServer.pin` gives it.
            is_trusted: whether you vouch for what it says: its hints count, and its results.
            seconds: how long it may take to connect, and for each call.
            max_bytes: how much of a result the model is told.

        Raises:
            ModuleNotFoundError: the client is not installed.
            SettingsError: it does not answer, or is not what was pinned.
            ValueError: not exactly one of `command` and `url`, or an option of the other one.
        """
        if find_spec("mcp") is None:
            raise ModuleNotFoundError(
                f"MCP needs mcp, which is not installed; {install_hint('agents')}", name="mcp"
            )
        if bool(command) == (url is not None):
            raise ValueError(f"{name} has a command or a url, exactly one of them")
        if (env and url) or (headers and command):
            raise ValueError(f"{name}: env belongs to a command, and headers to a url")
        self.name, self._is_trusted = name, is_trusted
        self._command, self._url = tuple(command), _checked_url(url)
        self._env, self._effects = dict(env or {}), dict(effects or {})
        self._headers = dict(headers or {})
        self._seconds, self._max_bytes = seconds, max_bytes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"mcp {name}", daemon=True
        )
        self._thread.start()
        self._session: Any = None
        self._holding: asyncio.Task[None] | None = None
        self._leave, self._gone = asyncio.Event(), asyncio.Event()
        self._listed: Future[list[Any]] = Future()
        self._held = asyncio.run_coroutine_threadsafe(self._hold(), self._loop)
        try:
            listed = self._listed.result(timeout=seconds)
            self.pin = _hash(listed)
            """The hash of its tools."""
            if pin is not None and pin != self.pin:
                raise SettingsError(
                    f"the tools of {name} are not those that were pinned ({pin[:12]}…): look at "
                    f"them, and pin {self.pin} if they are what you want"
                )
            self.tools = tuple(map(self._tool, listed))
            """Its tools."""
        except SettingsError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise SettingsError(f"the MCP server {name} does not answer: {error!r}") from error

    def call(self, tool: str, arguments: Arguments) -> Future[str]:
        """Asks for a call of a tool."""
        return asyncio.run_coroutine_threadsafe(self._call(tool, dict(arguments)), self._loop)

    def close(self) -> None:
        """Ends the connection, and the program where one was started."""
        if self._loop.is_closed():
            return
        leave = self._leave.set if self._listed.done() else self._break
        for end in (leave, self._break):
            self._loop.call_soon_threadsafe(end)
            with contextlib.suppress(BaseException):  # it failed, and whoever connected was told
                self._held.result(timeout=_PATIENCE_S)
            if self._held.done():
                break
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=_PATIENCE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def __enter__(self) -> McpServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _break(self) -> None:
        """Ends the connection at once, with what was begun."""
        if self._holding is not None:
            self._holding.cancel()

    async def _hold(self) -> None:
        """The connection, from its beginning to its end, in one task."""
        from mcp import ClientSession

        self._holding = asyncio.current_task()
        try:
            async with contextlib.AsyncExitStack() as stack:
                read, write = await self._streams(stack)
                session = await stack.enter_async_context(ClientSession(read, write))
                await session.initialize()
                self._session = session
                self._listed.set_result(await self._list(session))
                await self._leave.wait()
        except BaseException as error:
            if not self._listed.done():
                self._listed.set_exception(error)
            raise
        finally:
            self._gone.set()

    async def _streams(self, stack: contextlib.AsyncExitStack) -> tuple[Any, Any]:
        """The streams of the program, or of the address."""
        if self._url is not None:
            from mcp.client.streamable_http import streamable_http_client

            client = bounded_client(self._headers, self._seconds)
            await stack.enter_async_context(client)
            streams = await stack.enter_async_context(
                streamable_http_client(self._url, http_client=client)
            )
            return streams[0], streams[1]
        built = {"PATH": os.defpath, **self._env}
        return await stack.enter_async_context(program_streams(self._command, built))

    @staticmethod
    async def _list(session: Any) -> list[Any]:
        from mcp.types import PaginatedRequestParams

        tools: list[Any] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise SettingsError(f"it lists tools on more than {_MOST_PAGES} pages")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        asked = asyncio.ensure_future(self._session.call_tool(tool, arguments))
        ended = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({asked, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise RuntimeError(f"the server {self.name} is gone")
            result = asked.result()
        finally:
            asked.cancel()
            ended.cancel()
        texts = [
            part.text if part.type == "text" else f"[{part.type}: not told]"
            for part in result.content
        ]
        text = "\n".join(texts)
        if result.is_error:
            raise RuntimeError(text)
        return text

    def _tool(self, listed: Any) -> McpTool:
        made = McpTool(
            name=listed.name,
            description=(listed.description or "")[:_LONGEST_DESCRIPTION],
            parameters=cast("Mapping[str, Any]", listed.input_schema),
            effect=self._effect(listed),
            version=self.pin,
            seconds=self._seconds,
            max_bytes=self._max_bytes,
            is_trusted=self._is_trusted,
            server=self,
        )
        if faults := tool_faults(made):
            raise SettingsError(f"a tool of {self.name} cannot be used: {'; '.join(faults)}")
        if made.effect == "reversible":
            raise SettingsError(f"{made.name}: nothing restores the state of a server")
        return made

    def _effect(self, listed: Any) -> Effect:
        """What you say; else, of a server that you trust, what it says; else the worst."""
        if listed.name in self._effects:
            return self._effects[listed.name]
        hints = listed.annotations if self._is_trusted else None
        return "pure" if hints is not None and hints.read_only_hint is True else "irreversible"


def load_servers(path: str | os.PathLike[str]) -> list[McpServer]:
    """The servers that a file of yours names, as JSON or YAML, connected.

        servers:
          notes:
            command: [notes-server, --folder, notes]
            effects: {find: pure}
            pin: 9f2c…

    Each is pinned; where a pin is missing the error tells what it would be.

    Raises:
        SettingsError: the file is none, or a server does not answer or is not what was pinned.
    """
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        wanted = dict(content["servers"])
    except (OSError, TypeError, KeyError, ValueError, yaml.YAMLError) as error:
        raise SettingsError(f"{path} names no servers: {error}") from None
    known = {
        "command",
        "url",
        "env",
        "headers",
        "effects",
        "pin",
        "is_trusted",
        "seconds",
        "max_bytes",
    }
    servers: list[McpServer] = []
    try:
        for name, options in wanted.items():
            if unknown := sorted(set(options) - known):
                raise SettingsError(f"{path}: {name} has no option {unknown[0]!r}")
            servers.append(McpServer(name, **options))
            if "pin" not in options:
                raise SettingsError(
                    f"{path}: {name} is not pinned; look at its tools, and write "
                    f"pin: {servers[-1].pin}"
                )
    except BaseException:
        for server in servers:
            server.close()
        raise
    return servers


def _checked_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise ValueError(f"a server listens at https, or on this machine, not at {url!r}")
    return url


def _hash(listed: Sequence[Any]) -> str:
    """What identifies tools: names, descriptions and schemas."""
    told = sorted(
        [t.name, t.description or "", json.dumps(t.input_schema, sort_keys=True)] for t in listed
    )
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
