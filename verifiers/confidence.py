"""Confidence: scores out of the probabilities that the model gave its own tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score

__all__ = ["SequenceProbability"]


@dataclass(frozen=True, kw_only=True)
class SequenceProbability:
    """The length-normalised probability of what the model wrote: exp of its mean log probability.

    Source: Wang et al. 2022, arXiv 2203.11171, equation 1, which weighs votes by it.
    Differs: the mean is over everything that was generated for the candidate, call by call; text
    that was given, as a prompt or a cue, does not count. A candidate whose engine told no log
    probabilities is unscored.
    Cost: no engine calls, one verifier call for each candidate.
    """

    name: str = "sequence_probability"
    range: tuple[float, float] | None = (0.0, 1.0)
    needs: Literal["each", "all"] = "each"
    requires: frozenset[str] = frozenset({"logprobs"})
    roles: frozenset[str] = frozenset()

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; the problem plays no part."""
        return tuple(Score.of(_probability(c), verifier=self.name) for c in candidates)


def _probability(candidate: Candidate) -> float | None:
    generated = [segment for segment in candidate.branch.lineage() if segment.call is not None]
    logprobs: list[float] = []
    for segment in generated:
        if segment.logprobs is None:
            return None
        logprobs.extend(segment.logprobs)
    if not logprobs:
        return None
    probability = math.exp(math.fsum(logprobs) / len(logprobs))
    return min(probability, 1.0)  # in this order NaN stays NaN, which is unknown
