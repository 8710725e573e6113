"""ThoughtValue and ThoughtVote: a model judges the states of a search, alone or against each other.

Source: Yao et al. 2023 (arXiv 2305.10601), section 3, state evaluator: (a) each state is valued
alone, as sure, likely or impossible, several times; (b) votes are taken for the most promising of
several states.
Differs: values lie in 0 to 1: sure is 1, likely 1/20, impossible 0, in the proportion of the
release. Verdicts that cannot be read do not count.
Cost: `samples` calls for each state, or for each vote among states, at most `max_tokens` output
tokens each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ttc.flow import Cost, Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, question, solution, together
from ttc.types import Candidate, Problem, Score
from ttc.verdicts import Verdict, ask
from ttc.verifiers.judge import check_asking

__all__ = ["ThoughtValue", "ThoughtVote"]

VALUES = {"sure": 1.0, "likely": 0.05, "impossible": 0.0}


@dataclass(frozen=True, kw_only=True)
class _OfThoughts(ABC):
    """A model that is asked several times, and ends with a verdict."""

    remote: ClassVar[bool] = True
    requires: ClassVar[frozenset[str]] = frozenset()
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    rubric: str
    """What the model goes by. It is an instruction, so it is yours to answer for."""
    samples: int
    """Verdicts; more than one need a temperature."""
    temperature: float = 0.7
    max_tokens: int = 256
    role: str = "policy"
    """Who is asked: by default the model that thinks."""

    def __post_init__(self) -> None:
        check_asking(
            self.rubric, self.temperature, samples=self.samples, max_tokens=self.max_tokens
        )
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"{self.samples} verdicts at temperature 0 are one; set a temperature, or samples=1"
            )

    @property
    def roles(self) -> frozenset[str]:
        """The role that is asked."""
        return frozenset({self.role})

    @abstractmethod
    def read(self, word: str) -> float | None:
        """The value of a verdict's word."""

    def verdicts_on(self, given: Flow, count: int | None) -> Cost:
        """Its verdicts on one prompt that shows so many of the candidates."""
        shown = [None] if count is None else [given.text] * count
        texts = (len(self.rubric.encode()), *shown)
        asked = Cost(tokens=given.lengths.call(self.role, self.max_tokens, *texts), calls=1)
        return asked * self.samples

    async def _asked(self, scope: Scope, paragraphs: tuple[str, ...], first: int) -> list[Verdict]:
        """Several verdicts on one prompt."""
        return await together(
            scope,
            (
                ask(
                    scope,
                    self.role,
                    paragraphs,
                    read=self.read,
                    index=first + sample,
                    max_tokens=self.max_tokens,
                    temperature=self.temperature,
                )
                for sample in range(self.samples)
            ),
        )


@dataclass(frozen=True, kw_only=True)
class ThoughtValue(_OfThoughts):
    """Whether a state can still lead to a solution, as the mean of several verdicts."""

    needs: ClassVar[Literal["each", "all"]] = "each"

    rubric: str = "Can what is written so far be continued to a right answer?"
    samples: int = 3
    """Verdicts on each state; more than one need a temperature."""
    name: str = "thought_value"

    def bound(self, given: Flow) -> Cost:
        """Verdicts on each state."""
        return self.verdicts_on(given, 1) * given.count

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each state."""
        work = (self._score(problem, c, scope, place) for place, c in enumerate(candidates))
        return tuple(await together(scope, work))

    async def _score(
        self, problem: Problem, candidate: Candidate, scope: Scope, place: int
    ) -> Score:
        asked, text = question(problem), solution(candidate)
        paragraphs = (
            f"You judge an attempt at a problem that may not be finished. {PREAMBLE}",
            f"The question: {self.rubric}",
            fenced("problem", asked),
            fenced("attempt", text, asked),
            "Think in a few sentences, and then end with a last line of exactly one of these "
            "forms:\nVerdict: sure\nVerdict: likely\nVerdict: impossible",
        )
        verdicts = await self._asked(scope, paragraphs, place * self.samples)
        known = [verdict.value for verdict in verdicts if verdict.value is not None]
        value = math.fsum(known) / len(known) if known else None
        return Score(value=value, evidence={"verdicts": tuple(known), **_unknown(verdicts)})

    def read(self, word: str) -> float | None:
        """The value of a verdict's word."""
        return VALUES.get(word.lower())


@dataclass(frozen=True, kw_only=True)
class ThoughtVote(_OfThoughts):
    """The share of votes for each state as the most promising of all that it stands beside."""

    needs: ClassVar[Literal["each", "all"]] = "all"

    rubric: str = "Which of these attempts is the most promising?"
    samples: int = 5
    """Votes; more than one need a temperature."""
    name: str = "thought_vote"

    def bound(self, given: Flow) -> Cost:
        """Votes among all states."""
        return self.verdicts_on(given, given.count)

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each state; a lone one needs no vote, and has all of them."""
        if len(candidates) < 2:
            return tuple(Score(value=1.0, evidence={"alone": True}) for _ in candidates)
        asked = question(problem)
        texts = [solution(candidate) for candidate in candidates]
        paragraphs = (
            f"You compare attempts at a problem that may not be finished. {PREAMBLE}",
            f"The question: {self.rubric}",
            fenced("problem", asked),
            *(
                fenced(f"attempt {place}", text, asked, *texts)
                for place, text in enumerate(texts, start=1)
            ),
            "Think in a few sentences, and then end with a last line of exactly this form, with N "
            f"the number of the attempt, from 1 to {len(texts)}:\nVerdict: N",
        )
        verdicts = await self._asked(scope, paragraphs, 0)
        places = range(1, len(texts) + 1)
        votes = [int(v.value) for v in verdicts if v.value is not None and v.value in places]
        return tuple(
            Score(
                value=votes.count(place) / len(votes) if votes else None,
                evidence={"votes": votes.count(place), "of": len(votes), **_unknown(verdicts)},
            )
            for place in places
        )

    def read(self, word: str) -> float | None:
        """The number that a vote names."""
        return float(word) if word.isdecimal() else None


def _unknown(verdicts: Sequence[Verdict]) -> dict[str, tuple[str, ...]]:
    reasons = tuple(verdict.reason for verdict in verdicts if verdict.reason is not None)
    return {"unknown": reasons} if reasons else {}
