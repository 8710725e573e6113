"""Knockout: solutions meet in pairs, and who wins most of K comparisons goes on.

Source: Chen et al. 2024, arXiv 2411.19477, algorithm 1.
Differs: equal answers are one, so that no call compares them; half of the comparisons show each
first; a pair without a majority goes to the answer with more votes.
Cost: with n distinct answers (n - 1) x `comparisons` calls of the judge's role, each of which shows
two solutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import ClassVar

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.prompts import comparison, question, solution
from ttc.strategies.calls import Ask, Calls
from ttc.strategies.comparing import Comparing, Entry
from ttc.strategies.refinement import count_faults
from ttc.types import Sampling
from ttc.verdicts import choice_on

__all__ = ["Knockout", "Pairing"]


@dataclass(frozen=True, kw_only=True)
class Pairing(Comparing):
    """Comparisons of two solutions."""

    comparisons: int = 2
    """K, an even number: half of them show each solution first. More than two need a temperature,
    else they are the same two."""

    @property
    def verdicts(self) -> int:
        """For each pair."""
        return self.comparisons

    @property
    def at_once(self) -> int:
        """A pair."""
        return 2

    @property
    def _distinct(self) -> int:
        return 2

    def faults(self, given: Flow) -> list[str]:
        """As of all comparisons, and an odd number."""
        faults = count_faults(comparisons=self.comparisons)
        if not faults and self.comparisons % 2:
            faults = [
                "comparisons is even, so that each solution is shown first as often as the other, "
                f"not {self.comparisons}"
            ]
        return faults or super().faults(given)

    async def compared(
        self, pairs: Sequence[tuple[Entry, Entry]], calls: Calls, scope: Scope
    ) -> list[float | None]:
        """The share of a pair's first; `None` where nothing was decided."""
        half = self.comparisons // 2
        found = await calls.judge(
            (self._ask(pair[::-1] if swapped else pair, scope), choice_on("B" if swapped else "A"))
            for pair in pairs
            for swapped in (False, True)
            for _ in range(half)
        )
        shares: list[float | None] = []
        for n, pair in enumerate(pairs):
            told = found[n * self.comparisons : (n + 1) * self.comparisons]
            for entry in pair:
                entry.calls += [call for _, call in told if call]
            known = [verdict.value for verdict, _ in told if verdict.value is not None]
            shares.append(fsum(known) / len(known) if known else None)
        return shares

    def _ask(self, pair: Sequence[Entry], scope: Scope) -> Ask:
        first, second = (solution(entry.candidate) for entry in pair)
        paragraphs = comparison(self.rubric, question(scope.problem), first, second)
        sampling = Sampling(temperature=self.temperature)
        return Ask(of=paragraphs, role=self.role, max_tokens=self.max_tokens, sampling=sampling)


@dataclass(frozen=True, kw_only=True)
class Knockout(Pairing):
    """A knockout of pairs."""

    remote: ClassVar[bool] = True
    never_answers: ClassVar[bool] = True

    async def winners(
        self, groups: Sequence[Sequence[Entry]], number: int, calls: Calls, scope: Scope
    ) -> list[Entry]:
        """Who goes on of each pair."""
        pairs = [(first, second) for first, second in groups]
        shares = await self.compared(pairs, calls, scope)
        return [_winner(pair, share) for pair, share in zip(pairs, shares, strict=True)]


def _winner(pair: tuple[Entry, Entry], share: float | None) -> Entry:
    if share is None or share == 0.5:
        return max(pair, key=lambda entry: (entry.votes, -entry.place))
    return pair[0] if share > 0.5 else pair[1]
