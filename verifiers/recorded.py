"""Recorded: the scores that a pool holds, in the place of a verifier that gave them once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ttc.errors import RecordError
from ttc.pools import Pool
from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score

__all__ = ["Recorded"]


class Recorded:
    """Scores a candidate by a column of the pool that it was drawn from.

    A candidate that was cut short is not what was scored: its score is unknown. Equal texts of a
    problem have the score of the first of them.

    Cost: no engine calls, one verifier call for each candidate.
    """

    def __init__(
        self, pool: Pool, column: str, *, range: tuple[float, float] | None = None
    ) -> None:
        """A verifier over a column.

        Args:
            pool: the pool.
            column: the name of the scores.
            range: their bounds, where they have any.

        Raises:
            RecordError: the pool has no such column.
        """
        if column not in pool.columns:
            known = ", ".join(pool.columns) or "none"
            raise RecordError(f"the pool has no column {column!r}; it has {known}")
        self.name, self.range = column, range
        self.needs: Literal["each", "all"] = "each"
        self.requires: frozenset[str] = frozenset()
        self.roles: frozenset[str] = frozenset()
        self._scores: dict[tuple[str, str], float | None] = {}
        for completion in pool:
            if not completion.failed:
                place = (completion.problem, completion.text)
                self._scores.setdefault(place, completion.scores.get(column))

    def __repr__(self) -> str:
        return f"Recorded({self.name!r}, range={self.range})"

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""
        return tuple(
            Score.of(self._scores.get((problem.id, c.text)), verifier=self.name, range=self.range)
            for c in candidates
        )
