"""Which prompt tokens of a problem have been paid for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ttc.types import Branch

__all__ = ["PromptTree"]


class _Walk(NamedTuple):
    unpaid: int
    edges: dict[tuple[int, str | int], int]
    ends: dict[Branch, int]


class PromptTree:
    """Which prompt tokens of a problem have been paid for: each distinct one is paid once.

    Two prompts share what their tokens have in common from the start. What an engine generated is
    paid as output; a text that is appended to it is a prompt of its own.
    """

    def __init__(self) -> None:
        self._edges: dict[tuple[int, str | int], int] = {}
        self._ends: dict[Branch, int] = {}
        self._places = itertools.count(1)
        self._last: tuple[Iterable[tuple[int, str | int]], Iterable[Branch]] = (), ()
        self._walked: dict[tuple[Branch, ...], _Walk] = {}
        """What is missing to branches, as long as nothing is paid: it is asked several times."""

    def missing(self, *branches: Branch) -> int:
        """Prompt tokens on the way to some branches that nobody has paid for."""
        return self._walk(branches).unpaid

    def add(self, *branches: Branch) -> int:
        """Marks every prompt token on the way to branches as paid; returns how many were not."""
        walk = self._walk(branches)
        self._walked.clear()
        self._edges.update(walk.edges)
        self._ends.update(walk.ends)
        self._last = walk.edges, walk.ends
        return walk.unpaid

    def take_back(self) -> None:
        """Undoes the last `add`."""
        edges, ends = self._last
        for edge in edges:
            del self._edges[edge]
        for end in ends:
            del self._ends[end]
        self._walked.clear()
        self._last = (), ()

    def _walk(self, branches: tuple[Branch, ...]) -> _Walk:
        """Counts tokens without an edge, and makes their edges."""
        found = self._walked.get(branches)
        if found is not None:
            return found
        edges: dict[tuple[int, str | int], int] = {}
        ends: dict[Branch, int] = {}
        unpaid = 0
        for branch in branches:
            if branch in self._ends:
                continue  # paid to its end
            for segment in branch.lineage(after=self._ends):
                if segment not in ends:
                    parent = segment.parent
                    place = (self._ends.get(parent) or ends[parent]) if parent else 0
                    ends[segment], fresh = self._end(segment, place, edges)
                    unpaid += fresh
        found = self._walked[branches] = _Walk(unpaid, edges, ends)
        return found

    def _end(
        self, segment: Branch, place: int, edges: dict[tuple[int, str | int], int]
    ) -> tuple[int, int]:
        """Where a segment ends, and how many of its tokens are prompt tokens without an edge."""
        if segment.call is not None:
            return next(self._places), 0
        if segment.parent is None:
            place, _ = self._follow(place, (segment.role,), edges)
        return self._follow(place, _tokens(segment), edges)

    def _follow(
        self, place: int, steps: Sequence[str | int], edges: dict[tuple[int, str | int], int]
    ) -> tuple[int, int]:
        fresh = 0
        for step in steps:
            following = self._edges.get((place, step)) or edges.get((place, step))
            if following is None:
                fresh += 1
                following = edges[place, step] = next(self._places)
            place = following
        return place, fresh


def _tokens(segment: Branch) -> Sequence[int]:
    """A segment's tokens; where the engine has none, its bytes, which are at least as many."""
    return segment.text.encode() if segment.token_ids is None else segment.token_ids
