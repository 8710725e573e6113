"""Cutting a branch back to any of its tokens.

What is cut out of a generated segment is what its call would have given with that `max_tokens` and
without what may stop it: tokens, log probabilities, text. So a character whose last bytes are cut
off becomes one U+FFFD, and a stop string, or a part of one, is text again.

*Cost:* no computation, no page and no copy: a cut shares the segment's columns until somebody reads
its own. Who reads a text first spells the segment's tokens.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from itertools import accumulate
from weakref import WeakKeyDictionary, ref

from ttc.engine.local.text.tokenizer import TextTokens
from ttc.types import Branch

__all__ = ["Cutter"]

_Spelling = tuple[bytes, "array[int]"]


class Cutter:
    """Cuts branches of one vocabulary. May be used from any thread.

    Args:
        tokens: the vocabulary.
    """

    def __init__(self, tokens: TextTokens) -> None:
        self._tokens = tokens
        self._spelt: WeakKeyDictionary[Branch, _Spelling] = WeakKeyDictionary()
        self._last: tuple[Callable[[], object], _Spelling] = (lambda: None, (b"", array("Q")))
        self._lock = threading.Lock()

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The branch's first tokens.

        Raises:
            ValueError: it has fewer, or none are to be left, or one of its segments has no tokens.
        """
        segment, count = branch.place_of(num_tokens)
        return segment if segment.is_whole(count) else self.beginning(segment, count)

    def beginning(self, segment: Branch, count: int) -> Branch:
        """A segment's first tokens, after all before it."""

        def text() -> str:
            data, ends = self._spelling(segment)
            return data[: ends[count - 1]].decode(errors="replace")

        return segment.beginning(count, text)

    def _spelling(self, segment: Branch) -> _Spelling:
        """The bytes of a segment's text, and where those of each of its tokens end."""
        last, found = self._last
        if last() is not segment:
            with self._lock:
                found = self._spelt.get(segment) or self._spell(segment)
                self._spelt[segment] = found
                self._last = ref(segment), found
        return found

    def _spell(self, segment: Branch) -> _Spelling:
        pieces = list(map(self._tokens.bytes_of, segment.token_ids or ()))
        before = segment.parent.lineage() if segment.parent is not None else ()
        if self._tokens.trims_after(token for each in before for token in each.token_ids or ()):
            first = next((i for i, piece in enumerate(pieces) if piece), None)
            if first is not None:
                pieces[first] = pieces[first].removeprefix(b" ")
        return b"".join(pieces), array("Q", accumulate(map(len, pieces)))
