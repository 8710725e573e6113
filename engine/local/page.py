"""One node of the tree of pages: the tokens of a page, what is known of them, and what follows.

Siblings lie in the order of their tokens, so the one that has the longest beginning in common with
given tokens is the neighbour of the place where those would lie. Those that are being written to
change, and lie beside the others.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "CERTAINTY",
    "ENTROPY",
    "TOP",
    "Facts",
    "Match",
    "Page",
    "Path",
    "check_children",
    "common_length",
]

Facts = dict[int, float]
"""What is known of a row: by token the log probability that it follows; by label the reward; and
by the numbers below what belongs to the whole distribution."""

ENTROPY, CERTAINTY = -1, -2
TOP = -3
"""How many of the most probable next tokens are known."""


class Page:
    """Up to a page of tokens, whose keys and values depend on them and on all before them."""

    __slots__ = (
        "children",
        "facts",
        "growing",
        "index",
        "keys",
        "last_use",
        "parent",
        "residents",
        "tokens",
        "users",
        "value",
    )

    def __init__(self, index: int | None) -> None:
        self.index = index
        """Its place in the pool; `None` once its keys and values are gone, and for the root."""
        self.parent: Page | None = None
        """The page of the tokens before; `None` while it holds no token, and for the root."""
        self.tokens: list[int] = []
        """The tokens whose keys and values are, or were, computed."""
        self.facts: dict[int, Facts] = {}
        """By place in the page what else is known of a token; it outlives keys and values."""
        self.keys: list[tuple[int, ...]] = []
        """The tokens of `children`, in order."""
        self.children: list[Page] = []
        """Pages after this one that are full, or that nobody writes to."""
        self.growing: list[Page] = []
        """Pages after this one that a running call fills."""
        self.residents = 0
        """How many of the pages after it have keys and values."""
        self.users = 0
        """Running calls whose tokens pass through it."""
        self.value = 0.0
        """The priority of the call that used it last."""
        self.last_use = 0

    def note(self, place: int, facts: Facts) -> None:
        """Adds to what is known already of a token."""
        known = self.facts[place]
        top = max(known.get(TOP, 0.0), facts.get(TOP, 0.0))
        known |= facts
        if top:
            known[TOP] = top

    def child(self, key: tuple[int, ...]) -> Page | None:
        """The child with exactly these tokens."""
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            return self.children[at]
        return None

    def insert(self, at: int, key: tuple[int, ...], child: Page) -> None:
        """Puts a child in its place among the others."""
        self.keys.insert(at, key)
        self.children.insert(at, child)

    def remove(self, child: Page) -> None:
        """Takes a child out that nobody writes to."""
        at = bisect_left(self.keys, tuple(child.tokens))
        while self.children[at] is not child:  # a page that lost its memory may have a double
            at += 1
        del self.keys[at], self.children[at]

    def nearest(self, tokens: Sequence[int], *, resident: bool) -> Iterator[tuple[Page, int]]:
        """Children with the longest beginnings in common with `tokens`, and their lengths.

        At most one of each side of its place and all that grow: no other has a longer one.

        Args:
            tokens: what to look for.
            resident: whether they must have keys and values.
        """
        at = bisect_left(self.keys, tuple(tokens))
        for side in (range(at, len(self.keys)), range(at - 1, -1, -1)):
            for i in side:
                length = common_length(self.keys[i], tokens)
                if not length:
                    break
                if self.children[i].index is not None or not resident:
                    yield self.children[i], length
                    break
        for child in self.growing:
            if length := common_length(child.tokens, tokens):
                yield child, length

    @property
    def place(self) -> int:
        """Its place in the pool, while it has one."""
        assert self.index is not None
        return self.index

    @property
    def is_evictable(self) -> bool:
        """Whether its memory can be taken: nobody uses it, and no page in memory needs it."""
        return self.index is not None and not self.users and not self.residents


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
    salt: str = ""
    """Whose part of the tree it was looked for in."""


class Path:
    """The pages of one running call, from the beginning on; they stay until it is released."""

    __slots__ = ("length", "num_shared", "pages", "salt", "table")

    def __init__(self, salt: str = "") -> None:
        self.salt = salt
        """What keeps its part of the tree apart."""
        self.pages: list[Page] = []
        self.table = array("i")
        """The places of the pages in the pool."""
        self.num_shared = 0
        """How many of its first pages it found full; it never writes to them."""
        self.length = 0
        """Tokens that are computed."""

    def exchange(self, other: Path) -> None:
        """Gives its pages for those of another path, which is as long."""
        self.pages, other.pages = other.pages, self.pages
        self.table, other.table = other.table, self.table


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    for length, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return length
    return min(len(first), len(second))


def check_children(page: Page, size: int) -> None:
    """Raises `AssertionError` unless the pages after one are in order. For tests."""
    below = [*page.children, *page.growing]
    assert page.keys == sorted(tuple(child.tokens) for child in page.children)
    assert [tuple(child.tokens) for child in page.children] == page.keys
    assert all(child.parent is page and child.tokens for child in below)
    assert all(len(child.tokens) < size and child.users == 1 for child in page.growing)
    assert all(len(c.tokens) == size or not (c.users or c.children) for c in page.children)
    assert page.residents == sum(child.index is not None for child in below)
    assert not below or len(page.tokens) in (0, size)
    assert sum(child.users for child in below) <= page.users or page.parent is None
