"""The radix tree that owns every page of keys and values, of running calls and of those that ended.

A node is a page of up to `page_size` tokens. A full page is shared by reference. Whoever goes on
inside a page copies its beginning, unless nobody else uses it and all of it is wanted: then it is
written to in place. So two calls never write to one page, and where a path leaves another nothing
that is there already is moved. Only what was computed is ever found. Two calls that fill equal
pages come to share one, since equal tokens have equal bits.

Pages that no call uses stay until their memory is needed: those of the least valuable call first,
and of these the least recently used. What is known of their tokens stays longer: log probabilities,
entropies, rewards, for up to `num_remembered` pages without memory, and as far as they fit into
`known_bytes`; what was asked for longest ago is forgotten first.

*Source:* paged memory: Kwon et al. 2023, arXiv 2309.06180; a radix tree as cache: Zheng et al.
2023, arXiv 2312.07104. *Differs:* all edges have one length, so nothing is ever split; running
calls are in the tree; facts outlive memory. *Cost:* a match of n tokens takes O(n / page_size)
look-ups, a step O(1) for each token. Holds no tensors, and belongs to one thread.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ttc.engine.local.known import Known
from ttc.engine.local.page import Facts, Match, Page, Path, check_children
from ttc.errors import MemoryExhausted

__all__ = ["Match", "Path", "RadixTree"]

_Victim = tuple[float, int, int, Page]


class RadixTree:
    """The pages of one pool.

    Args:
        num_pages: pages in the pool.
        page_size: tokens in a page.
        num_remembered: pages without memory whose facts are kept; by default as many again.
        known_bytes: the memory for facts, and for pages without memory of their own.
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int,
        *,
        num_remembered: int | None = None,
        known_bytes: int = 1 << 26,
    ) -> None:
        self._page_size, self._num_pages = page_size, num_pages
        self._most_known = num_pages if num_remembered is None else num_remembered, known_bytes
        self.clear()

    def clear(self) -> None:
        """Forgets everything; no call has a path any more."""
        self.paths: set[Path] = set()
        """Those of running calls."""
        self.copies: dict[Page, int] = {}
        """Pages that begin as copies, and the places of what they copy. Copies are made before a
        step writes anything, and all are read before one is written: so a source may lose its
        memory to its copy, and a page that is about to be copied stands for its own source."""
        self._roots: defaultdict[str, Page] = defaultdict(lambda: Page(None))  # by salt
        self._free: list[int] = []  # a heap: low pages first keeps those in use together
        self._untouched = 0  # the first of those that were never used
        self._num_idle = 0  # pages in memory without users
        self._victims: list[_Victim] = []  # a heap; some no longer are any
        self._known = Known(*self._most_known)
        self._parts = array("d", bytes(8 * self._num_pages))  # by place: one by the page's users
        self._last: tuple[Sequence[int], str, list[Page], int] = ([], "", [], 0)  # when found
        self._num_lost = 0  # how often a page has left the tree, or its memory
        self._now = self._pushed = 0

    @property
    def num_free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free) + self._num_pages - self._untouched

    @property
    def num_available(self) -> int:
        """Pages that nobody uses: those that are free, and those kept for later reuse."""
        return self.num_free + self._num_idle

    @property
    def num_used(self) -> int:
        """Pages that running calls hold."""
        return self._num_pages - self.num_available

    @property
    def num_remembered(self) -> int:
        """Pages without memory that are remembered."""
        return len(self._known.ghosts)

    @property
    def known_bytes(self) -> int:
        """What facts and pages without memory take."""
        return self._known.num_bytes

    def match(self, tokens: Sequence[int], salt: str = "") -> Match:
        """The longest prefix of `tokens` that is computed, the last token always left out.

        That one is computed anew in any case, since its logits are wanted. What was computed under
        another salt is never found.
        """
        limit, size = len(tokens) - 1, self._page_size
        shared = self._found_before(tokens, limit, salt)
        start, page = len(shared) * size, shared[-1] if shared else self._roots[salt]
        while start + size <= limit:
            child = page.child(tuple(tokens[start : start + size]))
            if child is None or child.index is None:
                break
            shared.append(child)
            page, start = child, start + size
        self._last = tokens[:start], salt, shared, self._num_lost
        best, length = None, 0
        wanted = tokens[start : min(start + size, limit)]
        for child, common in page.nearest(wanted, resident=True):
            if common > length:
                best, length = child, common
            if length == len(wanted):
                break  # the first such is the one with these very tokens, if there is one
        return Match(
            shared=tuple(shared), source=best, copied=length, length=start + length, salt=salt
        )

    def _found_before(self, tokens: Sequence[int], limit: int, salt: str) -> list[Page]:
        """The full pages of the last match, if that was of a beginning of these tokens."""
        before, own, pages, num_lost = self._last
        is_whole = num_lost == self._num_lost and len(before) <= limit and own == salt
        return list(pages) if is_whole and tokens[: len(before)] == before else []

    def facts(
        self, tokens: Sequence[int], rows: Collection[int], salt: str = ""
    ) -> dict[int, Facts]:
        """What is known of some rows of given tokens, whether they are in memory or not."""
        return self._known.find(self._roots[salt], self._page_size, tokens, rows)

    def num_idle(self, pages: Iterable[Page]) -> int:
        """How many pages nobody uses now."""
        return sum(page.users == 0 for page in pages)

    def join(self, match: Match) -> Path:
        """A path of what was found; it is held until it is released.

        Raises:
            MemoryExhausted: there is no page for a copy; nothing is held.
        """
        path = Path(match.salt)
        self.paths.add(path)
        for page in match.shared:
            self._hold(page)
        path.pages = list(match.shared)
        path.table = array("i", [page.place for page in match.shared])
        path.num_shared = len(path.pages)
        path.length = path.num_shared * self._page_size
        if match.source is not None:
            try:
                self._enter(path, match.source, match.copied)
            except MemoryExhausted:
                self.release(path)
                raise
            self._trim()
        return path

    def grow(self, path: Path, num_tokens: int) -> bool:
        """Gives a path the pages to write so many tokens to; says whether there were too few.

        Raises:
            MemoryExhausted: no more are available; the path keeps those that it got.
        """
        if len(path.pages) * self._page_size >= num_tokens:
            return False
        while len(path.pages) * self._page_size < num_tokens:
            self._append(path, self._take())
        self._trim()
        return True

    def record(self, path: Path, tokens: Sequence[int]) -> bool:
        """Makes tokens known that were computed, those after the path's length.

        Returns:
            Whether pages of the path are shared now that were its own.
        """
        size, start, num_tokens, shares = self._page_size, 0, len(tokens), False
        while start < num_tokens:
            place, used = divmod(path.length, size)
            page = path.pages[place]
            if page.parent is None:
                self._link(page, path.pages[place - 1] if place else self._roots[path.salt])
            count = min(num_tokens - start, size - used)
            page.tokens += tokens if count == num_tokens else tokens[start : start + count]
            start += count
            path.length += count
            if used + count == size:
                settled = self._settle(page)
                shares |= settled.users > 1
                path.pages[place], path.table[place] = settled, settled.place
        return shares

    def cut_back(self, path: Path) -> None:
        """Takes the pages beyond a path's length away."""
        kept = -(-path.length // self._page_size)
        while len(path.pages) > kept:
            self._let_go(path.pages.pop(), 0.0)
            path.table.pop()

    def note(self, path: Path, row: int, facts: Facts) -> None:
        """Adds to what is known of a row that is computed."""
        place, offset = divmod(row, self._page_size)
        if self._known.note(path.pages[place], offset, facts):
            self._trim()

    def _trim(self) -> None:
        """Forgets what was asked for longest ago, until the rest fits."""
        while self._known.is_full:
            page: Page | None = self._known.forget_oldest()
            while page and page in self._known.ghosts and not (page.facts or page.children):
                parent = page.parent
                self._drop(page)
                page = parent

    def release(self, path: Path, value: float = 0.0) -> None:
        """Lets a path's pages go; what is computed stays, for as long as nothing needs its memory.

        Args:
            path: what to release; a second time is harmless.
            value: what the pages are worth beside others.
        """
        self.paths.discard(path)
        self._now += 1
        for page in reversed(path.pages):
            self._let_go(page, value)
        path.pages, path.table = [], array("i")

    def discard(self, path: Path) -> None:
        """Releases a path whose numbers are wrong: nothing that it computed is found again."""
        own = path.pages[path.num_shared :]
        if own and own[-1].parent is not None and len(own[-1].tokens) < self._page_size:
            self._forget(own[-1])
        self.release(path)
        for page in reversed(own):
            self._prune(page)

    def forget_copies(self) -> None:
        """Forgets what pages that begin as copies were to hold: it is not known if they do."""
        for page in list(self.copies):
            self._forget(page)

    def shares(self, paths: Iterable[Path]) -> list[float]:
        """For each path the pages that it holds, one of n users counting for 1/n."""
        tables = [path.table for path in paths]
        sizes = np.array([len(table) for table in tables], np.intp)
        sums = np.zeros(len(tables))
        if filled := sizes.nonzero()[0].tolist():
            pages = np.frombuffer(b"".join(tables), np.intc)
            starts = (sizes.cumsum() - sizes)[filled]
            sums[filled] = np.add.reduceat(np.frombuffer(self._parts)[pages], starts)
        return sums.tolist()

    def _hold(self, page: Page) -> None:
        users = page.users + 1
        if users == 1:
            self._num_idle -= 1
        page.users = users
        self._parts[page.index] = 1 / users  # type: ignore[index]

    def _set_users(self, page: Page, users: int) -> None:
        page.users = users
        self._parts[page.place] = 1 / users if users else 0.0

    @staticmethod
    def _append(path: Path, page: Page) -> None:
        path.pages.append(page)
        path.table.append(page.place)

    def _enter(self, path: Path, source: Page, copied: int) -> None:
        """Lets a path go on inside a page: in place where that harms nobody, else in a copy."""
        parent = source.parent
        assert parent is not None
        path.length += copied
        if source.users == 0 and _is_whole(source, copied) and copied < self._page_size:
            parent.remove(source)
            parent.growing.append(source)
            self._hold(source)
            self._append(path, source)
            return
        index = self.copies.get(source, source.place)
        page = self._take()
        self.copies[page] = index
        page.tokens = source.tokens[:copied]
        self._known.copy(source, page, copied)
        self._link(page, parent)
        self._append(path, page)

    def _link(self, page: Page, parent: Page) -> None:
        page.parent = parent
        parent.growing.append(page)
        parent.residents += 1

    def _forget(self, page: Page) -> None:
        """Takes a page that grows out of the tree, which leaves it to its path, and empty."""
        parent = page.parent
        assert parent is not None
        parent.growing.remove(page)
        parent.residents -= 1
        page.parent, page.tokens = None, []
        self._known.forget(page)
        self._num_lost += 1
        self.copies.pop(page, None)
        self._offer(parent)

    def _let_go(self, page: Page, value: float) -> None:
        """Takes a user from a page."""
        users = page.users - 1
        page.users, page.value, page.last_use = users, value, self._now
        self._parts[page.index] = 1 / users if users else 0.0  # type: ignore[index]
        if users:
            return
        if page in self.copies:  # the copy has not been made
            self._forget(page)
        if page.parent is None:
            self._give_back(page)
            return
        self._num_idle += 1
        if len(page.tokens) < self._page_size:
            page = self._settle(page)
        self._offer(page)

    def _settle(self, page: Page) -> Page:
        """Puts a page that grows no more among its siblings; returns the one that stands for it."""
        parent = page.parent
        assert parent is not None
        parent.growing.remove(page)
        key = tuple(page.tokens)
        at = bisect_left(parent.keys, key)
        if at < len(parent.keys) and parent.keys[at][: len(key)] == key:
            other = parent.children[at]
            if other.index is not None:
                return self._merge(page, other)
            if len(other.tokens) == len(key):  # one that had lost its memory has it again
                del self._known.ghosts[other]
                self._known.learn(other, page)
                other.index, other.users = page.index, page.users
                other.value, other.last_use = page.value, page.last_use
                page.parent = None
                return other
        elif at and parent.children[at - 1].tokens == page.tokens[: len(parent.keys[at - 1])]:
            shorter = parent.children[at - 1]  # nobody uses it, or it would grow
            self._known.learn(page, shorter)
            self._drop(shorter)
            at -= 1
        parent.insert(at, key, page)
        return page

    def _merge(self, page: Page, other: Page) -> Page:
        """Lets a page stand for another one that begins with the same tokens."""
        parent = page.parent
        assert parent is not None
        self._known.learn(other, page)
        if page.users:
            self._num_idle -= not other.users
            self._set_users(other, other.users + page.users)
            self._set_users(page, 0)
        else:
            self._num_idle -= 1
            other.value, other.last_use = page.value, page.last_use
        parent.residents -= 1
        page.parent = None
        self._num_lost += 1
        self._give_back(page)
        return other

    def _take(self) -> Page:
        """A page to write to, with one user; it is in no place of the tree yet."""
        if self._free:
            page = Page(heapq.heappop(self._free))
        elif self._untouched < self._num_pages:
            page = Page(self._untouched)
            self._untouched += 1
        elif self._num_idle:
            page = Page(self._evict())
        else:
            raise MemoryExhausted(
                f"all {self._num_pages} pages of keys and values are in use; run fewer calls at "
                "once, or load the engine with a greater kv_bytes",
                retryable=True,
            )
        self._set_users(page, 1)
        return page

    def _give_back(self, page: Page) -> None:
        heapq.heappush(self._free, page.place)
        page.index = None
        self._known.forget(page)

    def _offer(self, page: Page) -> None:
        """Puts a page among those whose memory may be taken, if it is one."""
        if not page.is_evictable:
            return
        if len(self._victims) > 2 * self._num_pages + 64:  # most of it has become void
            self._victims = [victim for victim in self._victims if _holds(victim)]
            heapq.heapify(self._victims)
        self._pushed += 1
        heapq.heappush(self._victims, (page.value, page.last_use, self._pushed, page))

    def _evict(self) -> int:
        """Takes the memory of the page that is worth least."""
        while not _holds(victim := heapq.heappop(self._victims)):
            pass
        page = victim[3]
        index, parent = page.place, page.parent
        assert parent is not None
        page.index = None
        self._num_lost += 1
        self._num_idle -= 1
        parent.residents -= 1
        self._known.ghosts[page] = None
        if not (page.facts or page.children):
            self._drop(page)
        elif self._known.has_too_many:
            self._drop(next(iter(self._known.ghosts)))
        self._offer(parent)
        return index

    def _drop(self, page: Page) -> None:
        """Takes a page without users and children out of the tree."""
        parent = page.parent
        assert parent is not None
        parent.remove(page)
        page.parent = None
        self._num_lost += 1
        if page.index is None:
            del self._known.ghosts[page]
            self._known.forget(page)
            return
        parent.residents -= 1
        self._num_idle -= 1
        self._give_back(page)

    def _prune(self, page: Page) -> None:
        """Takes a page out of the tree with all that follows it, but for what is in use."""
        if page.parent is None:
            return
        below = [page]
        for each in below:
            below += each.children
        for each in reversed(below):
            if not (each.users or each.children or each.growing):
                parent = each.parent
                self._drop(each)
                if parent is not None:
                    self._offer(parent)

    def check(self) -> None:
        """Raises `AssertionError` unless every page is free, idle or used, and once. For tests."""
        users: Counter[Page] = Counter()
        seen = list(self._free)
        for path in self.paths:
            users.update(path.pages)
            assert path.table.tolist() == [page.index for page in path.pages]
            seen += [i for i, page in zip(path.table, path.pages, strict=True) if not page.parent]
        idle, ghosts, evictable = 0, set(), set()
        stack = [*self._roots.values()]
        while stack:
            page = stack.pop()
            below = [*page.children, *page.growing]
            stack += below
            check_children(page, self._page_size)
            if page in self._roots.values():
                continue
            assert page.users == users[page]
            if page.index is None:
                ghosts.add(page)
                continue
            seen.append(page.index)
            idle += not page.users
            evictable |= {page} if page.is_evictable else set()
        assert sorted(seen) == list(range(self._untouched)), "a page is lost, or used twice"
        assert idle == self._num_idle
        assert sum(map(bool, self._parts[: self._untouched])) == self.num_used
        assert ghosts == set(self._known.ghosts)
        assert not self._known.has_too_many
        self._known.check()
        assert evictable == {victim[3] for victim in self._victims if _holds(victim)}


def _holds(victim: _Victim) -> bool:
    """Whether what made a page evictable still is so."""
    value, last_use, _, page = victim
    return page.is_evictable and (page.value, page.last_use) == (value, last_use)


def _is_whole(page: Page, length: int) -> bool:
    return length == len(page.tokens)
