"""Whose turn it is: calls in order of priority, owners in order of what they were served.

Owners whose priority is equal are served the same number of tokens in the long run, whatever they
ask for, and what one does not use goes to the others. An owner that comes, or comes back, begins
with the count of the one that was served least, so that nobody saves turns up.

Source: Sheng et al. 2024, "Fairness in Serving Large Language Models" (arXiv 2401.00588), section
4.1, the virtual token counter. Differs: every token that is computed counts the same, and within an
owner greater priorities come first.
Cost: O(log owners) for each call that is taken.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ttc.engine.local.call import Call, Owner

__all__ = ["OwnerTurns", "by_owner"]


class OwnerTurns:
    """What every owner was served. Only owners that have calls take part."""

    def __init__(self) -> None:
        self._served: dict[Owner, float] = {}
        self._present: Counter[Owner] = Counter()

    @property
    def num_owners(self) -> int:
        """Owners that have calls."""
        return len(self._present)

    def enter(self, owner: Owner) -> None:
        """A call of an owner has come."""
        if owner not in self._present:
            least = min((self._served[other] for other in self._present), default=0.0)
            for other in [o for o, served in self._served.items() if served <= least]:
                if other not in self._present:  # it would begin with `least` in any case
                    del self._served[other]
            self._served[owner] = max(self._served.get(owner, 0.0), least)
        self._present[owner] += 1

    def leave(self, owner: Owner) -> None:
        """A call of an owner has gone."""
        self._present[owner] -= 1
        if not self._present[owner]:
            del self._present[owner]
        if not self._present:
            self._served.clear()

    def serve(self, owner: Owner, tokens: int) -> None:
        """Tokens of an owner are computed."""
        self._served[owner] += tokens

    def merged(
        self,
        lines: Mapping[Owner, Sequence[Call]],
        cost: Callable[[Call], int],
        closed: Collection[Owner] = (),
    ) -> Iterator[Call]:
        """Calls of all lines, as if each that is given were served its cost at once.

        Args:
            lines: each in its owner's order, greater priorities first.
            cost: what serving a call adds to what its owner was served.
            closed: owners of whom no more is wanted; they may be added meanwhile.
        """
        heap = [
            (-line[0].priority, self._served[owner], line[0].arrival, owner, 0)
            for owner, line in lines.items()
            if line
        ]
        heapq.heapify(heap)
        while heap:
            _, served, _, owner, place = heapq.heappop(heap)
            line = lines[owner]
            call = line[place]
            yield call
            place += 1
            if place < len(line) and owner not in closed:
                after = line[place]
                entry = (-after.priority, served + cost(call), after.arrival, owner, place)
                heapq.heappush(heap, entry)


def by_owner(calls: Iterable[Call]) -> dict[Owner, list[Call]]:
    """Calls in the lines of their owners."""
    lines: dict[Owner, list[Call]] = {}
    for call in calls:
        lines.setdefault(call.owner, []).append(call)
    return lines
