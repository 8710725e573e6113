"""Reflexion: after each trial that falls short, a lesson is drawn, and the next trial knows it.

Source: Shinn et al. 2023, arXiv 2303.11366, algorithm 1: actor, evaluator, self-reflection, and a
memory of the last reflections.
Differs: the actor is one call and no agent; the best trial stands, and not the last.
Cost: for each candidate at most 2 x rounds calls of at most `max_tokens`, and a verifier call for
each trial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, question, solution
from ttc.strategies.refinement import ScoredRefinement, Versions, count_faults
from ttc.types import Score

__all__ = ["Reflexion", "judgement_of", "reflection"]

_MOST_EVIDENCE = 1_000


@dataclass(frozen=True, kw_only=True)
class Reflexion(ScoredRefinement):
    """Trials from scratch, each with the lessons of those before it, until one is good enough."""

    remote: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True

    enough: float | None = 1.0
    memory: int = 3
    """The last so many lessons are told."""

    def faults(self, given: Flow) -> list[str]:
        """As of all refinements, and a memory of nothing."""
        return super().faults(given) + count_faults(memory=self.memory)

    def shows(self, version: int | None, note: int | None) -> tuple[int | None, ...]:
        """A version and how it was judged, or lessons."""
        return version, 4 * _MOST_EVIDENCE, *[note] * self.memory

    def feedback_on(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The trial and how it was judged."""
        latest = chain.latest
        judgement = judgement_of(latest.scores.get(self.score_name))
        return reflection(question(scope.problem), solution(latest), judgement)

    def revision_of(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The problem anew, with the lessons."""
        asked, lessons = question(scope.problem), chain.notes[-self.memory :]
        return (
            f"You solve a problem. {PREAMBLE}",
            fenced("problem", asked),
            *(fenced("lesson of an earlier attempt", lesson, asked) for lesson in lessons),
            "Solve the problem, in the form that it asks for, and do not make the old mistakes.",
        )


def reflection(asked: str, attempt: str, judgement: str) -> tuple[str, ...]:
    """The paragraphs that ask for the lesson of a failed attempt."""
    return (
        f"You reflect on a failed attempt at a problem. {PREAMBLE}",
        fenced("problem", asked),
        fenced("solution", attempt, asked),
        fenced("judgement", judgement),
        "Say in a few sentences why the attempt fell short, and what to do in another way next "
        "time. Write no new solution.",
    )


def judgement_of(score: Score | None) -> str:
    """What a verifier said of an attempt."""
    if score is None or score.value is None:
        return "It could not be judged."
    told = {key: value for key, value in score.evidence.items() if value}
    bounds = f" on a scale from {score.range[0]:g} to {score.range[1]:g}" if score.range else ""
    return f"Its score is {score.value:.3g}{bounds}. {told or ''}"[:_MOST_EVIDENCE].strip()
