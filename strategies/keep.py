"""Keep: the share of candidates with the highest scores; the others no longer count.

Source: DeepConf offline, Fu et al. 2025, arXiv 2508.15260, section 3.2: of whole traces the top
eta percent by confidence are kept, and vote with their confidence as weight.
Differs: an unknown score is never kept, and where none is known, everyone stays.
Cost: nothing.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.graph import Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.strategies.vote import which_score
from ttc.types import Candidate

__all__ = ["Keep"]


@dataclass(frozen=True, kw_only=True)
class Keep(Node):
    """Keeps the best part of its candidates, at least one, in launch order.

    A share is of those that have a score. Ties at the edge go to the earlier launched.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("finished", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    share: float = 0.1
    """Of those with a score, the part that is kept: 0.1 is strict, 0.9 is mild."""
    by: str | None = None
    """Which score decides, where candidates carry several."""

    def faults(self, given: Flow) -> list[str]:
        """A share out of range, a score that does not exist or is ambiguous."""
        faults = [] if 0 < self.share <= 1 else [f"share lies in (0, 1], not {self.share!r}"]
        score, fault = which_score(self.by, given)
        return faults if score is not None else [*faults, fault]

    def flow(self, given: Flow) -> Flow:
        """At most as many as are given, since all of them stay where no score is known."""
        return replace(given, kind="finished")

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything, and yields the best part."""
        seen = [candidate async for candidate in candidates]
        name = self.by or next((name for c in seen for name in c.scores), "")
        values = {
            place: score.value
            for place, candidate in enumerate(seen)
            if (score := candidate.scores.get(name)) is not None and score.value is not None
        }
        best = sorted(values, key=lambda place: -values[place])  # sorting keeps launch order
        kept = set(best[: math.ceil(self.share * len(best))]) or set(range(len(seen)))
        scope.decide("kept", end=False, num_kept=len(kept), of=len(seen))
        for place in sorted(kept):
            yield seen[place]
