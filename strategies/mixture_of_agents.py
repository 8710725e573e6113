"""MixtureOfAgents: layers of models, each of which sees what the layer before it has answered.

Source: Wang et al. 2024, arXiv 2406.04692, section 2.2: proposers in layers, and an aggregator.
Differs: answers are shown between fences as data; one that failed is left out.
Cost: layers x proposers + 1 calls of at most `max_tokens`; each prompt after the first layer shows
the problem and all answers of the layer before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.graph import Cost, Flow, Node, Port
from ttc.lengths import largest
from ttc.ports import Scope, Stream
from ttc.prompts import PREAMBLE, fenced, question, solution
from ttc.strategies.calls import Ask, Calls, ended, resting_on
from ttc.strategies.refinement import count_faults, sampling_faults, text_faults
from ttc.types import Branch, Candidate, Sampling

__all__ = ["MixtureOfAgents", "synthesis"]


@dataclass(frozen=True, init=False)
class MixtureOfAgents(Node):
    """Proposers answer, see all answers, answer again; the aggregator writes the last answer.

    If the aggregator fails, the first answer of the last layer stands.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "one")
    gives: ClassVar[Port] = Port("finished", "one")

    proposers: tuple[str, ...]
    """Roles; one may stand there several times."""
    layers: int
    aggregator: str
    """The role that writes the last answer."""
    temperature: float
    max_tokens: int
    """The most output tokens of each call."""

    def __init__(
        self,
        *proposers: str,
        layers: int = 2,
        aggregator: str = "policy",
        temperature: float = 0.7,
        max_tokens: int = 512,
    ) -> None:
        """Roles that propose; three times the policy by default."""
        given = proposers or ("policy",) * 3
        options = {"layers": layers, "aggregator": aggregator, "temperature": temperature}
        for name, value in {"proposers": given, **options, "max_tokens": max_tokens}.items():
            object.__setattr__(self, name, value)

    @property
    def roles(self) -> frozenset[str]:
        """All proposers, and the aggregator."""
        return frozenset({*self.proposers, self.aggregator})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and a proposer that is no name."""
        faults = count_faults(layers=self.layers, max_tokens=self.max_tokens)
        for name in self.proposers:
            faults += text_faults(proposer=name)
        faults += text_faults(aggregator=self.aggregator)
        return faults + sampling_faults(self.temperature)

    def flow(self, given: Flow) -> Flow:
        """One."""
        return Flow(kind="finished", count=1, roles=self.roles)

    def longest(self, given: Flow) -> int | None:
        """What the aggregator writes, or any proposer."""
        return self._longest(given, self.roles)

    def bound(self, given: Flow) -> Cost:
        """The calls, all but those of the first layer with every answer of the one before."""
        answers = [self._longest(given, frozenset(self.proposers))] * len(self.proposers)

        def call(role: str) -> Cost:
            return Cost(tokens=given.lengths.call(role, self.max_tokens, *answers), calls=1)

        first = Cost(tokens=self.max_tokens, calls=1) * len(self.proposers)
        layer = sum(map(call, self.proposers), Cost())
        return first + layer * (self.layers - 1) + call(self.aggregator)

    def _longest(self, given: Flow, roles: frozenset[str]) -> int | None:
        return largest(*(given.lengths.written(role, self.max_tokens) for role in roles))

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Goes from layer to layer, and yields what the aggregator wrote."""
        calls, seen, answers = Calls(scope), [], list[Candidate]()
        async for _ in candidates:
            pass
        for layer in range(self.layers):
            if calls.refusal is None:
                made = await self._asked(self.proposers, answers if layer else (), calls, scope)
                seen += made
                answers = [c for c in made if c.text.strip() and c.key is not None] or answers
        last = await self._asked((self.aggregator,), answers, calls, scope) if answers else []
        seen += last
        chosen = next((c for c in (*last, *answers) if c.key is not None), None)
        if chosen is not None:
            usage = sum((c.usage for c in seen if c is not chosen), chosen.usage)
            yield resting_on(replace(chosen, usage=usage), *seen)
        calls.end()

    async def _asked(
        self, roles: Sequence[str], answers: Sequence[Candidate], calls: Calls, scope: Scope
    ) -> list[Candidate]:
        """What roles make of answers, or of the problem alone."""
        sampling = Sampling(temperature=self.temperature)
        paragraphs = synthesis(scope, answers) if answers else None
        found = await calls.generate(
            Ask(
                of=paragraphs or scope.root(role),
                role=role,
                max_tokens=self.max_tokens,
                sampling=sampling,
            )
            for role in roles
        )
        roots = [
            next(branch.lineage()) if isinstance(branch, Branch) else scope.root(role)
            for role, branch in zip(roles, found, strict=True)
        ]
        made = [
            ended(scope, Candidate(branch=root), branch)
            for root, branch in zip(roots, found, strict=True)
        ]
        return [candidate for candidate in made if candidate is not None]


def synthesis(scope: Scope, answers: Sequence[Candidate]) -> tuple[str, ...]:
    """The paragraphs that ask for one solution out of several."""
    asked, texts = question(scope.problem), [solution(answer) for answer in answers]
    return (
        f"You solve a problem with the help of solutions that others wrote. {PREAMBLE}",
        fenced("problem", asked),
        *(fenced(f"solution {n}", text, asked, *texts) for n, text in enumerate(texts, 1)),
        "Some of the solutions may be wrong, and even all of them. Compare them, check what they "
        "differ in, and write one right solution, in the form that the problem asks for.",
    )
