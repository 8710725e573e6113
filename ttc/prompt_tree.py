"""Which prompt tokens of a problem have been paid for."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ttc.types import Branch

__all__ = ["PromptTree"]


class PromptTree:
    """Which prompt tokens of a problem have been paid for: each distinct one is paid once.

    Two prompts share what their tokens have in common from the start. What an engine generated is
    paid as output; a text that is appended to it is a prompt of its own.
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[int, str | int], int] = {}
        self._ends: dict[Branch, int] = {}
        self._places = itertools.count(1)

    def missing(self, branch: Branch) -> int:
        """Prompt tokens on the way to `branch` that nobody has paid for."""
        return self._walk(branch, add=False)

    def add(self, branch: Branch) -> int:
        """Marks every prompt token on the way to `branch` as paid; returns how many were not."""
        return self._walk(branch, add=True)

    def _walk(self, branch: Branch, *, add: bool) -> int:
        unpaid, place = 0, 0
        for segment in branch.lineage():
            if segment in self._ends:
                place = self._ends[segment]
                continue
            if segment.call is not None:
                place = next(self._places) if add else -1
            else:
                if segment.parent is None:
                    place, _ = self._follow(place, (segment.role,), add=add)
                place, fresh = self._follow(place, _tokens(segment), add=add)
                unpaid += fresh
            if add:
                self._ends[segment] = place
        return unpaid

    def _follow(self, place: int, steps: Sequence[str | int], *, add: bool) -> tuple[int, int]:
        fresh = 0
        for step in steps:
            following = self._edges.get((place, step), -1)
            if following < 0:
                fresh += 1
                if add:
                    following = self._edges[place, step] = next(self._places)
            place = following
        return place, fresh


def _tokens(segment: Branch) -> Sequence[int]:
    """A segment's tokens; where the engine has none, its bytes, which are at least as many."""
    return segment.text.encode() if segment.token_ids is None else segment.token_ids
