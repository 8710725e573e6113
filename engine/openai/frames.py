"""Server-sent events out of bytes: framed first, decoded afterwards.

So neither a cut inside a character nor one inside a line end matters. Comments, which servers send
to keep a connection open, and fields other than `data` are passed over.

Source: the format of event streams in the HTML standard, section 9.2.
"""

from __future__ import annotations

from ttc.errors import EngineError

__all__ = ["MOST_BYTES", "Frames"]

MOST_BYTES = 8_000_000
"""The most bytes of one event."""
_BOM = b"\xef\xbb\xbf"


class Frames:
    """Takes bytes as they come, and gives the data of each event that is whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0
        self._is_after_cr = False
        self._is_first = True

    def feed(self, piece: bytes) -> list[bytes]:
        """The events that a piece completes.

        Raises:
            EngineError: an event does not end.
        """
        if self._is_after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._is_after_cr = False
        if not piece:
            return []
        self._is_after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [event for line in lines if (event := self._line(line)) is not None]
        if self._size + len(self._rest) > MOST_BYTES:
            raise EngineError(f"the server sent an event of more than {MOST_BYTES:,} bytes")
        return events

    def _line(self, line: bytes) -> bytes | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BOM), False
        if not line:
            event = b"\n".join(self._data) if self._data else None
            self._data, self._size = [], 0
            return event
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        return None
