"""Uncertainty: pure measures of what an engine told of a text's tokens.

Verifiers score finished texts by them, and stop rules running ones. Lists are in the order of
tokens; nothing here knows a candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import median

__all__ = [
    "bottom_mean",
    "entropy_of",
    "group_means",
    "group_window",
    "length_outliers",
    "mean",
    "tail_window",
    "token_confidences",
]


def mean(values: Sequence[float]) -> float:
    """The mean, summed without loss.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values have no mean")
    return math.fsum(values) / len(values)


def token_confidences(top_logprobs: Iterable[Sequence[float]]) -> list[float]:
    """`-(1/k) sum_j ln p_j` over the k greatest log probabilities of each token.

    Source: DeepConf, Fu et al. 2025, arXiv 2508.15260, equation 2. A peaked distribution leaves
    little to the others, so it is high where the model is sure.
    """
    return [-sum(row) / len(row) for row in top_logprobs]


def group_window(lengths: Sequence[int], *, most: int = 2048, least: int = 32) -> int:
    """The tokens of a group: an eighth of the median length, within bounds.

    The paper's window of 2,048 tokens would hold a whole text of most models.
    """
    return min(most, max(least, int(median(lengths) / 8)))


def group_means(values: Sequence[float], window: int) -> list[float]:
    """The means of all runs of `window` values; of all values where there are fewer."""
    if len(values) <= window:
        return [mean(values)]
    sums = list(accumulate(values, initial=0.0))
    return [(end - start) / window for start, end in zip(sums, sums[window:], strict=False)]


def bottom_mean(values: Sequence[float], share: float) -> float:
    """The mean of the lowest `share` of the values, at least one of them."""
    count = max(1, math.floor(share * len(values)))
    return mean(sorted(values)[:count])


def tail_window(
    lengths: Sequence[int], mean_entropy: float, *, most: int = 2048, least: int = 64
) -> int:
    """The tokens of a tail: the root of the mean length over the mean entropy, within bounds."""
    wanted = math.sqrt(mean(lengths)) / mean_entropy if mean_entropy > 0 else math.inf
    return int(min(most, max(least, wanted)))


def length_outliers(lengths: Sequence[int], *, share: float = 0.05, at_least: int = 16) -> set[int]:
    """Which texts are dropped for their length: the `share` of them farthest from the median.

    None among fewer than `at_least`. Of two as far, the later one is dropped.
    """
    if len(lengths) < at_least:
        return set()
    middle = median(lengths)
    farthest = sorted(range(len(lengths)), key=lambda i: (-abs(lengths[i] - middle), -i))
    return set(farthest[: max(1, round(share * len(lengths)))])


def entropy_of(weights: Iterable[float]) -> float:
    """The entropy, in nats, of weights that are not yet normalised; a weight of 0 has no part.

    Raises:
        ValueError: no weight is above 0.
    """
    kept = [weight for weight in weights if weight > 0]
    total = math.fsum(kept)
    if not kept or not math.isfinite(total):
        raise ValueError(f"no distribution has the weights {kept}")
    return max(0.0, -math.fsum(w / total * math.log(w / total) for w in kept))
