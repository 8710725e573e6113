"""GuidedRefine: revisions that are shown the best and the worst version so far, with their scores.

Source: iterative agent decoding, Chakraborty et al. 2025, arXiv 2504.01931: each proposal is
conditioned on the best and the worst one by the verifier, and the best one of all is kept.
Differs: the verifier's number and evidence are told as they are, and no model puts them into words.
Cost: for each candidate at most rounds x width calls of at most `max_tokens`, and a verifier call
for each version.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, question, solution
from ttc.strategies.refinement import ScoredRefinement, Versions, count_faults
from ttc.types import Candidate

__all__ = ["GuidedRefine"]


@dataclass(frozen=True, kw_only=True)
class GuidedRefine(ScoredRefinement):
    """Refinement by a verifier alone, with no critic."""

    remote: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True
    asks_feedback: ClassVar[bool] = False

    drafts: int = 1
    """Revisions of each candidate in a round."""

    @property
    def width(self) -> int:
        """As many as it was told."""
        return self.drafts

    def faults(self, given: Flow) -> list[str]:
        """As of all refinements, and rounds without a draft."""
        return super().faults(given) + count_faults(drafts=self.drafts)

    def shows(self, version: int | None, note: int | None) -> tuple[int | None, ...]:
        """The best and the worst version."""
        return version, version

    def revision_of(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The best version, and the worst where that is another one."""
        asked = question(scope.problem)
        worst = min(chain.versions, key=self._order)
        texts = [self._told("best", chain.best, asked)]
        if worst is not chain.best:
            texts.append(self._told("worst", worst, asked))
        return (
            f"You improve a solution to a problem. {PREAMBLE}",
            fenced("problem", asked),
            *texts,
            "A higher score is better. Write a solution that scores higher than the best one, as a "
            "whole, in the form that the problem asks for.",
        )

    def _told(self, which: str, version: Candidate, asked: str) -> str:
        value = self.value(version)
        text = fenced(f"{which} solution so far", solution(version), asked)
        return f"{text}\nIts score: {'unknown' if value is None else format(value, '.3g')}"

    def _order(self, version: Candidate) -> float:
        value = self.value(version)
        return inf if value is None else value
