"""What changes a sequence's logits: the tokens that it holds, for penalties, and a bias."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Bias", "SeenTokens"]

_ROOM = 64


class Bias(NamedTuple):
    """What is added to the logits of some tokens, each of them there once."""

    ids: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, float]]) -> Bias | None:
        """The bias of a `Sampling`; `None` where it has none."""
        if not pairs:
            return None
        ids, values = zip(*pairs, strict=True)
        return cls(np.array(ids, np.int32), np.array(values, np.float32))


class SeenTokens:
    """Distinct tokens with their counts, in the order in which they came first.

    Args:
        given: tokens of the prompt, and of text that was appended.
        generated: tokens that were generated.
    """

    def __init__(self, given: Iterable[int], generated: Iterable[int] = ()) -> None:
        self._places: dict[int, int] = {}
        self._ids = np.zeros(_ROOM, np.int32)
        self._counts = np.zeros(_ROOM, np.int32)
        for token in given:
            self._place(token)
        for token in generated:
            self.add(token)

    def copy(self) -> SeenTokens:
        """Another one with the same tokens and counts."""
        other = SeenTokens(())
        other._places = self._places.copy()
        other._ids, other._counts = self._ids.copy(), self._counts.copy()
        return other

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """The tokens. It is valid until another one is added."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> npt.NDArray[np.int32]:
        """How often the output holds each of them."""
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        """Counts a token that was generated."""
        place = self._place(token)  # first, since it may move the counts
        self._counts[place] += 1

    def _place(self, token: int) -> int:
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token
        return place
