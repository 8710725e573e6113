"""How likely drafted tokens come true, by what they were guessed from and by whose text it is.

Of every kind of guess the part that came true is kept, old ones counting less; and of every call by
how much more or less often its guesses came true than those of their kinds. A guess is compared
with the token that came, whether a step tried it or not: so a drafter that does not pay is watched
for nothing, and comes back when it would.

It says what is worth trying, and never what a token is.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Record", "Survival"]

_MOST_KNOWN = 256.0  # guesses of a kind that are remembered
_PRIOR = 4.0  # guesses that what is thought beforehand counts for
_USUAL, _USUAL_PRIOR = 0.7, 2.0  # of any kind: good enough to begin with
_MOST_USUAL = 64.0  # guesses of any kind that are remembered
_OWN_PRIOR = 3.0
_FORGET = 0.95  # of a call's own, with each guess
_CERTAIN = 0.99


class Record:
    """How one call's guesses came true."""

    __slots__ = ("_actual", "_expected")

    def __init__(self) -> None:
        self._actual = self._expected = _OWN_PRIOR

    @property
    def factor(self) -> float:
        """How much more often than usual they do."""
        return self._actual / self._expected

    def note(self, expected: float, is_true: bool) -> None:
        """One more guess."""
        self._actual = _FORGET * self._actual + (1 - _FORGET) * _OWN_PRIOR + is_true
        self._expected = _FORGET * self._expected + (1 - _FORGET) * _OWN_PRIOR + expected


class Survival:
    """The chances of guesses.

    Args:
        priors: of each kind the chance that is thought before anything is known.
    """

    def __init__(self, priors: Sequence[float]) -> None:
        self._true = [_PRIOR * prior for prior in priors]
        self._all = [_PRIOR] * len(priors)
        self._usual = [_USUAL * _USUAL_PRIOR, _USUAL_PRIOR]  # true, and all, of any kind

    def chance(self, kind: int, factor: float = 1.0) -> float:
        """How likely a guess comes true, of a call with a factor, if all guesses before it did."""
        return min(_CERTAIN, self._true[kind] / self._all[kind] * factor)

    def usual(self, factor: float = 1.0) -> float:
        """The same of a guess whose kind is not known."""
        return min(_CERTAIN, self._usual[0] / self._usual[1] * factor)

    def note(
        self, record: Record, tokens: Sequence[int], kinds: Sequence[int], came: Sequence[int]
    ) -> None:
        """Learns from what came where a call's tokens had been guessed, up to the first miss."""
        for token, kind, actual in zip(tokens, kinds, came, strict=False):
            is_true = token == actual
            record.note(self._true[kind] / self._all[kind], is_true)
            self._count(kind, is_true)
            if self._usual[1] >= _MOST_USUAL:
                self._usual = [0.5 * number for number in self._usual]
            self._usual = [self._usual[0] + is_true, self._usual[1] + 1]
            if not is_true:
                return

    def note_other(self, tokens: Sequence[int], kinds: Sequence[int], came: Sequence[int]) -> None:
        """Learns the same of tokens that were guessed in case that others do not come.

        They tell of their kinds alone: neither a call nor guesses at large are worse for them.
        """
        for token, kind, actual in zip(tokens, kinds, came, strict=False):
            self._count(kind, token == actual)
            if token != actual:
                return

    def _count(self, kind: int, is_true: bool) -> None:
        if self._all[kind] >= _MOST_KNOWN:
            self._true[kind] *= 0.5
            self._all[kind] *= 0.5
        self._true[kind] += is_true
        self._all[kind] += 1
