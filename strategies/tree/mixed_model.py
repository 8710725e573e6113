"""The posterior of AB-MCTS-M in closed form: scores that come in groups, without MCMC.

The scores below one node of a tree fall into groups, one for each child: those of its subtree.

    y = alpha_j + sigma_y * noise       a score of group j
    alpha_j ~ N(mu, sigma_a)            the level of a group, of those there are and of a new one
    mu ~ N(0.5, 0.2),  sigma_a ~ HalfNormal(0.2),  sigma_y ~ HalfNormal(0.3) within [0.05, 0.9]

Given the two deviations all of it is normal, so that sizes, sums and squares of the groups are
enough. What is left is a density in two dimensions, which a grid holds: one of 24 x 24 cells over
the whole range, then one of 24 x 24 over those cells that hold 99.9 % of the mass.

It knows nothing of trees.

Source: AB-MCTS-M, Inoue et al. 2025, arXiv 2503.04412 (the model and its priors).
Differs: exact up to the grid, where the paper runs MCMC; sigma_y stays above 0.05, since the
posterior is improper when scores within groups are all equal; sigma_a ends at 0.6.
Cost: two passes over 576 cells for each size that a group has; groups of one size are one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from ttc.strategies.tree.scores import Scores

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["MixedModel", "Prediction"]

MEAN, MEAN_DEVIATION = 0.5, 0.2
"""The prior of mu."""
BETWEEN, WITHIN = 0.2, 0.3
"""Scales of the priors of sigma_a and sigma_y."""
Span = tuple[float, float]
BETWEEN_RANGE: Span = (0.0, 0.6)
WITHIN_RANGE: Span = (0.05, 0.9)
CELLS = 24
"""Cells of the grid along each side."""
MASS = 0.999
"""What the second grid looks at."""


class Prediction(NamedTuple):
    """One score that may come next of each group, drawn with one set of parameters for all."""

    new: float
    """Of a group that has no score yet."""
    groups: Sequence[float]


@dataclass(frozen=True, eq=False, slots=True)
class MixedModel:
    """What is known of the parameters after the scores of some groups; made by `fit`."""

    counts: Floats
    """Scores of each group."""
    means: Floats
    """Their means, less 0.5; 0 where there is no score."""
    between: Span
    """The values of sigma_a that the rows of the grid divide."""
    within: Span
    """The values of sigma_y that its columns divide."""
    cumulative: Floats
    """The mass of the cells up to each one, row by row; the last one is 1."""

    @classmethod
    def fit(cls, groups: Sequence[Scores]) -> MixedModel:
        """The posterior after the scores of these groups; one without scores is as a new one."""
        import numpy as np

        table = np.fromiter(chain.from_iterable(groups), float, 3 * len(groups)).reshape(-1, 3)
        counts, totals, squares = table.T
        some = np.maximum(counts, 1.0)
        spread = float(np.maximum(squares - totals * totals / some, 0.0).sum())
        means = np.where(counts > 0.0, totals / some - MEAN, 0.0)
        data = _Data.of(counts, means, spread)
        between, within = _zoom(_mass(data, _whole()))
        cumulative = _mass(data, _Axes.of(between, within)).cumsum()
        cumulative /= cumulative[-1]
        return cls(counts.copy(), means, between, within, cumulative)

    def predict(self, random: Random) -> Prediction:
        """A joint draw: first the parameters, then a score of every group and of a new one."""
        import numpy as np

        cell = int(self.cumulative.searchsorted(random.random(), side="right"))
        row, column = divmod(min(cell, CELLS * CELLS - 1), CELLS)
        a, y = _edge(self.between, row + 0.5) ** 2, _edge(self.within, column + 0.5) ** 2
        noise = np.array([random.gauss() for _ in range(len(self.counts) + 2)])

        weights = self.counts / (self.counts * a + y)
        precision = MEAN_DEVIATION**-2 + float(weights.sum())
        mu = float(weights @ self.means) / precision + float(noise[0]) / math.sqrt(precision)
        precisions = 1.0 / a + self.counts / y
        levels = (mu / a + self.counts * self.means / y) / precisions
        scores = MEAN + levels + noise[2:] * np.sqrt(1.0 / precisions + y)
        return Prediction(MEAN + mu + float(noise[1]) * math.sqrt(a + y), scores.tolist())


class _Data(NamedTuple):
    """The groups, those of one size taken together."""

    sizes: Floats
    weights: Floats
    """How many groups have each size; and 1."""
    sums: Floats
    """For each size: how many groups have it, the sum of their means, and that of the means
    squared; each times the size."""
    degrees: float
    """Scores less groups."""
    spread: float
    """Squares of the scores' distances to their group's mean."""

    @classmethod
    def of(cls, counts: Floats, means: Floats, spread: float) -> _Data:
        import numpy as np

        each = counts.astype(np.intp)
        groups = np.bincount(each, minlength=1)
        groups[0] = 0  # what has no score says nothing
        (sizes,) = groups.nonzero()
        sums = (groups, np.bincount(each, means, 1), np.bincount(each, means * means, 1))
        return cls(
            sizes=sizes.astype(float),
            weights=np.append(groups[sizes], 1.0),
            sums=np.array(sums, float)[:, sizes] * sizes,
            degrees=float(counts.sum() - groups.sum()),
            spread=spread,
        )


class _Axes(NamedTuple):
    """What depends on the cells of a grid alone."""

    a: Floats
    """sigma_a squared, of each row."""
    y: Floats
    """sigma_y squared, of each column."""
    log_y: Floats
    prior: Floats
    """-2 times the log prior of each cell."""

    @classmethod
    def of(cls, between: Span, within: Span) -> _Axes:
        import numpy as np

        a, y = _middles(between) ** 2, _middles(within) ** 2
        return cls(a, y, np.log(y), (a / BETWEEN**2)[:, None] + y / WITHIN**2)


@cache
def _whole() -> _Axes:
    return _Axes.of(BETWEEN_RANGE, WITHIN_RANGE)


def _mass(data: _Data, axes: _Axes) -> Floats:
    """The mass of each cell, row by row, up to a factor."""
    import numpy as np

    n = len(data.sizes)
    # variances of the groups' means times their sizes, by size; and the precision of mu
    terms = np.empty((n + 1, CELLS * CELLS))
    variances = terms[:n].reshape(n, CELLS, CELLS)
    np.add((data.sizes[:, None] * axes.a)[:, :, None], axes.y, out=variances)
    number, pull, pulled = data.sums @ (1.0 / terms[:n])
    precision = np.add(number, MEAN_DEVIATION**-2, out=terms[n])
    log_mass = pull * pull / precision - pulled
    log_mass -= data.weights @ np.log(terms, out=terms)
    log_mass -= (axes.prior + (data.degrees * axes.log_y + data.spread / axes.y)).ravel()
    log_mass -= log_mass.max()
    log_mass *= 0.5
    mass: Floats = np.exp(log_mass, out=log_mass)
    return mass


def _zoom(mass: Floats) -> tuple[Span, Span]:
    """The smallest rectangle around the fewest cells that hold nearly all of the mass."""
    import numpy as np

    ascending = np.sort(mass)
    left_out = int(ascending.cumsum().searchsorted((1.0 - MASS) * mass.sum()))
    kept = (mass >= ascending[left_out]).reshape(CELLS, CELLS)
    return _part(BETWEEN_RANGE, kept.any(axis=1)), _part(WITHIN_RANGE, kept.any(axis=0))


def _part(span: Span, kept: NDArray[np.bool_]) -> Span:
    (cells,) = kept.nonzero()
    return _edge(span, int(cells[0])), _edge(span, int(cells[-1]) + 1)


def _edge(span: Span, place: float) -> float:
    low, high = span
    return low + (high - low) * place / CELLS


def _middles(span: Span) -> Floats:
    low, high = span
    return low + (high - low) * _places()


@cache
def _places() -> Floats:
    import numpy as np

    places: Floats = (np.arange(CELLS) + 0.5) / CELLS
    return places
