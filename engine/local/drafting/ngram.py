"""Drafts by looking up what followed the same few tokens before.

`own` looks in the call's own text, prompt included. `tree` looks in all texts that go on from one
root: those of siblings that run, of calls that have ended, and of those that were cut off. Both
look besides in what all calls of the same salt have written, since a model says much in the same
words; a match there must be longer to be preferred. Under `coupled` acceptance it does not matter
to a result whose text has come first; under `maximal` only a call's own text counts.

*Source:* prompt look-up (Saxena 2023) and the n-gram pool of Fu et al. 2024, arXiv 2402.02057.
*Differs:* several lengths are looked up, the longest that is known wins, and an entry changes only
when it was wrong more often than right of late. *Cost:* eight look-ups for each token that comes,
and up to eight for each that is drafted; about 100 bytes for each entry, of which there is a most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from collections.abc import Sequence as Seq
from typing import Literal, TypeVar

from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Wish
from ttc.engine.local.path import segment_tokens
from ttc.engine.local.sequence import Sequence

__all__ = ["NgramDrafter", "NgramIndex"]

_LENGTHS = (5, 3, 2, 1)
_LEVELS = 4  # how sure an entry is: 0 to 3
_TOKENS = 1 << 24  # more than any vocabulary has
_MOST_INDICES = 32
_MOST_ENTRIES = 1 << 16
_MOST_WRITTEN = 1 << 17  # entries of what all calls of one salt have written
_MOST_SALTS = 8

K = TypeVar("K", bound=Hashable)
_Entries = dict[tuple[int, ...], int]
"""By context what follows, as one number: the other token that followed last, if any, plus 1; the
token itself; and how sure it is."""


class NgramIndex:
    """What followed which few tokens.

    The oldest half is forgotten when there are too many entries.

    Args:
        most: entries, at most.
    """

    num_kinds = len(_LENGTHS) * _LEVELS

    def __init__(self, most: int = _MOST_ENTRIES) -> None:
        self._half = most // 2
        self._new: _Entries = {}
        self._old: _Entries = {}

    def __len__(self) -> int:
        """Entries that it holds."""
        return len(self._new) + len(self._old)

    def copy(self) -> NgramIndex:
        """Another one that knows the same."""
        other = NgramIndex(2 * self._half)
        other._new, other._old = self._new.copy(), self._old.copy()
        return other

    def add(self, tokens: Seq[int], start: int = 0) -> None:
        """Learns what tokens follow from `start` on; those before are their context."""
        for place in range(start, len(tokens)):
            token = tokens[place]
            for length in _LENGTHS:
                if length <= place:
                    self._learn(tuple(tokens[place - length : place]), token)

    def _learn(self, key: tuple[int, ...], token: int) -> None:
        entry = self._new.get(key)
        if entry is None:
            entry = self._old.pop(key, None)
            if len(self._new) >= self._half:
                self._old, self._new = self._new, {}
        if entry is None:
            self._new[key] = token * _LEVELS
            return
        others, level = divmod(entry, _LEVELS)
        other, known = divmod(others, _TOKENS)
        if known == token:
            level = min(level + 1, _LEVELS - 1)
        elif level:
            level, other = level - 1, token + 1
        else:
            known, other = token, known + 1
        self._new[key] = (other * _TOKENS + known) * _LEVELS + level

    def follow(self, tail: Seq[int], other: NgramIndex | None = None) -> tuple[int, int] | None:
        """The token that is thought to follow the last ones, and of what kind the guess is.

        Args:
            tail: the last tokens.
            other: is looked in for a longer match; its kinds come after those of this one.
        """
        for entry, kind in self._matches(tail, other):
            return entry // _LEVELS % _TOKENS, kind
        return None

    def follow_else(
        self, tail: Seq[int], first: int, other: NgramIndex | None = None
    ) -> tuple[int, int] | None:
        """The token that is thought to follow if one does not; kinds are those of 4 indices.

        It is what else has followed, or what follows fewer of the last tokens.
        """
        for entry, kind in self._matches(tail, other):
            second, token = divmod(entry // _LEVELS, _TOKENS)
            if token != first:
                return token, kind
            if second and second - 1 != first:
                return second - 1, 2 * self.num_kinds + kind
        return None

    def _matches(self, tail: Seq[int], other: NgramIndex | None) -> Iterator[tuple[int, int]]:
        """What the last tokens are known to be followed by, and the kind; the longest first."""
        for number, length in enumerate(_LENGTHS):
            if length > len(tail):
                continue
            key = tuple(tail[len(tail) - length :])
            for place, index in enumerate((self, other)):
                entry = None if index is None else index._entry(key)
                if entry is not None:
                    yield entry, place * self.num_kinds + number * _LEVELS + entry % _LEVELS

    def _entry(self, key: tuple[int, ...]) -> int | None:
        entry = self._new.get(key)
        return self._old.get(key) if entry is None else entry


class NgramDrafter:
    """Drafts by n-grams.

    Args:
        reach: whose texts are looked in first.
        decides: whether drafts decide results: then they may depend on nothing but the call.
    """

    num_firsts = 2 * NgramIndex.num_kinds
    """Kinds of guesses; those of what may come instead follow, and are twice as many."""
    # Of those it is thought that they do not pay, until they have come true.
    priors = (0.3,) * num_firsts + (0.1,) * (2 * num_firsts)
    page_bytes = 0

    def __init__(self, reach: Literal["own", "tree"], *, decides: bool = False) -> None:
        self.name = "ngram" if reach == "own" else "tree"
        self._is_shared, self._decides = reach == "tree", decides
        self._written: OrderedDict[str, NgramIndex] | None = None if decides else OrderedDict()
        self._places: dict[Sequence, tuple[NgramIndex, int]] = {}  # and how much of it is learnt
        self._indices: OrderedDict[tuple[str, tuple[int, ...]], NgramIndex] = OrderedDict()

    def reserve(self, num_pages: int) -> None:
        """It keeps no pages."""

    def draft(self, wishes: Seq[Wish], budget: DraftBudget) -> list[Draft]:
        """A draft for each wish, as long as it may pay."""
        for wish in wishes:  # all first: siblings learn from one another
            self._catch_up(wish.call)
        return [self._draft(wish, budget) for wish in wishes]

    def forget(self, calls: Iterable[Sequence]) -> None:
        """Calls have left the batch; what they wrote is kept where others may look in it."""
        for call in calls:
            if call in self._places:
                if self._is_shared or self._written is not None:
                    self._catch_up(call)
                del self._places[call]

    def _draft(self, wish: Wish, budget: DraftBudget) -> Draft:
        index, _ = self._places[wish.call]
        tail, written = wish.call.tokens[-_LENGTHS[0] :], self._written_by(wish.call.salt)
        first, other = index.follow(tail, written), None
        if first is None:
            return Draft()
        rest = 1 - budget.chance(first[1], wish.likely)
        if rest > budget.floor and not self._decides:
            second = index.follow_else(tail, first[0], written)
            if second is not None:
                token, kind = second
                other = self._chain(wish, budget, (token, self.num_firsts + kind), rest)
        return self._chain(wish, budget, first, other=other)

    def _chain(
        self,
        wish: Wish,
        budget: DraftBudget,
        found: tuple[int, int] | None,
        survival: float = 1.0,
        other: Draft | None = None,
    ) -> Draft:
        """A draft that begins with a guess, if the chance of that is so much less than its own."""
        index, _ = self._places[wish.call]
        tail, written = wish.call.tokens[-_LENGTHS[0] :], self._written_by(wish.call.salt)
        draft = Draft(other=other)
        while found is not None:
            token, kind = found
            draft.tokens.append(token)
            draft.kinds.append(kind)
            survival *= budget.chance(kind, wish.likely)
            if survival <= budget.floor or len(draft.tokens) == wish.most:
                break  # it is compared with what comes, and not tried
            tail = [*tail[-_LENGTHS[0] + 1 :], token]
            found = index.follow(tail, written)
        return draft

    def _catch_up(self, call: Sequence) -> None:
        """Learns what a call has written since."""
        index, known = self._places.get(call) or self._begin(call)
        index.add(call.tokens, known)
        if (written := self._written_by(call.salt)) is not None:
            written.add(call.tokens, max(known, call.prompt_length))
        self._places[call] = index, len(call.tokens)

    def _begin(self, call: Sequence) -> tuple[NgramIndex, int]:
        """The index that a call looks in, and how much of its tokens that holds."""
        prompt = tuple(call.tokens[: call.prompt_length])
        if not self._is_shared:
            return self._index(call.salt, prompt).copy(), len(prompt)
        segments = call.request.branch.lineage()
        index = self._index(call.salt, tuple(segment_tokens(next(segments))))
        given = 0  # tokens at the end of the prompt that no call has written
        for segment in segments:
            given = 0 if segment.finish_reason else given + len(segment_tokens(segment))
        return index, len(prompt) - given

    def _written_by(self, salt: str) -> NgramIndex | None:
        """What calls of this salt have written: others' texts would show in how fast drafts are."""
        if self._written is None:
            return None
        return _kept(self._written, salt, _MOST_SALTS, lambda: NgramIndex(_MOST_WRITTEN))

    def _index(self, salt: str, begin: tuple[int, ...]) -> NgramIndex:
        """The index of the texts of this salt that begin so."""

        def begun() -> NgramIndex:
            index = NgramIndex()
            index.add(begin)
            return index

        return _kept(self._indices, (salt, begin), _MOST_INDICES, begun)


def _kept(
    indices: OrderedDict[K, NgramIndex], key: K, most: int, make: Callable[[], NgramIndex]
) -> NgramIndex:
    """The index by a key, made if there is none; the last ones that were asked for are kept."""
    if key not in indices:
        indices[key] = make()
        if len(indices) > most:
            indices.popitem(last=False)
    indices.move_to_end(key)
    return indices[key]
