"""Refinement: what all nodes share that improve candidates round by round and keep the best.

A round asks for feedback on every candidate at once, then for all revisions, and then scores them.
The best version stands, so that a revision which makes a candidate worse costs tokens alone; ties
go to the earlier one. Without scores the last version with an answer stands. The trace tells the
rewards of all versions as `refined`.

Source: the common loop of Madaan et al. 2023 (arXiv 2303.17651), algorithm 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

from ttc.errors import TTCError
from ttc.flow import verifier_cost
from ttc.graph import Cost, Flow, Node, Port, is_count
from ttc.lengths import largest, times
from ttc.ports import Scope, Stream, Verifier
from ttc.prompts import fenced, question, solution
from ttc.strategies.calls import Ask, Calls, resting_on
from ttc.strategies.verify import Verify
from ttc.types import Branch, Candidate, Sampling, Usage

__all__ = [
    "Refinement",
    "ScoredRefinement",
    "Versions",
    "count_faults",
    "sampling_faults",
    "shown",
    "text_faults",
]


@dataclass(eq=False)
class Versions:
    """One candidate with all its versions."""

    best: Candidate
    """What stands now."""
    versions: list[Candidate]
    """All, the oldest first."""
    notes: list[str] = field(default_factory=list)
    """What was said of it, the oldest first."""
    usage: Usage = field(default_factory=Usage)
    calls: list[str] = field(default_factory=list)
    """Feedback that it rests on."""
    is_over: bool = False

    @property
    def latest(self) -> Candidate:
        """The newest version."""
        return self.versions[-1]


@dataclass(frozen=True, kw_only=True)
class Refinement(Node):
    """Improves each candidate in rounds."""

    takes: ClassVar[Port] = Port("finished", "many")
    gives: ClassVar[Port] = Port("finished", "many")
    asks_feedback: ClassVar[bool] = True
    """Whether a model is asked for feedback in each round."""

    rounds: int = 2
    """The most revisions of a candidate, one after the other."""
    temperature: float = 0.7
    max_tokens: int = 512
    """The most output tokens of a revision, and of feedback."""
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """Who revises."""
        return frozenset({self.role})

    @property
    def width(self) -> int:
        """Revisions of a candidate in a round."""
        return 1

    @property
    def score_name(self) -> str:
        """Which score decides what stands; none does by default."""
        return ""

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range."""
        counts = count_faults(rounds=self.rounds, max_tokens=self.max_tokens)
        return counts + sampling_faults(self.temperature) + text_faults(role=self.role)

    def flow(self, given: Flow) -> Flow:
        """As many; a revision carries no older score."""
        return replace(given, kind="finished", scores={}, roles=given.roles | {self.role})

    def longest(self, given: Flow) -> int | None:
        """The first version, or a later one."""
        return largest(given.text, given.lengths.written(self.role, self.max_tokens))

    def bound(self, given: Flow) -> Cost:
        """Calls for each round, with what their prompts show."""
        texts = self.shows(self.longest(given), given.lengths.written(self.role, self.max_tokens))
        asked = given.lengths.call(self.role, self.max_tokens, *texts)
        each = self.rounds * (self.width + self.asks_feedback)
        return Cost(tokens=asked, calls=1) * given.count * each

    def shows(self, version: int | None, note: int | None) -> tuple[int | None, ...]:
        """The most bytes of each text in a prompt, where versions and notes have so many.

        By default one version is shown, and what was said of it.
        """
        return version, note

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything, refines in rounds, and yields what stands."""
        chains = [Versions(best=c, versions=[c], usage=c.usage) async for c in candidates]
        calls = Calls(scope)
        live = [chain for chain in chains if solution(chain.best).strip()]
        first = await self.scored([chain.best for chain in live], calls, scope)
        for chain, candidate in zip(live, first, strict=True):
            chain.best, chain.versions = candidate, [candidate]
            chain.is_over = self.is_enough(candidate)
        for _ in range(self.rounds):
            live = [chain for chain in live if not chain.is_over]
            if live and calls.refusal is None:
                await self._round(live, calls, scope)
        for place, chain in enumerate(chains):
            rewards = tuple(map(self.value, chain.versions))
            kept = next(n for n, v in enumerate(chain.versions) if v is chain.best)
            scope.decide("refined", end=False, candidate=place, rewards=rewards, kept=kept)
            whole = replace(chain.best, usage=chain.usage)
            yield resting_on(whole, *chain.versions, calls=chain.calls)
        calls.end()

    def feedback_on(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The paragraphs that ask for feedback, where it asks for any."""
        return ()

    @abstractmethod
    def revision_of(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The paragraphs that ask for a new version."""

    def take(self, chain: Versions, feedback: Branch) -> None:
        """Takes feedback in."""
        chain.notes.append(feedback.text.rpartition("</think>")[2].strip())

    async def scored(
        self, candidates: Sequence[Candidate], calls: Calls, scope: Scope
    ) -> list[Candidate]:
        """Versions with their scores."""
        return list(candidates)

    def value(self, candidate: Candidate) -> float | None:
        """The score that decides."""
        score = candidate.scores.get(self.score_name)
        return score.value if score else None

    def is_enough(self, candidate: Candidate) -> bool:
        """Whether a candidate is left as it is."""
        return False

    async def _round(self, live: Sequence[Versions], calls: Calls, scope: Scope) -> None:
        if self.asks_feedback:
            found = await calls.generate(self._ask(self.feedback_on(c, scope)) for c in live)
            for chain, feedback in zip(live, found, strict=True):
                self._hear(chain, feedback, scope)
        live = [chain for chain in live if not chain.is_over for _ in range(self.width)]
        made = await calls.generate(self._ask(self.revision_of(chain, scope)) for chain in live)
        drafts = [
            (chain, scope.finish(Candidate(branch=next(branch.lineage())), branch))
            for chain, branch in zip(live, made, strict=True)
            if isinstance(branch, Branch)
        ]
        scored = await self.scored([draft for _, draft in drafts], calls, scope)
        for (chain, _), draft in zip(drafts, scored, strict=True):
            chain.usage += draft.usage
            chain.versions.append(draft)
            chain.best = draft if self._is_better(draft, chain.best) else chain.best
            chain.is_over = self.is_enough(chain.best)

    def _ask(self, paragraphs: tuple[str, ...]) -> Ask:
        sampling = Sampling(temperature=self.temperature)
        return Ask(of=paragraphs, role=self.role, max_tokens=self.max_tokens, sampling=sampling)

    def _hear(self, chain: Versions, found: Branch | TTCError, scope: Scope) -> None:
        if isinstance(found, TTCError):
            chain.is_over = True  # there is nothing to go by
            return
        chain.usage += scope.finish(Candidate(branch=found), found).usage
        chain.calls += [found.call] if found.call else []
        self.take(chain, found)

    def _is_better(self, new: Candidate, old: Candidate) -> bool:
        if not self.score_name:
            return new.key is not None
        value, stands = self.value(new), self.value(old)
        if value is None:
            return stands is None and new.key is not None and old.key is None
        return value > (-inf if stands is None else stands)


@dataclass(frozen=True, kw_only=True)
class ScoredRefinement(Refinement):
    """Refinement of which a verifier may say what stands."""

    needs_scores: ClassVar[bool] = False
    """Whether it is nothing without a verifier."""

    verifier: Verifier | None = None
    """What scores versions; the best one stands."""
    enough: float | None = None
    """A score at which a candidate is left as it is."""

    def __post_init__(self) -> None:
        if self.verifier is not None:
            Verify(self.verifier)  # says what is wrong with it, if anything is

    @property
    def roles(self) -> frozenset[str]:
        """Who revises, and whom the verifier asks."""
        return super().roles | (self.verifier.roles if self.verifier else frozenset())

    @property
    def score_name(self) -> str:
        """The verifier's."""
        return self.verifier.name if self.verifier else ""

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """What the verifier needs of those that write, and of its own roles."""
        demands = {self.role: frozenset[str]()}
        if self.verifier is not None:
            whole = replace(given, roles=given.roles | {self.role})
            demands |= Verify(self.verifier).demands(whole)
        return demands

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, a verifier that is missing, a score that is never reached."""
        faults = super().faults(given)
        bounds = self.verifier.range if self.verifier else None
        if self.verifier is None and self.needs_scores:
            faults.append("it goes by scores; pass verifier=unit_tests(), say")
        elif self.verifier is None and self.enough is not None:
            faults.append(f"enough={self.enough} is a score, and there is no verifier")
        elif self.enough is not None and bounds and self.enough > bounds[1]:
            faults.append(f"enough={self.enough} is more than a score can be: {bounds[1]}")
        return faults

    def flow(self, given: Flow) -> Flow:
        """As many; a revision carries the verifier's score alone."""
        scores = {self.verifier.name: self.verifier.range} if self.verifier else {}
        return replace(super().flow(given), scores=scores)

    def bound(self, given: Flow) -> Cost:
        """Calls for each round, and what the verifier costs for every version."""
        total = super().bound(given)
        if self.verifier is None:
            return total
        versions, stages = 1 + self.rounds * self.width, 1
        if self.verifier.needs == "all":
            versions, stages = self.width, 1 + self.rounds
        shown = replace(given, count=times(given.count, versions), text=self.longest(given))
        return total + verifier_cost(self.verifier, shown) * stages

    async def scored(
        self, candidates: Sequence[Candidate], calls: Calls, scope: Scope
    ) -> list[Candidate]:
        """Versions with their scores."""
        return await calls.score(self.verifier, candidates) if self.verifier else list(candidates)

    def is_enough(self, candidate: Candidate) -> bool:
        """Whether its score is."""
        value = self.value(candidate)
        return self.enough is not None and value is not None and value >= self.enough


def shown(scope: Scope, candidate: Candidate) -> tuple[str, str]:
    """The problem and a solution of it, as data."""
    asked, text = question(scope.problem), solution(candidate)
    return fenced("problem", asked), fenced("solution", text, asked)


def count_faults(**counts: object) -> list[str]:
    """What is wrong with numbers that have to be counts."""
    return [
        f"{name} is a whole number of at least 1, not {value!r}"
        for name, value in counts.items()
        if not is_count(value)
    ]


def text_faults(**texts: object) -> list[str]:
    """What is wrong with texts that must not be empty."""
    return [
        f"{name} is a text that is not empty, not {value!r}"
        for name, value in texts.items()
        if not isinstance(value, str) or not value.strip("\t ")
    ]


def sampling_faults(temperature: float) -> list[str]:
    """What is wrong with a temperature."""
    try:
        Sampling(temperature=temperature)
    except (TypeError, ValueError) as error:
        return [str(error)]
    return []
