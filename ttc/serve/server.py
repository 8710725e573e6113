"""The server: an application on a socket, its orderly end, and one in the background for tests."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from ttc.serve.app import App
from ttc.serve.wire import Wire

__all__ = ["Server", "background"]

_READY_S = 30.0
_MAX_CONNECTIONS = 4_096


class Server(uvicorn.Server):
    """Serves until it is told to end; then it drains, and ends.

    A first signal lets running requests go on for `drain_s`, while new ones are told 503. A second
    one ends them.
    """

    def __init__(self, app: App, *, host: str, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=Wire,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                limit_concurrency=_MAX_CONNECTIONS,
                timeout_graceful_shutdown=5,
            )
        )
        self._service = app.service
        self._ending: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drains at a first signal, and ends at a second one."""
        if self._loop is None or self._service.is_draining:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._service.cancel)
            super().handle_exit(signal.SIGINT, frame)
            return
        self.end()

    def end(self) -> None:
        """Drains, and ends. From any thread, or a signal's handler."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin_to_end)

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())

    async def _end(self) -> None:
        await self._service.drain()
        self.should_exit = True


@contextmanager
def background(app: App) -> Iterator[str]:
    """Serves in a thread of its own, on a free port of this machine; gives the base URL.

    Raises:
        RuntimeError: it did not start.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(app, host="127.0.0.1", port=0)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])), name="ttc-serve", daemon=True
    )
    thread.start()
    try:
        deadline = threading.Event()
        for _ in range(int(_READY_S / 0.01)):
            if server.started or not thread.is_alive():
                break
            deadline.wait(0.01)
        if not server.started:
            raise RuntimeError("the server did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        if server.started and thread.is_alive():
            server.end()
        thread.join(_READY_S)
        listener.close()
