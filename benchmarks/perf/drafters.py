"""Drafters of known quality, for `speculation.py`: one that is mostly right, one that never is.

They take no time, so what is measured is what the engine makes of them. And the engine's own ones
without side chains.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Seq

from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Drafter, Wish
from ttc.engine.local.drafting.draft_model import DraftModel
from ttc.engine.local.drafting.ngram import NgramDrafter
from ttc.engine.local.sequence import Sequence

__all__ = ["Guesses", "at_random", "keep_to_one_chain", "knowing"]

Guess = Callable[[Sequence, int], list[int]]
"""By a call and a number of tokens what comes."""


class Guesses:
    """Drafts what a function says; beforehand it is thought to be right half of the time."""

    name, priors, page_bytes = "guesses", (0.5,), 0

    def __init__(self, guess: Guess) -> None:
        self._guess = guess

    def reserve(self, num_pages: int) -> None:
        """It keeps no pages."""

    def draft(self, wishes: Seq[Wish], budget: DraftBudget) -> list[Draft]:
        """A guess for each."""
        guesses = [self._guess(wish.call, wish.most) for wish in wishes]
        return [Draft(tokens=guess, kinds=[0] * len(guess)) for guess in guesses]

    def forget(self, calls: Iterable[Sequence]) -> None:
        """It remembers nothing."""


def knowing(texts: Mapping[int, Seq[int]], right: float) -> Guess:
    """Knows by a call's seed what it will write; each token is right with a chance."""
    rng = random.Random(1)

    def guess(call: Sequence, most: int) -> list[int]:
        known = texts.get(call.request.seed, ())[call.num_output : call.num_output + most]
        return [token if rng.random() < right else token ^ 1 for token in known]

    return guess


def at_random(vocab: int) -> Guess:
    """Any tokens."""
    rng = random.Random(2)
    return lambda call, most: [rng.randrange(vocab) for _ in range(most)]


def keep_to_one_chain(drafter: Drafter) -> None:
    """Lets an engine's drafter guess nothing that may come instead."""
    if isinstance(drafter, DraftModel):
        vars(drafter)["_drawn_else"] = lambda *_: None
    elif isinstance(drafter, NgramDrafter):
        vars(drafter)["_decides"] = True
    else:
        raise TypeError(f"no side chains are known of {type(drafter).__name__}")
