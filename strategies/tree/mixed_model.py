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
Cost: two passes over 576 cells for each size that a group has; groups of one size are one. What the
first one needs of the sizes up to 255 is kept, 2.4 MB for the whole process.
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
    Sizes = NDArray[np.intp]

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
KEPT = 256
"""Sizes below this have their terms on the first grid kept."""
BLOCK = 32
"""So many variances are multiplied before the logarithm is taken: their product is far from the
ends of what a float holds."""


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
        between, within = _zoom(_mass(data, _whole(), _first_sums(data)))
        axes = _Axes.of(between, within)
        cumulative = _mass(data, axes, _sums(data, axes)).cumsum()
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

    sizes: Sizes
    sums: Floats
    """(4, sizes) How many groups have each size, the sum of their means, and that of the means
    squared, each times the size; and how many they are."""
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
        table = (groups, np.bincount(each, means, 1), np.bincount(each, means * means, 1), groups)
        sums = np.array(table, float)[:, sizes]
        sums[:3] *= sizes
        return cls(sizes, sums, float(counts.sum() - groups.sum()), spread)


class _Axes(NamedTuple):
    """What depends on the cells of a grid alone."""

    a: Floats
    """sigma_a squared, of each row."""
    y: Floats
    """sigma_y squared, of each column."""
    rows: Floats
    """(3, cells) The log of sigma_y squared, 1 over it, and -2 times the log prior."""

    @classmethod
    def of(cls, between: Span, within: Span) -> _Axes:
        import numpy as np

        a, y = _middles(between) ** 2, _middles(within) ** 2
        rows = np.empty((3, CELLS, CELLS))
        rows[0], rows[1] = np.log(y), 1.0 / y
        np.add((a / BETWEEN**2)[:, None], y / WITHIN**2, out=rows[2])
        return cls(a, y, rows.reshape(3, -1))


@cache
def _whole() -> _Axes:
    return _Axes.of(BETWEEN_RANGE, WITHIN_RANGE)


def _terms(axes: _Axes, sizes: Sizes) -> Floats:
    """(sizes, 2 x cells) Variances of groups' means times their sizes: the inverses, the logs."""
    import numpy as np

    terms = np.empty((len(sizes), 2, CELLS, CELLS))
    inverse, variances = terms[:, 0], terms[:, 1]
    np.add((sizes[:, None] * axes.a)[:, :, None], axes.y, out=variances)
    np.divide(1.0, variances, out=inverse)
    np.log(variances, out=variances)
    return terms.reshape(len(sizes), 2 * CELLS * CELLS)


@cache
def _kept() -> Floats:
    """The terms of small sizes on the first grid, which is always the same."""
    import numpy as np

    return _terms(_whole(), np.arange(KEPT))


def _first_terms(sizes: Sizes) -> Floats:
    """The terms of ascending sizes on the first grid."""
    import numpy as np

    few = int(sizes.searchsorted(KEPT))
    small: Floats = _kept()[sizes[:few]]
    return small if few == len(sizes) else np.vstack((small, _terms(_whole(), sizes[few:])))


def _first_sums(data: _Data) -> tuple[Floats, Floats]:
    """As `_sums`, on the first grid."""
    sums: Floats = data.sums @ _first_terms(data.sizes)
    return sums[:3, : CELLS * CELLS], sums[3, CELLS * CELLS :]


def _sums(data: _Data, axes: _Axes) -> tuple[Floats, Floats]:
    """What groups add up to in each cell: by inverse variances, (3, cells), and by their logs.

    Most sizes are those of one group alone, and take one logarithm together: it costs more than all
    the rest.
    """
    import numpy as np

    variances = (data.sizes[:, None] * axes.a)[:, :, None] + axes.y
    variances = variances.reshape(len(data.sizes), CELLS * CELLS)
    groups = data.sums[3]
    logs: Floats = groups[groups > 1.0] @ np.log(variances[groups > 1.0])
    alone = variances[groups == 1.0]
    for start in range(0, len(alone), BLOCK):
        logs += np.log(np.multiply.reduce(alone[start : start + BLOCK]))
    return data.sums[:3] @ np.divide(1.0, variances, out=variances), logs


def _mass(data: _Data, axes: _Axes, sums: tuple[Floats, Floats]) -> Floats:
    """The mass of each cell, row by row, up to a factor."""
    import numpy as np

    (precision, pull, pulled), logs = sums
    precision += MEAN_DEVIATION**-2  # of mu
    pull *= pull
    pull /= precision
    deviance = pulled - pull
    deviance += logs
    deviance += np.log(precision)
    deviance += np.array((data.degrees, data.spread, 1.0)) @ axes.rows
    deviance -= deviance.min()
    deviance *= -0.5
    mass: Floats = np.exp(deviance, out=deviance)
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
