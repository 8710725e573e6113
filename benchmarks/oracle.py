"""Oracle: a grader in the place of a verifier. It is the upper bound of every selector.

It sees the right answers, so whatever it helps to choose is marked by `Outcome.oracle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ttc.benchmarks.tasks import Grader, Reference, Task
from ttc.errors import VerifierError
from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score

__all__ = ["Oracle"]


@dataclass(frozen=True, eq=False)
class Oracle:
    """Scores a candidate by grading it against the reference of its problem.

    Source: coverage, or oracle selection, as in Brown et al. 2024, arXiv 2407.21787.
    Cost: no engine calls, one verifier call for each candidate.
    """

    grader: Grader
    references: Mapping[str, Reference] = field(repr=False)
    """By the ids of their problems."""
    name: str = "oracle"
    range: tuple[float, float] | None = (0.0, 1.0)
    needs: Literal["each", "all"] = "each"
    requires: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    oracle: bool = True
    """Tells the run that a right answer helped to choose."""

    @classmethod
    def of(cls, task: Task) -> Oracle:
        """The oracle of a whole task."""
        return cls(task.grader, task.references)

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One grade for each candidate.

        Raises:
            VerifierError: there is no reference for the problem.
        """
        reference = self.references.get(problem.id)
        if reference is None:
            raise VerifierError(
                f"the oracle has no reference for the problem {problem.id!r}; it knows "
                f"{len(self.references)} others, by the ids of their problems"
            )
        # A grader may wait for a process that computes; the loop goes on meanwhile.
        grades = await asyncio.to_thread(lambda: [self.grader(reference, c) for c in candidates])
        return tuple(replace(grade, verifier=self.name) for grade in grades)
