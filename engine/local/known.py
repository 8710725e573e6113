"""What is known of the tokens of pages, and how much memory that takes, as Python holds it.

Log probabilities, entropies and rewards outlive keys and values, so they have a bound of their own:
where it is exceeded, what was asked for longest ago is forgotten. Sizes are upper bounds of those
of CPython on 64 bits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence

from ttc.engine.local.page import Facts, Page

__all__ = ["Known"]

_GHOST_BYTES = 2048
"""A page without memory: its tokens as numbers, and its place among others."""
_ROW_BYTES = 360  # a dictionary for a few values, and its place in the page's
_VALUE_BYTES = 140  # a key, a number, and room for both in a dictionary that grows by doubling


class Known:
    """The pages of which something is known, and those without memory.

    Args:
        most_ghosts: pages without memory that may be remembered.
        most_bytes: the memory for facts and for these pages.
    """

    def __init__(self, most_ghosts: int, most_bytes: int) -> None:
        self.ghosts: OrderedDict[Page, None] = OrderedDict()
        """Pages without memory, those asked for longest ago first; children before parents."""
        self._most_ghosts, self._most_bytes = most_ghosts, most_bytes
        self._fact_bytes = 0
        self._pages: OrderedDict[Page, int] = OrderedDict()  # with their bytes

    @property
    def num_bytes(self) -> int:
        """What facts and pages without memory take."""
        return self._fact_bytes + _GHOST_BYTES * len(self.ghosts)

    @property
    def is_full(self) -> bool:
        """Whether something has to be forgotten."""
        return bool(self._pages) and self.num_bytes > self._most_bytes

    @property
    def has_too_many(self) -> bool:
        """Whether a page without memory has to be forgotten."""
        return len(self.ghosts) > self._most_ghosts

    def find(
        self, root: Page, size: int, tokens: Sequence[int], rows: Collection[int]
    ) -> dict[int, Facts]:
        """What is known of some rows of given tokens, by the pages of a tree."""
        page = root
        last = max(rows, default=-1)
        found: dict[int, Facts] = {}
        asked: list[Page] = []
        for start in range(0, last + 1, size):
            wanted = tokens[start : start + size]
            children = list(page.nearest(wanted, resident=False))
            for child, length in children:
                asked.append(child)
                for place, facts in child.facts.items():
                    if place < length and start + place in rows:
                        found[start + place] = {**found.get(start + place, {}), **facts}
            exact = next(
                (c for c, n in children if n == len(wanted) == size == len(c.tokens)), None
            )
            if exact is None:
                break
            page = exact
        for page in reversed(asked):  # children before parents
            for kept in (self._pages, self.ghosts):
                if page in kept:
                    kept.move_to_end(page)
        return found

    def note(self, page: Page, place: int, facts: Facts) -> bool:
        """Adds to what is known of a token. Returns whether something has to be forgotten now."""
        num_bytes = _VALUE_BYTES * len(facts) + _ROW_BYTES
        known = page.facts.get(place)
        if known is None:  # nearly always: a token that was drawn just now
            page.facts[place] = facts
        else:
            num_before = len(known)
            page.note(place, facts)
            num_bytes = _VALUE_BYTES * (len(known) - num_before)
        self._fact_bytes += num_bytes
        self._pages[page] = self._pages.get(page, 0) + num_bytes
        return self._fact_bytes + _GHOST_BYTES * len(self.ghosts) > self._most_bytes

    def copy(self, source: Page, page: Page, count: int) -> None:
        """Lets a page begin with what is known of the first tokens of another one."""
        for place, facts in source.facts.items():
            if place < count:
                self.note(page, place, dict(facts))

    def learn(self, page: Page, other: Page) -> None:
        """Takes over what is known of the tokens that both begin with; the other one forgets it."""
        for place, facts in other.facts.items():
            self.note(page, place, facts)
        self.forget(other)

    def forget(self, page: Page) -> None:
        """Forgets all that is known of a page."""
        page.facts = {}
        self._fact_bytes -= self._pages.pop(page, 0)

    def forget_oldest(self) -> Page:
        """Forgets what is known of the page that was asked for longest ago."""
        page = next(iter(self._pages))
        self.forget(page)
        return page

    def check(self) -> None:
        """Raises `AssertionError` unless the sum is that of what is known. For tests."""
        for page, num_bytes in self._pages.items():
            values = sum(map(len, page.facts.values()))
            assert num_bytes == _ROW_BYTES * len(page.facts) + _VALUE_BYTES * values > 0
        assert self._fact_bytes == sum(self._pages.values())
