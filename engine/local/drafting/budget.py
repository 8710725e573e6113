"""How many drafted tokens a step tries: as many as the cost curve says will pay.

With B calls a plain step gives B tokens in t(B). A set S of drafted tokens, each with the chance
that it and all before it come true, makes that (B + sum of chances) in t(B + |S|). Tokens are added
from the most likely one down, and the set with the most tokens per second is tried: in a wide batch
mostly none, and more again as branches end. A set must be some per cent better than nothing, as
chances and times are estimates: the more, the wider the batch, where there is less to gain and the
cost of rows decides.

A side chain takes a row before its first token. So that one comes with as many of those after it as
make most of each row, and they are ranked by what they make of each. They are added to the set one
by one for as long as that makes more tokens per second: only rows that cost next to nothing are
given to them.

*Source:* the speed-up of speculative decoding is that of Leviathan et al. 2023, arXiv 2211.17192,
equation 3.8. *Differs:* the time is measured for every number of rows, where theirs is the same for
all; and the set is chosen over all calls together. *Cost:* a microsecond for each likely token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ttc.engine.local.curve import Curve, Load
from ttc.engine.local.drafting.survival import Survival

__all__ = ["MOST_DRAFTS", "DraftBudget"]

MOST_DRAFTS = 8
"""Drafted tokens of one call that a step tries."""
_MOST_ROWS = 64
_MARGIN, _WIDER = 1.02, 0.02
"""By how much a set must be better than none, for one call, and more with each doubling of them."""
_LEAST = 0.1
"""The least chance of a token that is tried: neither chances nor times are known any better."""

_BEGIN_S = 3e-4
"""What a path of its own for a side chain takes besides its rows: it is made, and given back."""

_PROBED = 3
_PROBABLE = 0.4


class DraftBudget:
    """What drafts of one step are worth.

    Args:
        curve: how long the model's steps take.
        survival: how likely drafts come true.
        contexts: how many tokens each call of the step has.
    """

    def __init__(self, curve: Curve, survival: Survival, contexts: Sequence[int]) -> None:
        self._curve, self._survival = curve, survival
        self.num_calls = len(contexts)
        self._seen = sum(contexts)
        self.plain_s = self.seconds(0)
        """How long the step takes without any."""
        per_row = min((self.seconds(m) - self.plain_s) / m for m in (1, 4, 16))
        self.floor = max(_LEAST, per_row * self.num_calls / self.plain_s)
        """The chance below which no token can pay."""

    def seconds(self, drafts: int, sides: int = 0) -> float:
        """How long the step takes with so many drafted tokens, and side chains among them."""
        draws = self.num_calls + drafts
        rows = draws + sides
        seen = self._seen * rows // self.num_calls
        return self._curve(Load(rows=rows, draws=draws, seen=seen)) + sides * _BEGIN_S

    def chance(self, kind: int, factor: float) -> float:
        """How likely a token of a kind comes true, if all before it do."""
        return self._survival.chance(kind, factor)

    def usual(self, factor: float) -> float:
        """How likely a token comes true of which nothing is known yet, likewise."""
        return self._survival.usual(factor)

    def choose(
        self,
        chains: Sequence[Sequence[float]],
        spent_s: float = 0.0,
        sides: Sequence[Sequence[float]] = (),
    ) -> list[int]:
        """How many tokens of each draft to try, and then of each side chain.

        Args:
            chains: for each draft the chances that its first, its first two, ... tokens come true.
            spent_s: what drafting has taken.
            sides: the same for each side chain.
        """
        ranked = _ranked(chains)[:_MOST_ROWS]
        # Time spent on drafting is gone whatever is chosen now.
        margin = _MARGIN + _WIDER * math.log2(self.num_calls)
        best, taken = margin * self.num_calls / (self.plain_s + spent_s), 0
        tokens = float(self.num_calls)
        for number, step in enumerate(ranked, 1):
            tokens += step.gain
            rate = tokens / (self.seconds(number) + spent_s)
            if rate > best:
                best, taken = rate, number
        chosen, begun = ranked[:taken], 0
        tokens = self.num_calls + sum(step.gain for step in chosen)
        for step in sorted(_ranked_sides(sides, len(chains))):
            tokens, taken, begun = tokens + step.gain, taken + step.size, begun + step.begins
            rate = tokens / (self.seconds(taken, begun) + spent_s)
            if rate <= best or taken + begun > _MOST_ROWS:
                break
            best = rate
            chosen.append(step)
        counts = [0] * (len(chains) + len(sides))
        for step in chosen:
            counts[step.number] += step.size
        return counts

    def probe(self, chains: Sequence[Sequence[float]]) -> list[int]:
        """A few likely tokens, whatever they cost: so that it is known again what rows take."""
        counts = [0] * len(chains)
        for step in _ranked(chains)[:_PROBED]:
            counts[step.number] += step.gain > _PROBABLE
        return counts


class _Step(NamedTuple):
    """Tokens of a chain that are added to a set at once, in the order of their worth."""

    minus_worth: float
    """What each of their rows makes, less than 0."""
    place: int
    """Tokens of the chain before."""
    number: int
    """Which chain."""
    gain: float
    """The sum of their chances."""
    size: int = 1
    """How many they are."""
    begins: int = 0
    """1 where they begin a side chain, which takes a row more."""


def _ranked(chains: Sequence[Sequence[float]]) -> list[_Step]:
    """Drafted tokens from the most likely one down."""
    return sorted(
        _Step(-chance, place, number, chance)
        for number, chain in enumerate(chains)
        for place, chance in enumerate(chain)
        if chance > _LEAST
    )


def _ranked_sides(sides: Sequence[Sequence[float]], first: int) -> Iterator[_Step]:
    """Those of side chains, which have the numbers from `first` on."""
    for number, chain in enumerate(sides, first):
        if not chain or chain[0] <= _LEAST:
            continue
        gain, size = chain[0], 1
        while size < len(chain) and chain[size] > gain / (size + 1):
            gain, size = gain + chain[size], size + 1
        yield _Step(-gain / (size + 1), 0, number, gain, size, 1)
        for place in range(size, len(chain)):
            if chain[place] > _LEAST:
                yield _Step(-chain[place], place, number, chain[place])
