"""Revisions: a chain of solutions in one go, each written with all before it in sight.

Source: sequential revisions, Snell et al. 2024, arXiv 2408.03314, section 6: the choice is made
over the whole chain; `chains` trades sequential for parallel.
Differs: no model was trained to revise; a cue is appended to what was written, token by token as it
stands, so that a chain is one sequence and nothing of it is computed twice.
Cost: for each open candidate chains x length calls of at most `max_tokens`, and the cue's tokens
before all but the first.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.answers import answer_key, extract_answer
from ttc.graph import Cost, Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.strategies.calls import Ask, Calls, ended, start_of
from ttc.strategies.refinement import count_faults, sampling_faults, text_faults
from ttc.types import Branch, Candidate, Problem, Sampling, Usage

__all__ = ["Revisions"]


@dataclass(frozen=True, kw_only=True)
class Revisions(Node):
    """Gives every version of every chain, first versions first; a selector picks among them.

    A version's text and answer are its own alone. A chain ends where a call of it fails.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    length: int = 4
    """Versions of a chain, the first one included."""
    chains: int = 1
    """Chains of each open candidate."""
    cue: str = "\n\nLet me check this solution, and write it again, right.\n\n"
    """What is appended to a version, so that the next one follows."""
    temperature: float = 0.8
    max_tokens: int = 512
    """The most output tokens of a version."""
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """Who writes."""
        return frozenset({self.role})

    @property
    def requires(self) -> frozenset[str]:
        """Tokens, to append to."""
        return frozenset({"tokens"})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and a cue that is none."""
        faults = count_faults(length=self.length, chains=self.chains, max_tokens=self.max_tokens)
        return (
            faults + text_faults(cue=self.cue, role=self.role) + sampling_faults(self.temperature)
        )

    def flow(self, given: Flow) -> Flow:
        """All versions of all chains."""
        count = None if given.count is None else given.count * self.chains * self.length
        return Flow(kind="finished", count=count, roles=frozenset({self.role}))

    def longest(self, given: Flow) -> int | None:
        """At most a whole chain."""
        return given.grown(self.role, self.length * self.max_tokens, self._cues)

    def bound(self, given: Flow) -> Cost:
        """Every version as long as it may be; a cue's bytes bound its tokens."""
        tokens = self.length * self.max_tokens + len(self._cues.encode())
        return Cost(tokens=tokens, calls=self.length) * given.count * self.chains

    @property
    def _cues(self) -> str:
        """All that is appended to a chain."""
        return self.cue * (self.length - 1)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Yields version after version, of all chains in turns."""
        calls, sampling = Calls(scope), Sampling(temperature=self.temperature)
        given = [candidate async for candidate in candidates]
        chains = [
            replace(c, branch=start_of(c, scope, self.role))
            for c in given
            for _ in range(self.chains)
        ]
        for version in range(self.length):
            if calls.refusal is not None:
                break
            if version:
                chains = [replace(c, branch=scope.append(c.branch, self.cue)) for c in chains]
            found = await calls.generate(
                Ask(of=chain.branch, max_tokens=self.max_tokens, sampling=sampling)
                for chain in chains
            )
            made = [ended(scope, c, branch) for c, branch in zip(chains, found, strict=True)]
            drawn = [c for c in made if c is not None]
            chains = [replace(c, usage=Usage()) for c in drawn if c.status != "failed"]
            for candidate in drawn:
                yield _alone(candidate, scope.problem) if version else candidate
        calls.end()


def _alone(candidate: Candidate, problem: Problem) -> Candidate:
    """A version without those that it followed."""
    branch: Branch = candidate.branch
    if candidate.status == "failed":
        return replace(candidate, text="")
    answer = extract_answer(branch.text, problem.answer_format, finish_reason=branch.finish_reason)
    key = answer_key(answer, problem.answer_format)
    return replace(candidate, text=branch.text, answer=answer, key=key)
