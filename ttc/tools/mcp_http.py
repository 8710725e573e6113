"""The HTTP client of MCP servers: no proxy of the environment's, and no reply without end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

__all__ = ["MOST_BYTES", "bounded_client"]

MOST_BYTES = 8 << 20
"""Of one reply, or of one stream of events; a server that sends more is cut off."""
_IDLE_S = 300.0
"""How long a stream of events may say nothing. A call has a limit of its own."""


def bounded_client(headers: Mapping[str, str], seconds: float) -> Any:
    """A client for one server.

    Args:
        headers: what every request carries.
        seconds: how long connecting and sending may take.
    """
    import httpx2

    class Bounded(httpx2.AsyncHTTPTransport):  # type: ignore[misc,unused-ignore]
        """Sends requests, and reads no more than so much of a reply."""

        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            response.stream = Capped(response.stream)
            return response

    class Capped(httpx2.AsyncByteStream):  # type: ignore[misc,unused-ignore]
        """The body of a reply."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            total = 0
            async for piece in self._stream:
                total += len(piece)
                if total > MOST_BYTES:
                    raise httpx2.ReadError(f"the server sent more than {MOST_BYTES:,} bytes")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    return httpx2.AsyncClient(
        transport=Bounded(),
        trust_env=False,
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(seconds, read=_IDLE_S),
    )
