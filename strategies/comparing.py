"""Comparing: what all selectors share that let a model compare solutions, in a knockout.

Solutions with equal answers are one entry, for which the earliest launched stands. Entries meet in
groups whose order is drawn with the run's seed; who wins goes on. Where a model gives no verdict,
the answer with more votes wins, and of equals the one launched earlier.

Source: the knockout of Chen et al. 2024, arXiv 2411.19477, algorithm 1.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ttc.graph import Cost, Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.strategies.calls import Calls, resting_on
from ttc.strategies.refinement import count_faults, sampling_faults, text_faults
from ttc.strategies.tally import Tally
from ttc.types import Candidate

__all__ = ["RUBRIC", "Comparing", "Entry", "entries_of"]

RUBRIC = "Which solution is right? Of several right ones, which one is best founded?"


@dataclass(eq=False)
class Entry:
    """One answer that takes part."""

    candidate: Candidate
    votes: int
    """Candidates that gave it."""
    place: int
    """Its rank in launch order."""
    calls: list[str] = field(default_factory=list)
    """Verdicts on it."""


@dataclass(frozen=True, kw_only=True)
class Comparing(Node):
    """Picks the candidate that wins a knockout before a judge."""

    gives: ClassVar[Port] = Port("finished", "one")
    selects: ClassVar[bool] = True

    rubric: str = RUBRIC
    """What the judge goes by. It is an instruction, so it is yours to answer for."""
    temperature: float = 0.0
    max_tokens: int = 512
    """The most output tokens of a verdict with its reasons."""
    role: str = "judge"

    @property
    def roles(self) -> frozenset[str]:
        """Who compares."""
        return frozenset({self.role})

    @property
    @abstractmethod
    def at_once(self) -> int:
        """The most entries of a group."""

    @property
    @abstractmethod
    def verdicts(self) -> int:
        """Verdicts on each group."""

    @abstractmethod
    async def winners(
        self, groups: Sequence[Sequence[Entry]], number: int, calls: Calls, scope: Scope
    ) -> list[Entry]:
        """The winner of each group, all of them asked about at once, in round `number`."""

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and no rubric."""
        faults = count_faults(max_tokens=self.max_tokens) + sampling_faults(self.temperature)
        faults += text_faults(rubric=self.rubric, role=self.role)
        if not faults and self.verdicts > self._distinct and self.temperature == 0:
            faults.append(
                f"{self.verdicts} verdicts at temperature 0 are {self._distinct}; set a temperature"
            )
        return faults

    @property
    def _distinct(self) -> int:
        """Verdicts that can differ without a temperature: each has another order."""
        return self.verdicts

    def bound(self, given: Flow) -> Cost:
        """Verdicts of a knockout of all."""
        groups = None if given.count is None else _num_groups(given.count, self.at_once)
        return self.verdict(given, self.at_once) * groups * self.verdicts

    def verdict(self, given: Flow, count: int) -> Cost:
        """The most that a verdict costs on so many of the candidates."""
        texts = (len(self.rubric.encode()), *[given.text] * count)
        return Cost(tokens=given.lengths.call(self.role, self.max_tokens, *texts), calls=1)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything, holds the knockout, and yields the winner."""
        seen = [candidate async for candidate in candidates]
        entries = entries_of(seen)
        if not entries:
            scope.decide("no_valid_answer", num_samples=len(seen))
            return
        calls = Calls(scope)
        alive = scope.random("order").sample(entries, len(entries))
        number = 0
        while len(alive) > 1 and calls.refusal is None:
            groups = [alive[n : n + self.at_once] for n in range(0, len(alive), self.at_once)]
            lone = [groups.pop()] if len(groups[-1]) == 1 else []
            alive = await self.winners(groups, number, calls, scope) + [e for g in lone for e in g]
            number += 1
        best = max(alive, key=lambda entry: (entry.votes, -entry.place))
        yield resting_on(best.candidate, calls=[call for e in entries for call in e.calls])
        calls.end()


def entries_of(candidates: Sequence[Candidate]) -> list[Entry]:
    """One entry for each distinct answer, in launch order; a copy of a candidate votes once."""
    tally = Tally()
    for candidate in candidates:
        tally.add(candidate)
    return [
        Entry(candidate, votes, place) for place, (candidate, votes) in enumerate(tally.votes())
    ]


def _num_groups(count: int, size: int) -> int:
    """The most groups of a knockout."""
    total = 0
    while count > 1:
        groups = math.ceil(count / size)
        total += groups
        count = groups
    return total
