"""Best: the candidate with the highest score.

Source: best-of-N as in Cobbe et al. 2021 (arXiv 2110.14168), section 4: argmax_i r_i.
Cost: nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ttc.errors import VerifierError
from ttc.graph import Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.strategies.vote import which_score
from ttc.types import Candidate

__all__ = ["Best", "best_of"]


@dataclass(frozen=True, kw_only=True)
class Best(Node):
    """Picks the highest score; ties go to the earliest launched.

    Only candidates with an answer are eligible, and a candidate without a score never wins. A score
    that is a probability, as a calibrated one, becomes its confidence.
    """

    gives: ClassVar[Port] = Port("finished", "one")
    selects: ClassVar[bool] = True

    by: str | None = None
    """Which score decides, where candidates carry several."""

    def faults(self, given: Flow) -> list[str]:
        """A score that does not exist or is ambiguous."""
        score, fault = which_score(self.by, given)
        return [] if score is not None else [fault]

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything and yields the best."""
        seen = [candidate async for candidate in candidates]
        eligible = [c for c in seen if c.status in ("finished", "truncated") and c.key is not None]
        if not eligible:
            scope.decide("no_valid_answer", num_samples=len(seen))
            return
        name = self.by or next((name for c in eligible for name in c.scores), "")
        try:
            yield _sure(best_of(eligible, name), name)
        except VerifierError:
            scope.decide("no_finite_score", num_samples=len(seen), score=name)


def _sure(candidate: Candidate, name: str) -> Candidate:
    """The candidate with its score as its confidence, where that is a probability."""
    score = candidate.scores[name]
    return replace(candidate, confidence=score.value) if score.is_probability else candidate


def best_of(candidates: Sequence[Candidate], name: str) -> Candidate:
    """The candidate with the highest score of a name; ties go to the first.

    Raises:
        VerifierError: no candidate has a finite score of that name.
    """
    scored = [
        (score.value, candidate)
        for candidate in candidates
        if (score := candidate.scores.get(name)) is not None and score.value is not None
    ]
    if not scored:
        raise VerifierError(f"no finite score {name!r} among {len(candidates)} candidates")
    return max(scored, key=lambda pair: pair[0])[1]
