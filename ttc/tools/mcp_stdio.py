"""MCP servers that are programs: their standard input and output as a client's streams.

Only replies to what the client has asked are heard. What a program says besides is read past, and
what it asks for is refused at once, before anything else of it is read, so that nothing piles up
here. A line has an end, and so has all that is said between two replies: a program that floods is
killed, and every call that waits for it is told so.

Source: the Model Context Protocol, transports: JSON-RPC, one message a line.
Differs: the official client reads lines of any length into memory, and begins a task for whatever
it is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

__all__ = ["MOST_BYTES", "program_streams"]

MOST_BYTES = 8 << 20
"""Of one line, and of all that is said between two replies."""
_PATIENCE_S = 2.0
"""How long a program may take to end by itself, and then once it is told to."""
_POLL_S = 0.01


@contextlib.asynccontextmanager
async def program_streams(
    command: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Starts a program, gives what a client reads and writes, and ends it with all it started.

    Args:
        command: the program and its arguments.
        env: its whole environment.

    Raises:
        OSError: it cannot be started.
    """
    import anyio

    program = _started(command, env)
    heard, read = anyio.create_memory_object_stream[Any](0)
    write, asked = anyio.create_memory_object_stream[Any](0)
    ends: list[asyncio.BaseTransport] = []
    tasks: list[asyncio.Task[None]] = []
    try:
        talk = _Talk(program, *await _connected(program, ends), heard)
        tasks += [asyncio.create_task(talk.listen()), asyncio.create_task(talk.speak(asked))]
        yield read, write
    finally:
        for task in tasks:
            task.cancel()
        for stream in (heard, read, write, asked):
            stream.close()
        for end in ends:
            end.close()
        await asyncio.shield(_ended(program, tasks))


def _started(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(env),
        start_new_session=True,
    )


async def _connected(
    program: subprocess.Popen[bytes], ends: list[asyncio.BaseTransport]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The pipes of a program; what has to be closed is added to the ends."""
    loop = asyncio.get_running_loop()
    reader, unused = asyncio.StreamReader(limit=MOST_BYTES), asyncio.StreamReader()
    out_of, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), program.stdout
    )
    ends.append(out_of)
    into, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(unused), program.stdin
    )
    ends.append(into)
    return reader, asyncio.StreamWriter(into, protocol, None, loop)


class _Talk:
    """What a client and a program say to each other."""

    def __init__(
        self,
        program: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        heard: Any,
    ) -> None:
        self._program, self._reader, self._writer, self._heard = program, reader, writer, heard
        self._waiting: dict[str, Any] = {}
        """The ids of requests without a reply."""
        self._unasked = 0
        """The bytes since the last reply."""

    async def listen(self) -> None:
        """Passes replies on, until the program ends or floods, or nobody listens."""
        import anyio

        gone = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)
        async with self._heard:
            with contextlib.suppress(*gone):
                while line := await self._line():
                    await self._take(line)
                if self._unasked > MOST_BYTES:
                    await self._flooded()

    async def speak(self, asked: Any) -> None:
        """Writes what the client says, until the program does not read any more."""
        from mcp.types import JSONRPCRequest

        async with asked, self._heard:
            with contextlib.suppress(OSError):
                async for item in asked:
                    if isinstance(item.message, JSONRPCRequest):
                        self._waiting[str(item.message.id)] = item.message.id
                    await self._write(item.message)

    async def _line(self) -> bytes:
        """The next line; nothing at the end, and where it is too much."""
        try:
            line = await self._reader.readline()
        except ValueError:  # it is longer than the reader's limit
            self._unasked = MOST_BYTES + 1
            return b""
        self._unasked += len(line)
        return line if self._unasked <= MOST_BYTES else b""

    async def _take(self, line: bytes) -> None:
        from mcp.shared.message import SessionMessage
        from mcp.types import (
            METHOD_NOT_FOUND,
            ErrorData,
            JSONRPCError,
            JSONRPCRequest,
            JSONRPCResponse,
            jsonrpc_message_adapter,
        )

        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            return  # it is no message
        if isinstance(message, JSONRPCRequest):
            error = ErrorData(code=METHOD_NOT_FOUND, message="this client does nothing for servers")
            await self._write(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
            return
        id = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        if self._waiting.pop(str(id), None) is not None:
            self._unasked = 0
            await self._heard.send(SessionMessage(message))

    async def _flooded(self) -> None:
        """Ends the program, and tells all that wait for it."""
        from mcp.shared.message import SessionMessage
        from mcp.types import CONNECTION_CLOSED, ErrorData, JSONRPCError

        _signal(self._program, signal.SIGKILL)
        reason = f"the server wrote more than {MOST_BYTES:,} bytes that nobody asked for"
        error = ErrorData(code=CONNECTION_CLOSED, message=reason)
        for id in self._waiting.values():
            await self._heard.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id, error=error)))

    async def _write(self, message: Any) -> None:
        line = message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(line.encode() + b"\n")
        await self._writer.drain()


async def _ended(program: subprocess.Popen[bytes], tasks: Sequence[asyncio.Task[None]]) -> None:
    """Waits for the end of a program that nobody speaks to; sees to it, where it does not come."""
    await asyncio.gather(*tasks, return_exceptions=True)
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            _signal(program, sign)
        for _ in range(int(_PATIENCE_S / _POLL_S)):
            if program.poll() is not None:
                _signal(program, signal.SIGKILL)  # what it has left behind
                return
            await asyncio.sleep(_POLL_S)


def _signal(program: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    """Signals a program and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, sign)
