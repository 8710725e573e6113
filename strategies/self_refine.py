"""SelfRefine: a model criticises a solution and writes a better one, until it finds nothing wrong.

Source: Madaan et al. 2023, arXiv 2303.17651, algorithm 1.
Differs: prompts are of our own and show the latest version alone; with a verifier the best version
stands, and not the last.
Cost: for each candidate at most 2 x rounds calls of at most `max_tokens`; each prompt shows the
problem, a solution and the feedback. A verifier is asked once for each version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, solution
from ttc.strategies.refinement import ScoredRefinement, Versions, shown
from ttc.types import Branch
from ttc.verdicts import verdict_of

__all__ = ["SelfRefine"]


@dataclass(frozen=True, kw_only=True)
class SelfRefine(ScoredRefinement):
    """Feedback and revision, in turns. Without a signal from outside it often does not help."""

    remote: ClassVar[bool] = True

    def feedback_on(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """What is wrong, or that nothing is."""
        return (
            f"You review a solution to a problem. {PREAMBLE}",
            *shown(scope, chain.latest),
            "Say in a few sentences what is wrong with the solution and how to make it right. If "
            "nothing is wrong with it, end with a last line of exactly this form:\nVerdict: done",
        )

    def take(self, chain: Versions, feedback: Branch) -> None:
        """Takes feedback in; a candidate that is found right is left as it is."""
        super().take(chain, feedback)
        chain.is_over = verdict_of(feedback, _is_done).value is not None

    def revision_of(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The latest version with its feedback."""
        note = chain.notes[-1]
        return (
            f"You improve a solution to a problem. {PREAMBLE}",
            *shown(scope, chain.latest),
            fenced("feedback", note, solution(chain.latest)),
            "Write a better solution that takes the feedback into account. Write it as a whole, in "
            "the form that the problem asks for, and write nothing about the old one.",
        )


def _is_done(word: str) -> float | None:
    return 1.0 if word.lower() == "done" else None
