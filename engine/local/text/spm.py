"""SentencePiece's byte-pair encoding: the adjacent pair whose union scores highest merges first.

Source: Kudo and Richardson 2018, arXiv 1808.06226, as google/sentencepiece computes it
(bpe_model.cc): of equal scores the leftmost pair merges, a letter without a token is spelt in
bytes, and an unused token falls apart into the pieces that it was made of. Merges in a fixed order,
as the `tokenizers` library has them, give other tokens where scores are equal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise

from ttc.engine.local.text.vocabulary import SPACE

__all__ = ["ScoredPairs"]

_WORD = re.compile(f"{SPACE}*[^{SPACE}]+|{SPACE}+")
_ACROSS = re.compile(f"[^{SPACE}]{SPACE}")
_LONG = 64  # letters; longer words are rare, and not worth their place in the cache

_Halves = dict[str, tuple[str, str]]


class ScoredPairs:
    """Cuts text, in which spaces are written as U+2581, into tokens.

    Args:
        scores: the tokens that may come of a merge, unused ones included.
        ids: the numbers of those that are used.
        bytes_: the token of each byte; empty where the vocabulary has none.
        unknown: the token of a letter without one, where there are no bytes.
    """

    def __init__(
        self,
        scores: Mapping[str, float],
        ids: Mapping[str, int],
        bytes_: Mapping[int, int],
        unknown: int | None,
    ) -> None:
        self._scores = scores
        self._ids = ids
        self._bytes = bytes_
        self._unknown = unknown
        # Where no token reaches across the start of a word, words can be cut one by one.
        self._by_words = len(ids) == len(scores) and not any(map(_ACROSS.search, scores))
        self._cached = lru_cache(maxsize=1 << 15)(self._cut)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text."""
        words = _WORD.findall(text) if self._by_words else [text]
        token_ids: list[int] = []
        for word in words:
            token_ids += (self._cached if len(word) <= _LONG else self._cut)(word)
        return token_ids

    def _cut(self, word: str) -> tuple[int, ...]:
        halves: _Halves = {}
        token_ids: list[int] = []
        for piece in self._merge(word, halves):
            self._spell(piece, halves, token_ids)
        return tuple(token_ids)

    def _merge(self, word: str, halves: _Halves) -> list[str]:
        """The pieces that are left when nothing merges any more."""
        scores = self._scores
        pieces = list(word)  # a piece that was merged into the one before it is empty
        after = list(range(1, len(pieces) + 1))
        before = list(range(-1, len(pieces)))
        queue = [
            (-scores[union], left, left + 1, union)
            for left, union in enumerate(map("".join, pairwise(pieces)))
            if union in scores
        ]
        halves.update((union, (union[0], union[1])) for *_, union in queue)
        heapify(queue)
        while queue:
            _, left, right, union = heappop(queue)
            first, second = pieces[left], pieces[right]
            if not (first and second) or len(first) + len(second) != len(union):
                continue  # one of the two has merged with another one since
            pieces[left], pieces[right] = union, ""
            after[left] = after[right]
            before[after[left]] = left
            beside = ((before[left], left), (left, after[left]))
            for left, right in beside:
                if left < 0 or right == len(pieces):
                    continue
                union = pieces[left] + pieces[right]
                if union in scores:
                    halves[union] = (pieces[left], pieces[right])
                    heappush(queue, (-scores[union], left, right, union))
        return [piece for piece in pieces if piece]

    def _spell(self, piece: str, halves: _Halves, token_ids: list[int]) -> None:
        if piece in self._ids:
            token_ids.append(self._ids[piece])
        elif piece in halves:
            for half in halves[piece]:
                self._spell(half, halves, token_ids)
        elif self._bytes:
            token_ids += [self._bytes[byte] for byte in piece.encode()]
        elif self._unknown is not None and token_ids[-1:] != [self._unknown]:
            token_ids.append(self._unknown)  # a run of unknown letters is one token
