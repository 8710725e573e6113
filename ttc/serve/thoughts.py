"""Thoughts: a text in two parts, what a model thinks before it answers, and its answer.

A thought stands in a block `<think>...</think>` at the beginning, or begins in the prompt. A block
that never closes is all thought: such a text has no answer.
"""

from __future__ import annotations

__all__ = ["Thoughts", "split"]

_OPEN, _CLOSE = "<think>", "</think>"


class Thoughts:
    """Divides a text as it comes; what may still be a part of a mark is held back."""

    def __init__(self, *, begun: bool) -> None:
        """A text.

        Args:
            begun: whether the prompt has opened a thought.
        """
        self._state = "thought" if begun else "start"
        self._held = ""

    def feed(self, piece: str) -> tuple[str, str]:
        """What a piece adds to the thought, and to the answer."""
        if self._state == "answer":
            return "", piece
        self._held += piece
        thought = answer = ""
        if self._state == "start":
            self._begin()
        if self._state == "thought":
            thought = self._think()
        if self._state == "gap":
            self._held = self._held.lstrip("\r\n")
            self._state = "answer" if self._held else "gap"
        if self._state == "answer":
            answer, self._held = self._held, ""
        return thought, answer

    def end(self) -> tuple[str, str]:
        """What was held back, once nothing more comes."""
        held, self._held = self._held, ""
        return ("", held) if self._state == "start" else (held, "")

    def _begin(self) -> None:
        seen = self._held.lstrip()
        if seen.startswith(_OPEN):
            self._held, self._state = seen[len(_OPEN) :], "thought"
        elif not _OPEN.startswith(seen):
            self._state = "answer"

    def _think(self) -> str:
        thought, mark, rest = self._held.partition(_CLOSE)
        if mark:
            self._held, self._state = rest, "gap"
            return thought
        kept = next((n for n in range(len(_CLOSE) - 1, 0, -1) if thought.endswith(_CLOSE[:n])), 0)
        cut = len(thought) - kept
        self._held = thought[cut:]
        return thought[:cut]


def split(text: str, *, begun: bool) -> tuple[str, str]:
    """The thought and the answer of a whole text."""
    thoughts = Thoughts(begun=begun)
    first, last = thoughts.feed(text), thoughts.end()
    return first[0] + last[0], first[1] + last[1]
