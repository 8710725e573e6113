"""Ten thousand random operations on the tree of pages, against a model of memory by brute force.

The model's memory holds at each place of each page the whole prefix that was computed there, so a
page that is shared, copied, merged or given away wrongly is seen by whoever reads it.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ttc.engine.local.page import Page, common_length
from ttc.engine.local.tree import Match, Path, RadixTree
from ttc.errors import MemoryExhausted

SIZE, PAGES = 3, 10
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=7)
PICK = st.integers(0, 1000)
VALUE = st.integers(0, 2)


class Machine(RuleBasedStateMachine):
    """Calls that fork, grow, end, are cut back, thrown out and fail."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree(PAGES, SIZE, num_remembered=4)
        self.memory: list[list[tuple[int, ...]]] = [[()] * SIZE for _ in range(PAGES)]
        self.calls: list[tuple[Path, list[int]]] = []

    def call(self, pick: int) -> tuple[Path, list[int]]:
        """One of the running calls."""
        return self.calls[pick % len(self.calls)]

    def join(self, tokens: list[int]) -> None:
        """Lets a call join with what is computed of these tokens; none if memory is full."""
        try:
            path = self.tree.join(self.tree.match([*tokens, -1]))
        except MemoryExhausted:
            return
        self.calls.append((path, tokens[: path.length]))

    def copy(self) -> None:
        """Makes the copies: all are read before one is written."""
        read = [(page.index, list(self.memory[i])) for page, i in self.tree.copies.items()]
        for index, content in read:
            assert index is not None
            self.memory[index] = content
        self.tree.copies.clear()

    def leave(self, path: Path) -> None:
        """Forgets a call."""
        self.calls = [(p, t) for p, t in self.calls if p is not path]

    @rule(tokens=TOKENS)
    def begin(self, tokens: list[int]) -> None:
        """A new call; it may leave another one inside a page."""
        self.join(tokens)

    @precondition(lambda self: self.calls)
    @rule(pick=PICK)
    def fork(self, pick: int) -> None:
        """A call that goes on where another one is."""
        self.join(list(self.call(pick)[1]))

    @precondition(lambda self: self.calls)
    @rule(pick=PICK, tokens=TOKENS)
    def append(self, pick: int, tokens: list[int]) -> None:
        """A step of one call; if there is no memory, it is thrown out."""
        path, done = self.call(pick)
        try:
            self.tree.grow(path, path.length + len(tokens))
        except MemoryExhausted:
            self.tree.release(path)
            self.leave(path)
            return
        self.copy()
        for token in tokens:
            place, offset = divmod(len(done), SIZE)
            done.append(token)
            self.memory[path.table[place]][offset] = tuple(done)
        self.tree.record(path, tokens)
        for row in range(len(done) - len(tokens), len(done)):
            self.tree.note(path, row, {0: float(hash(tuple(done[: row + 1])))})

    @precondition(lambda self: self.calls)
    @rule(pick=PICK, tokens=TOKENS)
    def fail(self, pick: int, tokens: list[int]) -> None:
        """A step that writes nonsense and is never recorded."""
        path, done = self.call(pick)
        self.leave(path)
        try:
            self.tree.grow(path, path.length + len(tokens))
        except MemoryExhausted:
            pass
        else:
            self.copy()
            for position in range(len(done), len(done) + len(tokens)):
                place, offset = divmod(position, SIZE)
                self.memory[path.table[place]][offset] = (-9,)
        self.tree.release(path)

    @precondition(lambda self: self.calls)
    @rule(pick=PICK, value=VALUE)
    def cancel(self, pick: int, value: int) -> None:
        """A call ends; a second time is harmless."""
        path, _ = self.call(pick)
        self.tree.release(path, float(value))
        self.tree.release(path, float(value))
        self.leave(path)

    @precondition(lambda self: self.calls)
    @rule(pick=PICK, length=PICK)
    def cut_back(self, pick: int, length: int) -> None:
        """A call goes on from an earlier token of its own."""
        path, done = self.call(pick)
        self.tree.release(path)
        self.leave(path)
        self.join(done[: length % (len(done) + 1)])

    @precondition(lambda self: self.calls)
    @rule(pick=PICK)
    def preempt(self, pick: int) -> None:
        """A call loses its pages and comes back to what is left of them."""
        path, done = self.call(pick)
        self.tree.release(path, -1.0)
        self.leave(path)
        self.join(list(done))

    @precondition(lambda self: self.calls)
    @rule(pick=PICK)
    def spoil(self, pick: int) -> None:
        """A call whose numbers are wrong: nothing of its own is found again, but by its users."""
        path, _ = self.call(pick)
        self.tree.discard(path)
        self.leave(path)

    @precondition(lambda self: self.tree.copies)
    @rule()
    def lose_copies(self) -> None:
        """A step failed, perhaps before copies were made: who has one starts again."""
        again = [
            (path, done)
            for path, done in self.calls
            if not self.tree.copies.keys().isdisjoint(path.pages)
        ]
        self.tree.forget_copies()
        for path, _ in again:
            self.tree.release(path)
            self.leave(path)
        for _, done in again:
            self.join(done)

    @rule(pages=st.integers(1, PAGES))
    def evict(self, pages: int) -> None:
        """Somebody needs memory for a moment."""
        path = Path()
        self.tree.paths.add(path)
        try:
            self.tree.grow(path, pages * SIZE)
        except MemoryExhausted:
            assert self.tree.num_available == 0
        self.copy()
        for index in path.table:
            self.memory[index] = [(-8,)] * SIZE
        self.tree.release(path)

    @rule(tokens=TOKENS)
    def match(self, tokens: list[int]) -> None:
        """What is found is there, and nothing longer is."""
        match = self.tree.match(tokens)
        assert match.length == longest(self.tree._roots[""], tokens[:-1])
        if not self.tree.copies:
            assert self.content(match) == [tuple(tokens[: i + 1]) for i in range(match.length)]
        for row, facts in self.tree.facts(tokens, range(len(tokens))).items():
            assert facts == {0: float(hash(tuple(tokens[: row + 1])))}

    def content(self, match: Match) -> list[tuple[int, ...]]:
        """What memory holds of a match."""
        pages = [page.index for page in match.shared]
        found = [prefix for index in pages if index is not None for prefix in self.memory[index]]
        if match.source is not None and match.source.index is not None:
            found += self.memory[match.source.index][: match.copied]
        return found

    @invariant()
    def nothing_is_lost(self) -> None:
        """Free pages and pages of nodes are all pages; each is where it belongs."""
        self.tree.check()
        assert self.tree.paths == {path for path, _ in self.calls}

    @invariant()
    def memory_is_right(self) -> None:
        """Every running call reads its own prefixes, copies that are to be made apart."""
        sources = {page.index: source for page, source in self.tree.copies.items()}
        for path, done in self.calls:
            assert path.length == len(done)
            for position in range(len(done)):
                place, offset = divmod(position, SIZE)
                index = path.table[place]
                held = self.memory[sources.get(index, index)][offset]
                assert held == tuple(done[: position + 1])

    def teardown(self) -> None:
        """All calls end: every page is available."""
        for path, _ in self.calls:
            self.tree.release(path)
        self.tree.check()
        assert self.tree.num_available == PAGES


def longest(page: Page, tokens: list[int]) -> int:
    """The longest computed prefix, by a walk over everything."""
    best = 0
    for child in (*page.children, *page.growing):
        if child.index is not None:
            common = common_length(child.tokens, tokens)
            if common == len(child.tokens) == SIZE:
                common += longest(child, tokens[SIZE:])
            best = max(best, common)
    return best


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=100,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
