"""How many drafted tokens a step tries: as many as the cost curve says will pay.

With B calls a plain step gives B tokens in t(B). A set S of drafted tokens, each with the chance
that it and all before it come true, makes that (B + sum of chances) in t(B + |S|). Tokens are added
from the most likely one down, and the set with the most tokens per second is tried: in a wide batch
mostly none, and more again as branches end. A set must be some per cent better than nothing, as
chances and times are estimates: the more, the wider the batch, where there is less to gain and the
cost of rows decides.

*Source:* the speed-up of speculative decoding is that of Leviathan et al. 2023, arXiv 2211.17192,
equation 3.8. *Differs:* the time is measured for every number of rows, where theirs is the same for
all; and the set is chosen over all calls together. *Cost:* a microsecond for each likely token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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

    def seconds(self, drafts: int) -> float:
        """How long the step takes with so many drafted tokens."""
        rows = self.num_calls + drafts
        return self._curve(Load(rows=rows, draws=rows, seen=self._seen * rows // self.num_calls))

    def chance(self, kind: int, factor: float) -> float:
        """How likely a token of a kind comes true, if all before it do."""
        return self._survival.chance(kind, factor)

    def usual(self, factor: float) -> float:
        """How likely a token comes true of which nothing is known yet, likewise."""
        return self._survival.usual(factor)

    def choose(self, chains: Sequence[Sequence[float]], spent_s: float = 0.0) -> list[int]:
        """How many tokens of each draft to try.

        Args:
            chains: for each draft the chances that its first, its first two, ... tokens come true.
            spent_s: what drafting has taken.
        """
        ranked = self._ranked(chains)[:_MOST_ROWS]
        counts = [0] * len(chains)
        # Time spent on drafting is gone whatever is chosen now.
        margin = _MARGIN + _WIDER * math.log2(self.num_calls)
        best, taken = margin * self.num_calls / (self.plain_s + spent_s), 0
        tokens = float(self.num_calls)
        for number, (minus_chance, *_) in enumerate(ranked, 1):
            tokens -= minus_chance
            rate = tokens / (self.seconds(number) + spent_s)
            if rate > best:
                best, taken = rate, number
        for _, _, number in ranked[:taken]:
            counts[number] += 1
        return counts

    def probe(self, chains: Sequence[Sequence[float]]) -> list[int]:
        """A few likely tokens, whatever they cost: so that it is known again what rows take."""
        counts = [0] * len(chains)
        for minus_chance, _, number in self._ranked(chains)[:_PROBED]:
            counts[number] += minus_chance < -_PROBABLE
        return counts

    def _ranked(self, chains: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
        """Drafted tokens from the most likely one down: (-chance, place, number of the draft)."""
        return sorted(
            (-chance, place, number)
            for number, chain in enumerate(chains)
            for place, chance in enumerate(chain)
            if chance > _LEAST
        )
