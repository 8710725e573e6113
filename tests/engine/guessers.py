"""Drafters for tests: ones that know what will come, that never do, or that are wrong at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq

from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Wish
from ttc.engine.local.sequence import Sequence

Guess = Callable[[Sequence, int], list[int]]
"""By a call and a number of tokens what comes."""


class Guesser:
    """Drafts what a function says, and has always been right.

    Args:
        guess: says it.
        others: say what comes if the first token of those before them does not.
    """

    name, priors, page_bytes = "guesser", (0.95,), 0

    def __init__(self, guess: Guess, *others: Guess) -> None:
        self._guesses = guess, *others

    def reserve(self, num_pages: int) -> None:
        """It keeps no pages."""

    def draft(self, wishes: Seq[Wish], budget: DraftBudget) -> list[Draft]:
        """A guess for each."""
        return [self._draft(wish) for wish in wishes]

    def _draft(self, wish: Wish) -> Draft:
        draft, found = None, dict[int, list[int]]()  # by first token
        for guess in self._guesses:
            tokens = guess(wish.call, wish.most)[: wish.most]
            found.setdefault(tokens[0], tokens)
        for tokens in reversed(found.values()):
            draft = Draft(tokens=tokens, kinds=[0] * len(tokens), other=draft)
        return draft or Draft()

    def forget(self, calls: Iterable[Sequence]) -> None:
        """It remembers nothing."""


def knowing(
    texts: dict[int, Seq[int]], wrong: float = 0.0, vocab: int = 261, seed: int = 1
) -> Guess:
    """Guesses what calls are known to write, by their seeds; each token wrong with a chance."""
    rng = random.Random(seed)

    def guess(call: Sequence, most: int) -> list[int]:
        start = call.num_output
        known = list(texts[call.request.seed][start : start + most])
        return [rng.randrange(vocab) if rng.random() < wrong else token for token in known]

    return guess


def random_tokens(vocab: int = 261) -> Guess:
    """Guesses anything."""
    rng = random.Random(2)
    return lambda call, most: [rng.randrange(vocab) for _ in range(most)]


def everything(
    budget: DraftBudget,
    chains: Seq[Seq[float]],
    spent_s: float = 0.0,
    sides: Seq[Seq[float]] = (),
) -> list[int]:
    """In place of `DraftBudget.choose`: every drafted token is tried."""
    return [len(chain) for chain in (*chains, *sides)]


def trunks(
    budget: DraftBudget,
    chains: Seq[Seq[float]],
    spent_s: float = 0.0,
    sides: Seq[Seq[float]] = (),
) -> list[int]:
    """The same, but for side chains."""
    return [*everything(budget, chains), *[0] * len(sides)]
