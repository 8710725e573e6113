"""SpecReason: a small model drafts each step of the reasoning, a large one accepts it or writes it.

Source: Pan et al. 2025, arXiv 2504.07891, section 4: the large model reads a step and says one
digit; from a threshold on the step stands, else it writes the step itself.
Differs: the question after a step is our own; a digit that cannot be read accepts nothing.
Cost: for each step a draft of at most `step_tokens`, its tokens as a prompt of the large model and
`score_tokens` for its digit, and another `step_tokens` where it is rejected. Rejected drafts are
charged to the role that drafted them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ttc.errors import TTCError
from ttc.graph import Cost, Flow, Node, Port
from ttc.lengths import largest, plus, times
from ttc.ports import Scope, Stream
from ttc.strategies.calls import Ask, Calls, ended, resting_on, start_of
from ttc.strategies.refinement import count_faults, sampling_faults, text_faults
from ttc.types import Branch, Candidate, Sampling, Usage

__all__ = ["SpecReason"]

QUESTION = "\n[How good is this last step, as one digit from 0, wrong, to 9, right? "
_DIGIT = re.compile(r"\W*([0-9])(?![0-9])")


@dataclass(eq=False)
class _Fork:
    """One fork on its way, in the tokens of both models."""

    candidate: Candidate
    large: Branch
    small: Branch
    usage: Usage = field(default_factory=Usage)
    calls: list[str] = field(default_factory=list)
    accepted: int = 0
    rejected: int = 0
    is_over: bool = False
    result: Candidate | None = None

    def note(self, found: Branch, scope: Scope) -> None:
        """Notes a call that it rests on."""
        self.usage += scope.finish(Candidate(branch=found), found).usage
        self.calls += [found.call] if found.call else []


@dataclass(frozen=True, kw_only=True)
class SpecReason(Node):
    """Forks every open candidate n times, and writes each fork step by step with two models."""

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    n: int = 1
    """Forks of each open candidate."""
    threshold: int = 7
    """The least digit that accepts a step, 0 to 9: 0 takes every step that gets a digit."""
    first: int = 0
    """Steps at the beginning that the large model writes in any case."""
    max_steps: int = 32
    """The most steps; a fork that is not done then is truncated."""
    step_tokens: int = 128
    """The most output tokens of a step."""
    score_tokens: int = 4
    """The most output tokens of a digit."""
    delimiter: str = "\n\n"
    """What ends a step."""
    temperature: float = 0.6
    draft: str = "draft"
    """The role that drafts."""
    role: str = "policy"
    """The role that judges drafts, and writes what it rejects."""

    @property
    def roles(self) -> frozenset[str]:
        """Both."""
        return frozenset({self.draft, self.role})

    @property
    def requires(self) -> frozenset[str]:
        """Tokens, to append to, and forks, to ask about a step."""
        return frozenset({"tokens", "fork"})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and no delimiter."""
        counts = {"n": self.n, "max_steps": self.max_steps, "step_tokens": self.step_tokens}
        faults = count_faults(**counts, score_tokens=self.score_tokens)
        faults += count_faults(first=self.first) if self.first != 0 else []
        if type(self.threshold) is not int or not 0 <= self.threshold <= 9:
            faults.append(f"threshold is a digit, not {self.threshold!r}")
        faults += text_faults(delimiter=self.delimiter, role=self.role, draft=self.draft)
        return faults + sampling_faults(self.temperature)

    def flow(self, given: Flow) -> Flow:
        """N for each one given."""
        count = None if given.count is None else given.count * self.n
        return Flow(kind="finished", count=count, roles=self.roles)

    def longest(self, given: Flow) -> int | None:
        """All steps."""
        return plus(given.text, times(self._step_bytes(given), self.max_steps))

    def bound(self, given: Flow) -> Cost:
        """For each step a draft, a digit and a step, and what one model reads of the other."""
        written, asked = 2 * self.step_tokens + self.score_tokens, len(QUESTION.encode())
        tokens = plus(written, asked, self._step_bytes(given), self._step_bytes(given))
        begun = Cost(tokens=given.text)  # as the model that drafts reads it
        steps = Cost(tokens=tokens, calls=3) * self.max_steps
        return (begun + steps) * given.count * self.n

    def _step_bytes(self, given: Flow) -> int | None:
        """The most bytes of a step, whoever writes it."""
        written = (given.lengths.written(role, self.step_tokens) for role in self.roles)
        return plus(largest(*written), len(self.delimiter.encode()))

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Goes from step to step with all forks, and yields them when all have ended."""
        calls = Calls(scope)
        given = [candidate async for candidate in candidates]
        forks = [self._fork(candidate, scope) for candidate in given for _ in range(self.n)]
        for step in range(self.max_steps):
            live = [fork for fork in forks if not fork.is_over]
            if live and calls.refusal is None:
                drafted = live if step >= self.first else []
                left = await self._draft(drafted, calls, scope) if drafted else live
                await self._write([fork for fork in left if not fork.is_over], calls, scope)
        for place, fork in enumerate(forks):
            told = fork.accepted, fork.rejected
            scope.decide("speculated", end=False, fork=place, accepted=told[0], rejected=told[1])
            if fork.result is None and fork.large.output:
                unfinished = replace(fork.large, finish_reason="length")
                fork.result = scope.finish(fork.candidate, unfinished)
            if fork.result is not None:
                yield resting_on(replace(fork.result, usage=fork.usage), calls=fork.calls)
        calls.end()

    def _fork(self, candidate: Candidate, scope: Scope) -> _Fork:
        large = start_of(candidate, scope, self.role)
        small, text = scope.root(self.draft), large.output
        return _Fork(candidate, large, scope.append(small, text) if text else small)

    async def _draft(self, live: Sequence[_Fork], calls: Calls, scope: Scope) -> list[_Fork]:
        """Drafts a step of each; returns those whose draft was rejected."""
        drafts = await calls.generate(self._step(fork.small, self.temperature) for fork in live)
        pairs = [(f, d) for f, d in zip(live, drafts, strict=True) if isinstance(d, Branch)]
        steps: list[tuple[_Fork, Branch, Branch]] = []
        for fork, draft in pairs:
            fork.note(draft, scope)
            text = draft.text + (self.delimiter if draft.stop_reason == self.delimiter else "")
            steps.append((fork, draft, scope.append(fork.large, text) if text else fork.large))
        greedy = Sampling(temperature=0.0)
        asked = await calls.generate(
            Ask(of=scope.append(step, QUESTION), max_tokens=self.score_tokens, sampling=greedy)
            for _, _, step in steps
        )
        accepted: set[int] = set()
        for (fork, draft, step), digit in zip(steps, asked, strict=True):
            if isinstance(digit, Branch):
                fork.note(digit, scope)
            if self._accepts(digit):
                accepted.add(id(fork))
                fork.accepted, fork.large, fork.small = fork.accepted + 1, step, draft
                if self._is_last(draft):
                    self._end(fork, replace(step, finish_reason="stop"), scope)
            else:
                fork.rejected += 1
        return [fork for fork in live if id(fork) not in accepted]

    async def _write(self, live: Sequence[_Fork], calls: Calls, scope: Scope) -> None:
        """Lets the large model write a step of each."""
        found = await calls.generate(self._step(fork.large, self.temperature) for fork in live)
        for fork, step in zip(live, found, strict=True):
            if not isinstance(step, Branch):
                fork.is_over = True
                failed = ended(scope, fork.candidate, step)
                if failed is not None:
                    fork.usage += failed.usage
                    fork.result = None if fork.large.output else failed
                continue
            fork.note(step, scope)
            if self._is_last(step):
                self._end(fork, step, scope)
                continue
            fork.large, text = step, step.text
            if step.stop_reason == self.delimiter:  # the model has seen it, and the text lacks it
                text += self.delimiter
                fork.large = Branch(parent=step, role=step.role, text=self.delimiter, token_ids=())
            fork.small = scope.append(fork.small, text)

    def _step(self, of: Branch, temperature: float) -> Ask:
        sampling = Sampling(temperature=temperature)
        until = (self.delimiter,)
        return Ask(of=of, max_tokens=self.step_tokens, sampling=sampling, until=until)

    def _is_last(self, step: Branch) -> bool:
        """Whether the model came to its end."""
        return step.finish_reason == "stop" and step.stop_reason != self.delimiter

    def _accepts(self, digit: Branch | TTCError) -> bool:
        found = _DIGIT.match(digit.text) if isinstance(digit, Branch) else None
        return found is not None and int(found[1]) >= self.threshold

    @staticmethod
    def _end(fork: _Fork, branch: Branch, scope: Scope) -> None:
        fork.is_over = True
        fork.large = branch
        fork.result = scope.finish(fork.candidate, branch)
