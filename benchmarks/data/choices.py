"""Options: questions with options, which are shuffled by a seed, so that no place is the right one.

Source: Zheng et al. 2023, arXiv 2309.03882, on models that favour a letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from ttc.journal import derive_seed

__all__ = ["Options", "shuffled"]


class Options(NamedTuple):
    """Options as they are shown."""

    text: str
    """A line for each, with its letter."""
    letter: str
    """That of the right one."""


def shuffled(options: Sequence[str], right: str, *, seed: int, id: str) -> Options:
    """Options in an order that follows from the seed and the problem's id alone.

    Args:
        options: their texts.
        right: the text of the right one.
        seed: the run's seed.
        id: the problem's.
    """
    if right not in options or len(set(options)) < len(options) or len(options) > 26:
        raise ValueError(
            f"a question has at most 26 different options, one of them right; {id!r} has "
            f"{len(options)}, and its right one is {right!r}"
        )
    order = list(options)
    Random(derive_seed(seed, f"options {id}", 0)).shuffle(order)
    letters = [chr(ord("A") + place) for place in range(len(order))]
    lines = [f"{letter}) {option}" for letter, option in zip(letters, order, strict=True)]
    return Options("\n".join(lines), letters[order.index(right)])
