"""Which pages hold which tokens: a tree of pages that running and finished sequences share.

A page holds the keys and values of up to `PAGE` tokens; they depend on those tokens and on all
before them, so a page is found below the page that holds the tokens before. A full page is shared
by reference. A page that is filled in part, or shares only its beginning, is copied: two sequences
never write to one page. Pages that no sequence uses stay until their memory is needed, the least
recently used first. Holds no tensors, and belongs to one thread.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Match", "Page", "PrefixCache", "common_length"]


@dataclass(eq=False)
class Page:
    """One page and its place in the tree."""

    index: int
    """Its place in the pool of keys and values."""
    parent: Page | None
    """The page of the tokens before; `None` for the root, which has no memory."""
    tokens: list[int] = field(default_factory=list)
    """The tokens whose keys and values are computed."""
    notes: dict[int, dict[int, float]] = field(default_factory=dict)
    """What else is known of them, by their place in the page: the log probabilities of tokens that
    may follow, by token; of a reward model, the rewards by label. Forgotten with the page."""
    children: list[Page] = field(default_factory=list)
    users: int = 0
    last_use: int = 0

    def begin_as(self, source: Page, count: int) -> None:
        """Takes over what is known of another page's first tokens."""
        self.tokens = source.tokens[:count]
        self.notes = {place: dict(n) for place, n in source.notes.items() if place < count}

    def note(self, place: int, values: Mapping[int, float]) -> None:
        """Adds to what is known of a token."""
        self.notes.setdefault(place, {}).update(values)

    def forget(self) -> None:
        """Forgets everything that it was thought to hold."""
        self.tokens.clear()
        self.notes.clear()


@dataclass(frozen=True, kw_only=True)
class Match:
    """The longest computed prefix of a sequence."""

    shared: tuple[Page, ...]
    """Full pages, from the beginning on."""
    source: Page | None
    """A page that shares its first tokens with what follows."""
    copied: int
    """How many tokens `source` shares."""
    length: int
    """All tokens that need not be computed."""


class PrefixCache:
    """The pages of one pool.

    Args:
        num_pages: pages in the pool.
        page_size: tokens in a page.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self._page_size = page_size
        self._num_pages = num_pages
        self._root = Page(index=-1, parent=None)
        self._free = list(range(num_pages))  # a heap: low pages first keeps those in use together
        self._idle: set[Page] = set()  # in the tree, without users
        self._now = 0

    @property
    def num_available(self) -> int:
        """Pages that nobody uses: those that are free, and those kept for later reuse."""
        return len(self._free) + len(self._idle)

    @property
    def num_used(self) -> int:
        """Pages that running sequences hold."""
        return self._num_pages - self.num_available

    def match(self, tokens: Sequence[int]) -> Match:
        """The longest prefix of `tokens` that is computed, the last token always left out.

        That one is computed anew in any case, since its logits are wanted.
        """
        limit, start, page = len(tokens) - 1, 0, self._root
        shared: list[Page] = []
        while True:
            wanted = tokens[start : min(start + self._page_size, limit)]
            best, length = None, 0
            for child in page.children:
                common = common_length(child.tokens, wanted)
                if common > length:
                    best, length = child, common
            if best is None or length < self._page_size:
                return Match(
                    shared=tuple(shared), source=best, copied=length, length=start + length
                )
            shared.append(best)
            page, start = best, start + length

    def num_idle(self, pages: Sequence[Page]) -> int:
        """How many of these pages nobody uses now."""
        return sum(page.users == 0 for page in pages)

    def hold(self, pages: Sequence[Page]) -> None:
        """Adds a user to pages; they stay until it is released."""
        for page in pages:
            page.users += 1
            self._idle.discard(page)

    def take(self, after: Page | None) -> Page:
        """A page to write to, held by its one user, below `after` (`None`: at the beginning).

        The caller has seen to it that one is available.
        """
        index = heapq.heappop(self._free) if self._free else self._evict()
        parent = self._root if after is None else after
        page = Page(index=index, parent=parent, users=1)
        parent.children.append(page)
        return page

    def release(self, pages: Sequence[Page]) -> None:
        """Takes a user away from a sequence's pages, given from the beginning on."""
        for page in reversed(pages):
            self._now += 1  # a page counts as used after those that need it, so leaves go first
            page.last_use = self._now
            page.users -= 1
            if page.users == 0:
                self._idle.add(page)
                if not page.tokens:
                    self._drop(page)
                    heapq.heappush(self._free, page.index)

    def _evict(self) -> int:
        page = min((p for p in self._idle if not p.children), key=lambda p: p.last_use)
        self._drop(page)
        return page.index

    def _drop(self, page: Page) -> None:
        self._idle.remove(page)
        if page.parent is not None:
            page.parent.children.remove(page)

    def check(self) -> None:
        """Raises `AssertionError` unless every page is free, idle or used, and once. For tests."""
        seen = list(self._free)
        stack = list(self._root.children)
        while stack:
            page = stack.pop()
            stack += page.children
            seen.append(page.index)
            assert (page.users == 0) == (page in self._idle)
            assert all(child.users <= page.users for child in page.children)
            assert not page.children or len(page.tokens) == self._page_size
        assert sorted(seen) == list(range(self._num_pages))


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    for length, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return length
    return min(len(first), len(second))
