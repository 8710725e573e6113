"""Conformal abstention: answer only where at most a given share of all problems ends wrong.

Fit on problems whose truth is known, one score for each: of the chosen candidate, such as a vote's
share. Then, for a further problem of the same kind, the chance that it is answered and wrong is at
most `error`, whatever the score is worth: a poor score makes it abstain more often, never err more.

    rule = fit_conformal(shares, labels, error=0.05)
    SelfConsistency(n=16) >> Abstain(rule)
    Cascade(cheap, dear, accept=rule)

The chance is over problems drawn as those that it was fit on, in any order, and over these. It
counts all problems: of those that are answered, more than `error` may be wrong.

Source: split conformal prediction, Papadopoulos et al. 2002; Vovk, Gammerman and Shafer 2005,
"Algorithmic learning in a random world".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ttc.types import Candidate

__all__ = ["Conformal", "fit_conformal"]


@dataclass(frozen=True, kw_only=True)
class Conformal:
    """Accepts a candidate that scores above a threshold. An unknown score is not accepted."""

    remote: ClassVar[bool] = True

    threshold: float
    """The score to exceed; infinity accepts nothing, minus infinity everything known."""
    error: float
    """The share of all problems that may be answered wrongly."""
    by: str | None = None
    """The score that decides; `None` is the confidence of the selector."""

    def __post_init__(self) -> None:
        if math.isnan(self.threshold) or not 0 < self.error < 1:
            raise ValueError(
                f"threshold ({self.threshold}) is a number, and error ({self.error}) in (0, 1)"
            )

    def __call__(self, candidate: Candidate) -> bool:
        """Whether the candidate is accepted."""
        value = candidate.confidence
        if self.by is not None:
            score = candidate.scores.get(self.by)
            value = None if score is None else score.value
        return value is not None and value > self.threshold


def fit_conformal(
    scores: Sequence[float | None], labels: Sequence[bool], *, error: float, by: str | None = None
) -> Conformal:
    """The lowest threshold with the guarantee.

    A problem's nonconformity is its score where it is wrong, and minus infinity where it is right.
    The threshold is the ceil((n + 1)(1 - error))-th smallest of n; a further problem exceeds it
    with a chance of at most `error`, and of at least `error - 1/(n + 1)` where no two are equal and
    enough are wrong.

    Args:
        scores: one of each problem. An unknown one is never accepted, and so never wrong.
        labels: which problems were right.
        error: the share of all problems that may be answered wrongly.
        by: see `Conformal`.

    Raises:
        ValueError: there are too few problems for any guarantee but to abstain always.
    """
    if len(scores) != len(labels):
        raise ValueError(f"{len(scores)} scores and {len(labels)} labels cannot be fit")
    if not 0 < error < 1:
        raise ValueError(f"error lies inside (0, 1), not {error}")
    place = math.ceil((len(scores) + 1) * (1 - error) - 1e-9)
    if place > len(scores):
        raise ValueError(
            f"{len(scores)} problems say nothing about an error of {error}; it takes at least "
            f"{math.ceil(1 / error - 1 - 1e-9)}"
        )
    ranked = sorted(
        -math.inf if right or score is None else score
        for score, right in zip(scores, labels, strict=True)
    )
    if any(math.isnan(value) for value in ranked):
        raise ValueError("a score is a number or None, not NaN")
    return Conformal(threshold=ranked[place - 1], error=error, by=by)
