"""Verify: lets a verifier score candidates; `graph >> verifier` makes one of it.

Cost: one verifier call for each candidate, and what the verifier itself asks of engines. A verifier
that is made of others costs what they cost.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.errors import BudgetExceeded
from ttc.flow import verifier_cost
from ttc.graph import Cost, Flow, Node, Port, is_count
from ttc.ports import Scope, Stream, Verifier, parts_of
from ttc.types import Candidate, Score

__all__ = ["Verify", "verifier_demands"]


@dataclass(frozen=True)
class Verify(Node):
    """Adds a verifier's score to every candidate that has an answer; the others pass unscored.

    So does the first whose score a limit refuses, with which the stream ends.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("finished", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    verifier: Verifier
    ahead: int | None = None
    """Candidates that are being scored at once; `None` is all that have come."""

    def __post_init__(self) -> None:
        if not isinstance(self.verifier, Verifier):
            hint = "; Constraint(...) makes one of a function" if callable(self.verifier) else ""
            raise TypeError(f"{self.verifier!r} is no verifier{hint}")
        passes_each = self.verifier.needs == "each" and not self.verifier.roles
        object.__setattr__(self, "passes_each", passes_each)

    @property
    def roles(self) -> frozenset[str]:
        """The roles that the verifier asks."""
        return self.verifier.roles

    @property
    def requires(self) -> frozenset[str]:
        """What the verifier needs of an engine."""
        return self.verifier.requires

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """What each of the verifiers that it is made of needs, of its own roles."""
        return verifier_demands(self.verifier, given)

    def faults(self, given: Flow) -> list[str]:
        """A second score of one name, and a bad `ahead`."""
        faults = []
        if self.ahead is not None and not is_count(self.ahead):
            faults.append(f"ahead is a whole number of at least 1, not {self.ahead!r}")
        if self.verifier.name in given.scores:
            faults.append(f"its candidates carry a score {self.verifier.name!r} already")
        return faults

    def flow(self, given: Flow) -> Flow:
        """The same candidates, with one more score."""
        return replace(given, scores={**given.scores, self.verifier.name: self.verifier.range})

    def bound(self, given: Flow) -> Cost:
        """A verifier call for each candidate, and what the verifier asks."""
        return verifier_cost(self.verifier, given)

    def run(self, candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        """Scores each candidate as it comes, or all together where the verifier needs that."""
        by_one = self.verifier.needs == "each"
        return self._each(candidates, scope) if by_one else self._together(candidates, scope)

    async def _each(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        refused: dict[int, Candidate] = {}

        async def score(candidate: Candidate, index: int) -> Candidate:
            if candidate.key is not None:
                try:
                    (result,) = await scope.verify(self.verifier, [candidate])
                except BudgetExceeded:
                    refused[index] = candidate
                    raise
                candidate = self._scored(candidate, result)
            candidates.pace.done()
            return candidate

        if self.verifier.roles and not scope.beside & {"tokens", "calls"}:
            candidates.pace.keep(scope.path)
        async for candidate in scope.map(score, candidates, ahead=self.ahead):
            yield candidate
        if refused:
            yield refused[min(refused)]

    async def _together(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        everyone = [candidate async for candidate in candidates]
        asked = [candidate for candidate in everyone if candidate.key is not None]
        results: Sequence[Score] = ()
        refusal: BudgetExceeded | None = None
        try:
            results = await scope.verify(self.verifier, asked) if asked else ()
        except BudgetExceeded as refused:
            refusal = refused  # everyone passes unscored
        following = iter(results)
        for candidate in everyone:
            asked_for = candidate.key is not None and refusal is None
            yield self._scored(candidate, next(following)) if asked_for else candidate
        if refusal is not None:
            raise refusal

    def _scored(self, candidate: Candidate, score: Score) -> Candidate:
        return replace(candidate, scores={**candidate.scores, self.verifier.name: score})


def verifier_demands(verifier: Verifier, given: Flow) -> dict[str, frozenset[str]]:
    """What a verifier and its parts need of the engine of each role."""
    parts = parts_of(verifier)
    if not parts:
        roles = verifier.roles or (given.roles if verifier.requires else frozenset())
        return dict.fromkeys(roles, verifier.requires)
    demands: dict[str, frozenset[str]] = {}
    for part in parts:
        for role, needs in verifier_demands(part, given).items():
            demands[role] = demands.get(role, frozenset()) | needs
    return demands
