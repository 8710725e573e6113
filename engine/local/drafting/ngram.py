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
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Sequence as Seq
from typing import Literal, TypeVar

from ttc.engine.local.drafting.budget import DraftBudget
from ttc.engine.local.drafting.draft import Draft, Wish
from ttc.engine.local.path import segment_tokens
from ttc.engine.local.sequence import Sequence

__all__ = ["NgramDrafter", "NgramIndex"]

_LENGTHS = (5, 3, 2, 1)
_LEVELS = 4  # how sure an entry is: 0 to 3
_MOST_INDICES = 32
_MOST_ENTRIES = 1 << 16
_MOST_WRITTEN = 1 << 17  # entries of what all calls of one salt have written
_MOST_SALTS = 8

K = TypeVar("K", bound=Hashable)
_Entries = dict[tuple[int, ...], int]


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
            entry = token * _LEVELS
        elif entry // _LEVELS == token:
            entry += entry % _LEVELS < _LEVELS - 1
        else:
            entry = entry - 1 if entry % _LEVELS else token * _LEVELS
        self._new[key] = entry

    def follow(self, tail: Seq[int], other: NgramIndex | None = None) -> tuple[int, int] | None:
        """The token that is thought to follow the last ones, and of what kind the guess is.

        Args:
            tail: the last tokens.
            other: is looked in for a longer match; its kinds come after those of this one.
        """
        for number, length in enumerate(_LENGTHS):
            if length > len(tail):
                continue
            key = tuple(tail[len(tail) - length :])
            for place, index in enumerate((self, other)):
                entry = None if index is None else index._entry(key)
                if entry is not None:
                    token, level = divmod(entry, _LEVELS)
                    return token, place * self.num_kinds + number * _LEVELS + level
        return None

    def _entry(self, key: tuple[int, ...]) -> int | None:
        entry = self._new.get(key)
        return self._old.get(key) if entry is None else entry


class NgramDrafter:
    """Drafts by n-grams.

    Args:
        reach: whose texts are looked in first.
        decides: whether drafts decide results: then they may depend on nothing but the call.
    """

    num_kinds = 2 * NgramIndex.num_kinds
    priors = (0.3,) * num_kinds
    page_bytes = 0

    def __init__(self, reach: Literal["own", "tree"], *, decides: bool = False) -> None:
        self.name = "ngram" if reach == "own" else "tree"
        self._is_shared = reach == "tree"
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
        written = self._written_by(wish.call.salt)
        tail, draft, survival = wish.call.tokens[-_LENGTHS[0] :], Draft(), 1.0
        while len(draft.tokens) < wish.most and (found := index.follow(tail, written)):
            token, kind = found
            draft.tokens.append(token)
            draft.kinds.append(kind)
            survival *= budget.chance(kind, wish.likely)
            if survival <= budget.floor:  # it is compared with what comes, and not tried
                break
            tail = [*tail[-_LENGTHS[0] + 1 :], token]
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
