"""Chance: seeds that are independent, and votes that do not prefer fast answers."""

import math
from collections import Counter
from random import Random

import pytest

from tests.core.lab import solved
from ttc.journal import derive_seed
from ttc.ports import Request
from ttc.strategies import SelfConsistency

pytestmark = pytest.mark.statistical


def test_every_bit_of_a_seed_is_fair() -> None:
    """Of 4,000 seeds of neighbouring indices each of 64 bits is set in half.

    A fair bit lies within 6 standard deviations (190 of 4,000) but for a chance of 2e-9 each, so
    1.3e-7 in all; the seeds are fixed.
    """
    seeds = [derive_seed(run, "0.sample", index) for run in range(4) for index in range(1000)]
    sums = [sum(seed >> bit & 1 for seed in seeds) for bit in range(64)]

    assert max(abs(count - 2000) for count in sums) <= 6 * math.sqrt(4000) / 2


def test_seeds_never_meet() -> None:
    """100,000 seeds of runs, paths and indices are distinct; by chance two meet once in 4e9."""
    seeds = {
        derive_seed(run, path, index)
        for run in range(10)
        for path in ("0.sample", "0.sample/1", "1.sample", "0.pool/0.sample")
        for index in range(2500)
    }

    assert len(seeds) == 100_000


def test_samples_are_draws_of_the_model_and_not_of_its_speed() -> None:
    """Where wrong answers are short and fast, the vote is as right as one without latency.

    200 votes of 9 samples that are right with p = 0.6: the exact chance of a majority is 0.7334, so
    146.7 are expected with a standard deviation of 6.3. The bound of 115 is 5 deviations below
    (chance 3e-7). A vote in order of arrival would count the 40 % of wrong answers first.
    """

    def script(request: Request) -> str:
        right = Random(request.seed).random() < 0.6
        return "so " * 20 + "the answer is 1." if right else "The answer is 2."

    winners = Counter(
        solved(SelfConsistency(n=9), script, seed=seed, pace=0.01).outcome.answer
        for seed in range(200)
    )

    assert winners["1"] >= 115
