"""The memory of the simulated machine: keys and values, counted in tokens.

What running calls pin stays, and what is kept of others goes by the time of its last use. It knows
no laws and no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from ttc.types import Branch

__all__ = ["Held", "Memory"]


@dataclass(eq=False, slots=True)
class _Segment:
    branch: Branch
    tokens: int
    users: int = 0


class Held(NamedTuple):
    """What a call holds in memory: shared segments, and room for its own output."""

    segments: tuple[_Segment, ...] = ()
    own: int = 0
    cached: int = 0
    fresh: int = 0


class Memory:
    """Keys and values: what running calls pin, and what is kept of others while there is room."""

    def __init__(self, size: int) -> None:
        """An empty one for so many tokens."""
        self.size = size
        self.pinned = 0
        """Tokens of running calls, with the room for their output."""
        self.kept = 0
        """Tokens of others."""
        self.segments: OrderedDict[Branch, _Segment] = OrderedDict()
        """The one that was used longest ago comes first."""

    def hold(self, branch: Branch, own: int) -> Held | None:
        """Pins a branch and room for output; `None` where there is too little."""
        segments, cached, fresh, idle = [], 0, 0, 0
        for part in branch.lineage():
            segment = self.segments.get(part)
            if segment is None:
                segment = _Segment(part, len(part.token_ids or ()))
                fresh += segment.tokens
            else:
                cached += segment.tokens
                idle += 0 if segment.users else segment.tokens
            segments.append(segment)
        need = own + fresh + idle
        if self.pinned + need > self.size:
            return None
        for segment in segments:
            segment.users += 1
            self.segments[segment.branch] = segment
            self.segments.move_to_end(segment.branch)
        self.kept -= idle
        self.pinned += need
        if self.pinned + self.kept > self.size:
            self._evict()
        return Held(tuple(segments), own, cached, fresh)

    def release(self, held: Held) -> None:
        """Gives back what a call held; its prefix stays in the cache."""
        self.pinned -= held.own
        for segment in held.segments:
            segment.users -= 1
            if not segment.users:
                self.pinned -= segment.tokens
                self.kept += segment.tokens

    def _evict(self) -> None:
        victims: list[_Segment] = []
        for segment in self.segments.values():
            if self.pinned + self.kept <= self.size:
                break
            if not segment.users:
                self.kept -= segment.tokens
                victims.append(segment)
        for segment in victims:
            del self.segments[segment.branch]
