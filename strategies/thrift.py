"""Thrift: under a limit, as many asks at once as can be paid with all that they bring.

A score may ask models, too. If every step or sample in flight were launched first, these alone
could spend the whole budget, and nothing would be left to score them by. So an ask counts with what
comes after it: what it may write at most is known; the rest (prompts, tools, scores, lessons) is
the largest that was seen so far, and until one was seen, an ask runs alone.

What is left is read while nothing is in flight, and then counted down by asks. So who is held back
is a function of the results told, and of no arrival. It knows no policy and no engine.

Source: Dijkstra 1965, "Cooperating sequential processes", the banker's algorithm: nobody begins
whose whole claim could not be met beside those of the others.
Differs: what nobody can claim beforehand is learned.
Cost: nothing in flight for a moment, whenever what was left has been given away.
"""

from __future__ import annotations

from collections.abc import Mapping

from ttc.ports import Scope

__all__ = ["Thrift"]

_RESOURCES = ("tokens", "calls")


class Thrift:
    """What one node may have in flight."""

    def __init__(self, scope: Scope, most: Mapping[str, int], *others: str) -> None:
        """Thrift of a node that has not begun.

        Args:
            scope: that of the node.
            most: what an ask itself takes at most, by resource.
            others: paths of the nodes that pay the rest.
        """
        self._scope, self._most, self._others = scope, most, others
        self._rest: dict[str, int] = {}
        self._room: dict[str, int] = {}
        self._asked = self._scored = self._written = 0
        self._short: list[str] = []

    def count(self) -> None:
        """Reads what is left, and learns from what was spent. Nothing is in flight."""
        self._scope.rest(*self._others)
        for resource in self._short:
            self._scope.decide("held_back", end=False, resource=resource)
        left = self._scope.remaining
        room = {r: n for r in _RESOURCES if (n := getattr(left, r)) is not None}
        own = {"tokens": self._written, "calls": self._asked}
        for resource in room.keys() & self._room.keys() if self._scored else ():
            rest = self._room[resource] - room[resource] - own[resource]
            seen = self._rest.get(resource, 0)
            self._rest[resource] = max(seen, -(-rest // self._scored))
        self._room, self._asked, self._scored, self._written = room, 0, 0, 0
        self._short = []

    def launched(self) -> None:
        """One more is in flight."""
        self._asked += 1

    def told(self, tokens: int, *, is_scored: bool) -> None:
        """One has a result: so many tokens, and a score or none."""
        self._written += tokens
        self._scored += is_scored

    def allows(self, *, has_unknown: bool) -> bool:
        """Whether one more can be paid beside those in flight.

        Args:
            has_unknown: whether one in flight will have a score.
        """
        if not self._room:
            return True
        if not self._rest:
            return not has_unknown
        self._short = [
            resource
            for resource, left in self._room.items()
            if (self._asked + 1) * (self._most[resource] + self._rest.get(resource, 0)) > left
        ]
        return not self._short
