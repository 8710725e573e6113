"""The wire: HTTP as the server reads it, with a bound on what a client may send beside a body."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["Wire"]

_MOST_BESIDE = 65_536


class Wire(HttpToolsProtocol):
    """One connection. Without its bound, a head that never ends would fill the memory."""

    _beside = 0
    """Bytes that came since there was a piece of a body, or the end of a request."""

    def data_received(self, data: bytes) -> None:
        """Reads on, or hangs up."""
        self._beside += len(data)
        super().data_received(data)
        if self._beside > _MOST_BESIDE:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body, whose size is bounded where it is read."""
        self._beside = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Takes the end of a request."""
        self._beside = 0
        super().on_message_complete()
