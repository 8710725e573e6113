"""RecursiveAggregation: a population of solutions, each new one made of several old ones.

Source: recursive self-aggregation, Venkatraman et al. 2025, arXiv 2509.26626, section 3: in each of
T rounds every member is replaced by an aggregate of K members, drawn without replacement.
Differs: a call that fails leaves the old member in its place; the last round's population is given,
for a vote or a verifier to choose from.
Cost: for a population of N, N x rounds calls of at most `max_tokens`; each prompt shows the problem
and K solutions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.graph import Cost, Flow, Node, Port
from ttc.lengths import largest
from ttc.ports import Scope, Stream
from ttc.strategies.calls import Ask, Calls, resting_on
from ttc.strategies.mixture_of_agents import synthesis
from ttc.strategies.refinement import count_faults, sampling_faults
from ttc.types import Branch, Candidate, Sampling

__all__ = ["RecursiveAggregation"]


@dataclass(frozen=True, kw_only=True)
class RecursiveAggregation(Node):
    """Replaces its candidates, round by round, by aggregates of a few of them."""

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("finished", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    size: int = 3
    """K: the members that an aggregate is made of; all of them where there are fewer."""
    rounds: int = 3
    temperature: float = 0.8
    max_tokens: int = 512
    """The most output tokens of an aggregate."""
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """Who aggregates."""
        return frozenset({self.role})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range."""
        faults = count_faults(size=self.size, rounds=self.rounds, max_tokens=self.max_tokens)
        return faults + sampling_faults(self.temperature)

    def flow(self, given: Flow) -> Flow:
        """As many, without the scores of the old ones."""
        return replace(given, kind="finished", scores={}, roles=given.roles | {self.role})

    def longest(self, given: Flow) -> int | None:
        """An old member, or an aggregate."""
        return largest(given.text, given.lengths.written(self.role, self.max_tokens))

    def bound(self, given: Flow) -> Cost:
        """The calls, each with as many members as it shows."""
        texts = [self.longest(given)] * self.size
        tokens = given.lengths.call(self.role, self.max_tokens, *texts)
        return Cost(tokens=tokens, calls=1) * given.count * self.rounds

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads the population, renews it round by round, and yields the last one."""
        calls, members = Calls(scope), [candidate async for candidate in candidates]
        sampling = Sampling(temperature=self.temperature)
        for number in range(self.rounds):
            shown = [member for member in members if member.key is not None]
            if not shown or calls.refusal is not None:
                break
            groups = [
                scope.random(number, place).sample(shown, min(self.size, len(shown)))
                for place in range(len(members))
            ]
            found = await calls.generate(
                Ask(
                    of=synthesis(scope, group),
                    role=self.role,
                    max_tokens=self.max_tokens,
                    sampling=sampling,
                )
                for group in groups
            )
            members = [
                _renewed(scope, old, group, branch) if isinstance(branch, Branch) else old
                for old, group, branch in zip(members, groups, found, strict=True)
            ]
        for member in members:
            yield member
        calls.end()


def _renewed(scope: Scope, old: Candidate, group: list[Candidate], found: Branch) -> Candidate:
    """A member in an old one's place, whose costs it takes over; without an answer, the old."""
    new = scope.finish(Candidate(branch=next(found.lineage()), usage=old.usage), found)
    kept = new if new.key is not None else replace(old, usage=new.usage)
    return resting_on(kept, old, *group, calls=[found.call] if found.call else [])
