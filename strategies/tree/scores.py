"""Scores of a part of a tree, as far as posteriors read them, and the posteriors of single arms.

An arm is something that a search may choose, of which it has seen scores between 0 and 1. A
Thompson sampler draws a mean for every arm and takes the arm with the highest.

Source: AB-MCTS-A, Inoue et al. 2025, arXiv 2503.04412 (both priors); the update of the normal one
as in Murphy 2007, "Conjugate Bayesian analysis of the Gaussian distribution", section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

__all__ = ["Draw", "Scores", "draw_beta", "draw_normal"]

PRIOR_MEAN, PRIOR_WEIGHT = 0.0, 1.0
PRIOR_VARIANCE, PRIOR_DEGREES = 0.1, 1.0
"""The normal arm before its first score: a scaled inverse chi-square variance with so many degrees
of freedom, and a mean that weighs as one score."""
PRIOR_RIGHT = PRIOR_WRONG = 0.5
"""The beta arm before its first score."""


class Scores(NamedTuple):
    """Some scores: how many, their sum, and the sum of their squares."""

    num: int = 0
    total: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, scores: Iterable[float]) -> Scores:
        """These scores."""
        result = cls()
        for score in scores:
            result = result.add(score)
        return result

    def add(self, score: float) -> Scores:
        """With one more."""
        return Scores(self.num + 1, self.total + score, self.squares + score * score)

    @property
    def spread(self) -> float:
        """The squares of the distances to the mean, summed up; 0 without any score."""
        if not self.num:
            return 0.0
        return max(0.0, self.squares - self.total * self.total / self.num)


Draw = Callable[[Scores, Random], float]
"""Draws the mean of an arm that has shown these scores."""


def draw_normal(scores: Scores, random: Random) -> float:
    """From the posterior of a normal mean whose variance is unknown too."""
    num, total, _ = scores
    weight = PRIOR_WEIGHT + num
    mean = (PRIOR_WEIGHT * PRIOR_MEAN + total) / weight
    squares = PRIOR_DEGREES * PRIOR_VARIANCE + scores.spread
    if num:
        squares += num * PRIOR_WEIGHT * (PRIOR_MEAN - total / num) ** 2 / weight
    variance = 0.5 * squares / random.gammavariate(0.5 * (PRIOR_DEGREES + num), 1.0)
    return random.gauss(mean, math.sqrt(variance / weight))


def draw_beta(scores: Scores, random: Random) -> float:
    """From the posterior of a chance, where a score s counts as s successes and 1 - s failures."""
    right, wrong = scores.total, scores.num - scores.total
    return random.betavariate(PRIOR_RIGHT + right, PRIOR_WRONG + wrong)
