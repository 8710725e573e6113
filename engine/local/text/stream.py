"""Tokens to text while they come: whole characters only, and stop strings across any border."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Piece", "StopStrings", "TextStream"]


class Piece(NamedTuple):
    """Text that is certain, and the stop string that ended it."""

    text: str
    stop: str | None


class StopStrings:
    """Finds the stop string that is complete first; of several that end together, the longest.

    Text is held back while it could still become a stop string, so that what was given out never
    has to be taken back. How the text is cut into pieces changes nothing.

    Args:
        stops: the strings, none of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def feed(self, text: str) -> Piece:
        """Takes more text. After a stop string it must not be called again."""
        held = self._held + text
        ends = [(at + len(s), -len(s), s) for s in self._stops if (at := held.find(s)) >= 0]
        if ends:
            end, _, stop = min(ends)
            return Piece(held[: end - len(stop)], stop)
        keep = max((_overlap(held, stop) for stop in self._stops), default=0)
        self._held = held[len(held) - keep :]
        return Piece(held[: len(held) - keep], None)

    def flush(self) -> str:
        """What is held back, when no more text will come."""
        return self._held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that `stop` begins with."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


class TextStream:
    """The text of one generation.

    An unfinished character is held back, an invalid byte becomes U+FFFD at once, and a character
    that is never finished becomes one U+FFFD at the end. All pieces join to the decoded tokens, up
    to the stop string.

    Args:
        stops: the stop strings.
        trims: whether a space that comes first is no part of the text; see `tokenizer`.
    """

    def __init__(self, stops: Sequence[str] = (), *, trims: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = StopStrings(stops)
        self._trims = trims

    def feed(self, data: bytes) -> Piece:
        """Takes a token's bytes."""
        if self._trims and data:
            self._trims = False
            data = data.removeprefix(b" ")
        return self._stops.feed(self._decoder.decode(data))

    def flush(self) -> Piece:
        """Ends the text."""
        text, stop = self._stops.feed(self._decoder.decode(b"", final=True))
        return Piece(text if stop else text + self._stops.flush(), stop)
