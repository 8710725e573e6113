"""TieBreak: of candidates whose scores are nearly the best, the one that wins most comparisons.

Source: Zhao et al. 2025, arXiv 2502.01839, algorithm 1, lines 4 to 7: all responses within 0.05 of
the best score are compared two by two.
Differs: equal answers are one, and at most `most` answers are compared, the best scored.
Cost: with m answers in question m (m - 1) / 2 x `comparisons` calls of the judge's role; none where
one answer is clearly the best.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from ttc.graph import Cost, Flow
from ttc.ports import Scope, Stream
from ttc.strategies.calls import Calls, resting_on
from ttc.strategies.comparing import Entry, entries_of
from ttc.strategies.knockout import Pairing
from ttc.strategies.refinement import count_faults
from ttc.strategies.vote import which_score
from ttc.types import Candidate

__all__ = ["TieBreak"]


@dataclass(frozen=True, kw_only=True)
class TieBreak(Pairing):
    """Picks the best score, and lets a judge compare those that are as good as it.

    Where no score is known, all answers are as good. Ties of the comparisons go to the answer with
    more votes, and then to the earliest launched.
    """

    remote: ClassVar[bool] = True
    never_answers: ClassVar[bool] = True

    by: str | None = None
    """Which score decides, where candidates carry several."""
    margin: float = 0.05
    """How far below the best score is still as good."""
    most: int = 4
    """The most answers that are compared."""

    def faults(self, given: Flow) -> list[str]:
        """As of all comparisons; a score that does not exist, numbers out of range."""
        faults = super().faults(given) + count_faults(most=self.most)
        if not self.margin >= 0:
            faults.append(f"margin is at least 0, not {self.margin!r}")
        score, fault = which_score(self.by, given)
        return faults if score is not None else [*faults, fault]

    def bound(self, given: Flow) -> Cost:
        """Comparisons of all that may be in question."""
        most = self.most if given.count is None else min(self.most, given.count)
        return self.verdict(given, 2) * self.comparisons * (most * (most - 1) // 2)

    async def winners(
        self, groups: Sequence[Sequence[Entry]], number: int, calls: Calls, scope: Scope
    ) -> list[Entry]:
        """Who wins most matches of each group."""
        won = []
        for group in groups:
            pairs = list(combinations(group, 2))
            shares = await self.compared(pairs, calls, scope)
            points = dict.fromkeys(map(id, group), 0.0)
            for (first, second), share in zip(pairs, shares, strict=True):
                if share is not None:
                    points[id(first)] += (share > 0.5) + (share == 0.5) / 2
                    points[id(second)] += (share < 0.5) + (share == 0.5) / 2
            won.append(max(group, key=lambda e: (points[id(e)], e.votes, -e.place)))
        return won

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything, compares the best, and yields the winner."""
        seen = [candidate async for candidate in candidates]
        entries = self._near_best(seen)
        if not entries:
            scope.decide("no_valid_answer", num_samples=len(seen))
            return
        calls = Calls(scope)
        drawn = scope.random("order").sample(entries, len(entries))
        (best,) = await self.winners([drawn], 0, calls, scope)
        yield resting_on(best.candidate, calls=[call for e in entries for call in e.calls])
        calls.end()

    def _near_best(self, seen: Sequence[Candidate]) -> list[Entry]:
        """The answers in question, each by its best scored candidate, and with all its votes."""
        name = self.by or next((name for c in seen for name in c.scores), "")

        def value(candidate: Candidate) -> float:
            score = candidate.scores.get(name)
            return float("-inf") if score is None or score.value is None else score.value

        entries = entries_of(seen)
        for entry in entries:
            same = [c for c in seen if c.key == entry.candidate.key]
            entry.candidate = max(same, key=value)  # the first of equals
        top = max((value(entry.candidate) for entry in entries), default=0.0)
        near = [entry for entry in entries if value(entry.candidate) >= top - self.margin]
        return sorted(near, key=lambda entry: -value(entry.candidate))[: self.most]
