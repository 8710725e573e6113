"""Summarise: long reasoning in segments, each of which goes on from a summary of those before it.

Source: InftyThink, Yan et al. 2025, arXiv 2503.06692, section 3: reasoning, summary, reasoning, so
that no context grows beyond a segment.
Differs: no model was trained for it; summaries are asked for in prompts of our own.
Cost: for each fork at most `segments` calls of at most `max_tokens` and segments - 1 of at most
`summary_tokens`; a summary's prompt shows a segment, a segment's prompt a summary.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ttc.graph import Cost, Flow, Node, Port
from ttc.lengths import plus
from ttc.ports import Scope, Stream
from ttc.prompts import PREAMBLE, fenced, question, solution
from ttc.strategies.calls import Ask, Calls, ended, resting_on, start_of
from ttc.strategies.refinement import count_faults, sampling_faults
from ttc.types import Branch, Candidate, Sampling, Usage

__all__ = ["Summarise"]


@dataclass(eq=False)
class _Fork:
    """One fork on its way."""

    candidate: Candidate
    summary: str = ""
    usage: Usage = field(default_factory=Usage)
    calls: list[str] = field(default_factory=list)
    is_over: bool = False

    def note(self, found: Branch, scope: Scope) -> None:
        """Notes a call that it rests on."""
        self.usage += scope.finish(Candidate(branch=found), found).usage
        self.calls += [found.call] if found.call else []


@dataclass(frozen=True, kw_only=True)
class Summarise(Node):
    """Forks every open candidate n times; a fork that its length cuts is summarised and goes on."""

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    n: int = 1
    """Forks of each open candidate."""
    segments: int = 4
    """The most segments of a fork. One that its length cuts in the last is truncated."""
    max_tokens: int = 512
    """The most output tokens of a segment."""
    summary_tokens: int = 192
    """The most output tokens of a summary."""
    temperature: float = 0.8
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """Who writes."""
        return frozenset({self.role})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range."""
        counts = {"n": self.n, "segments": self.segments, "max_tokens": self.max_tokens}
        faults = count_faults(**counts, summary_tokens=self.summary_tokens)
        return faults + sampling_faults(self.temperature)

    def flow(self, given: Flow) -> Flow:
        """N for each one given."""
        count = None if given.count is None else given.count * self.n
        return Flow(kind="finished", count=count, roles=frozenset({self.role}))

    def longest(self, given: Flow) -> int | None:
        """A segment; the first goes on from what is given."""
        return given.grown(self.role, self.max_tokens)

    def bound(self, given: Flow) -> Cost:
        """Calls of every segment, and of every summary of one."""
        call, first = given.lengths.call, Cost(tokens=self.max_tokens, calls=1)
        summary = given.lengths.written(self.role, self.summary_tokens)
        summed_up = call(self.role, self.summary_tokens, summary, self.longest(given))
        going_on = call(self.role, self.max_tokens, summary)
        later = Cost(tokens=plus(summed_up, going_on), calls=2) * (self.segments - 1)
        return (first + later) * given.count * self.n

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Goes from segment to segment with all forks, and yields them when all have ended."""
        calls = Calls(scope)
        given = [candidate async for candidate in candidates]
        forks = [_Fork(c) for c in given for _ in range(self.n)]
        for fork in forks:
            start = start_of(fork.candidate, scope, self.role)
            fork.candidate = replace(fork.candidate, branch=start)
        await self._segment(forks, [self._ask(f.candidate.branch) for f in forks], calls, scope)
        for _ in range(self.segments - 1):
            live = [fork for fork in forks if not fork.is_over]
            if live and calls.refusal is None:
                await self._summarise(live, calls, scope)
                live = [fork for fork in live if not fork.is_over]
                asks = [self._ask(self._going_on(fork, scope)) for fork in live]
                await self._segment(live, asks, calls, scope)
        for fork in forks:
            if fork.candidate.status != "open":
                yield resting_on(replace(fork.candidate, usage=fork.usage), calls=fork.calls)
        calls.end()

    async def _segment(
        self, forks: Sequence[_Fork], asks: Sequence[Ask], calls: Calls, scope: Scope
    ) -> None:
        for fork, found in zip(forks, await calls.generate(asks), strict=True):
            is_first = fork.candidate.status == "open"
            fork.is_over = not isinstance(found, Branch) or found.finish_reason != "length"
            if isinstance(found, Branch):
                fork.note(found, scope)
            elif not is_first:
                continue  # what it has written until now stands
            before = fork.candidate if is_first else Candidate(branch=_root(found))
            fork.candidate = ended(scope, before, found) or fork.candidate
            if fork.candidate.status == "failed":
                fork.usage = fork.candidate.usage

    async def _summarise(self, live: Sequence[_Fork], calls: Calls, scope: Scope) -> None:
        asks = [self._ask(self._summing_up(f, scope), self.summary_tokens) for f in live]
        for fork, found in zip(live, await calls.generate(asks), strict=True):
            if isinstance(found, Branch):
                fork.note(found, scope)
                fork.summary = found.text.rpartition("</think>")[2].strip()
            fork.is_over = not isinstance(found, Branch) or not fork.summary

    def _ask(self, of: Branch | tuple[str, ...], max_tokens: int | None = None) -> Ask:
        sampling = Sampling(temperature=self.temperature)
        most = max_tokens or self.max_tokens
        return Ask(of=of, role=self.role, max_tokens=most, sampling=sampling)

    @staticmethod
    def _summing_up(fork: _Fork, scope: Scope) -> tuple[str, ...]:
        asked, text = question(scope.problem), solution(fork.candidate)
        earlier = (fenced("summary of what came before", fork.summary, text),)
        return (
            f"You sum up unfinished reasoning on a problem. {PREAMBLE}",
            fenced("problem", asked),
            *(earlier if fork.summary else ()),
            fenced("reasoning", text, asked),
            "Sum up in a few sentences what has been found out until now, with every number that "
            "is needed to go on, and what is still to do.",
        )

    @staticmethod
    def _going_on(fork: _Fork, scope: Scope) -> tuple[str, ...]:
        asked = question(scope.problem)
        return (
            f"You solve a problem, and others have begun. {PREAMBLE}",
            fenced("problem", asked),
            fenced("summary of the reasoning until now", fork.summary, asked),
            "Go on with the reasoning from there, to the answer, in the form that the problem asks "
            "for.",
        )


def _root(found: object) -> Branch:
    assert isinstance(found, Branch)
    return next(found.lineage())
