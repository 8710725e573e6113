"""The tree of pages: sharing, copying, eviction, what is remembered, and that no page is lost."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local.page import ENTROPY, TOP, common_length
from ttc.engine.local.tree import Path, RadixTree
from ttc.errors import MemoryExhausted

SIZE = 4


def store(tree: RadixTree, tokens: list[int]) -> Path:
    """Computes a sequence, as the batch does, and returns its path."""
    path = tree.join(tree.match([*tokens, 0]))
    tree.grow(path, len(tokens))
    tree.copies.clear()
    tree.record(path, tokens[path.length :])
    return path


def test_a_full_page_is_shared_and_a_beginning_is_copied() -> None:
    """Six common tokens are one page of four, and two of the next."""
    tree = RadixTree(8, SIZE)
    first = store(tree, [1, 2, 3, 4, 5, 6, 7])
    match = tree.match([1, 2, 3, 4, 5, 6, 9, 9])

    assert match.shared == (first.pages[0],)
    assert (match.source, match.copied, match.length) == (first.pages[1], 2, 6)


def test_a_path_that_leaves_inside_a_page_moves_nothing() -> None:
    """Where a tree with long edges would split a node."""
    tree = RadixTree(8, SIZE)
    first = store(tree, list(range(11)))
    before = first.table.tolist()
    second = store(tree, [0, 1, 2, 3, 4, 5, 99, 98, 97])

    assert first.table.tolist() == before
    assert second.table[0] == before[0]
    assert set(second.table[1:]).isdisjoint(before)
    assert tree.match([*range(11), 11]).length == 11


def test_the_second_writer_to_a_page_copies_it_and_the_last_one_does_not() -> None:
    """A fork takes no page; a writer beside another takes exactly one."""
    tree = RadixTree(8, SIZE)
    trunk = store(tree, [1, 2, 3, 4, 5, 6])
    tree.release(trunk)
    one = tree.join(tree.match([1, 2, 3, 4, 5, 6, 0]))
    assert (tree.num_used, len(tree.copies)) == (2, 0)
    two = tree.join(tree.match([1, 2, 3, 4, 5, 6, 0]))

    assert (tree.num_used, len(tree.copies)) == (3, 1)
    assert one.pages[0] is two.pages[0]
    assert one.pages[1] is not two.pages[1]
    tree.check()


def test_the_last_token_is_never_taken_from_the_tree() -> None:
    """Its logits are wanted, so it is computed anew."""
    tree = RadixTree(8, SIZE)
    store(tree, [1, 2, 3, 4])

    assert tree.match([1, 2, 3, 4]).length == 3
    assert tree.match([1, 2, 3, 4, 5]).length == 4


def test_calls_that_fill_equal_pages_come_to_share_them() -> None:
    """Both began before either had computed anything."""
    tree = RadixTree(8, SIZE)
    paths = [tree.join(tree.match([1, 2])) for _ in range(3)]
    for path in paths:
        tree.grow(path, 6)
        tree.record(path, [1, 2, 3, 4, 5, 6])
        tree.check()

    assert len({path.table[0] for path in paths}) == 1
    assert tree.num_used == 1 + 3
    for path in paths:
        tree.release(path)
    assert tree.num_available == 8
    tree.check()
    assert len(tree.match([1, 2, 3, 4, 5, 6, 7]).shared) == 1


def test_equal_ends_are_kept_once() -> None:
    """Of a page filled in part that others continue, nothing is kept beside them."""
    tree = RadixTree(8, SIZE)
    paths = [tree.join(tree.match([7])) for _ in range(4)]
    for count, path in enumerate(paths, 1):
        tree.grow(path, 3)
        tree.record(path, [1, 2, 3][:count])
    for path in (paths[1], paths[3], paths[0], paths[2]):
        tree.release(path)
        tree.check()

    assert tree.num_free == 7


def test_the_least_recently_used_page_goes_first() -> None:
    """And a page only after those that need it."""
    tree = RadixTree(4, SIZE)
    tree.release(store(tree, [1, 1, 1, 1, 1]))
    tree.release(store(tree, [2, 2, 2, 2, 2]))
    held = store(tree, [3])

    assert tree.match([1] * 6).length == 4  # its second page went
    assert tree.match([2] * 6).length == 5
    tree.release(held)
    tree.check()


def test_a_page_of_a_less_valuable_call_goes_before_an_older_one() -> None:
    """Age decides among equals alone."""
    tree = RadixTree(4, SIZE)
    tree.release(store(tree, [1, 1, 1, 1, 1]), 2.0)
    tree.release(store(tree, [2, 2, 2, 2, 2]), 1.0)
    store(tree, [3])

    assert tree.match([1] * 6).length == 5
    assert tree.match([2] * 6).length == 4


def test_what_calls_use_is_never_evicted() -> None:
    """A full pool refuses, and says what to do; what was held stays whole."""
    tree = RadixTree(3, SIZE)
    path = store(tree, list(range(9)))
    other = Path()
    with pytest.raises(MemoryExhausted, match="all 3 pages"):
        tree.grow(other, 1)

    assert tree.match(list(range(10))).length == 9
    tree.release(path)
    tree.grow(other, 9)
    assert tree.num_used == 3


def test_a_join_without_room_for_its_copy_holds_nothing() -> None:
    """So that the call may wait as it did before."""
    tree = RadixTree(2, SIZE)
    store(tree, [1, 2, 3, 4, 5, 6])
    with pytest.raises(MemoryExhausted):
        tree.join(tree.match([1, 2, 3, 4, 5, 9]))

    assert len(tree.paths) == 1
    tree.check()


def test_a_page_that_was_never_written_is_free_again() -> None:
    """Nothing can be found in it."""
    tree = RadixTree(2, SIZE)
    path = tree.join(tree.match([0]))
    tree.grow(path, 5)
    tree.release(path)

    assert (tree.num_available, tree.num_free) == (2, 2)
    assert tree.match([0, 0]).length == 0
    tree.check()


def test_what_was_not_recorded_is_never_found() -> None:
    """As of a step that failed, or of drafts that were rejected."""
    tree = RadixTree(4, SIZE)
    path = store(tree, [1, 2])
    tree.grow(path, 8)
    tree.release(path)

    assert tree.match([1, 2, 3, 4, 5]).length == 2
    tree.check()


def test_what_a_faulty_call_computed_is_never_found() -> None:
    """But what it had found, and what others compute, is."""
    tree = RadixTree(8, SIZE)
    tree.release(store(tree, [1, 2, 3, 4]))
    faulty = store(tree, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    good = store(tree, [1, 2, 3, 4, 6])
    tree.discard(faulty)

    assert tree.match([1, 2, 3, 4, 5, 6]).length == 4
    assert tree.match([1, 2, 3, 4, 6, 7]).length == 5
    tree.release(good)
    tree.check()


def test_copies_that_may_not_have_been_made_are_forgotten() -> None:
    """Their pages stay with their paths, empty."""
    tree = RadixTree(8, SIZE)
    store(tree, [1, 2, 3])
    path = tree.join(tree.match([1, 2, 9]))
    tree.forget_copies()
    tree.check()
    tree.release(path)

    assert tree.match([1, 2, 9]).length == 2
    assert tree.num_used == 1
    tree.check()


def test_a_copy_that_was_never_made_is_not_found() -> None:
    """Its call was cancelled before the step."""
    tree = RadixTree(8, SIZE)
    first = store(tree, [1, 2, 3])
    path = tree.join(tree.match([1, 2, 9]))
    tree.release(path)
    tree.release(first)

    assert tree.copies == {}
    assert tree.num_free == 7
    tree.check()


def test_facts_outlive_memory_and_come_back_with_it() -> None:
    """Up to as many pages as are remembered, the first evicted being forgotten first."""
    tree = RadixTree(2, SIZE, num_remembered=2)
    old = store(tree, [1, 2, 3, 4, 5])
    for row in range(5):
        tree.note(old, row, {row: -0.5, ENTROPY: 1.5})
    tree.release(old)
    tree.release(store(tree, [9] * 8))  # takes both pages

    assert tree.match([1, 2, 3, 4, 5, 6]).length == 0
    assert tree.num_remembered == 2
    assert tree.facts([1, 2, 3, 4, 5], range(5)) == {r: {r: -0.5, ENTROPY: 1.5} for r in range(5)}
    again = store(tree, [1, 2, 3, 4])
    assert tree.match([1, 2, 3, 4, 5]).length == 4
    assert tree.facts([1, 2, 3, 4], [3]) == {3: {3: -0.5, ENTROPY: 1.5}}
    tree.release(again)
    tree.check()


def test_no_more_is_remembered_than_was_agreed() -> None:
    """However many pages come and go."""
    tree = RadixTree(2, SIZE, num_remembered=3)
    for token in range(20):
        path = store(tree, [token] * 6)
        tree.note(path, 1, {0: 0.0})
        tree.note(path, 5, {0: 0.0})
        tree.release(path)
        tree.check()

    assert tree.num_remembered == 3
    assert tree.facts([0] * 6, [1]) == {}


def test_what_is_known_never_takes_more_memory_than_it_may() -> None:
    """The sizes that it counts are no smaller than those that Python takes."""
    tree = RadixTree(8, SIZE, known_bytes=400_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for token in range(300, 700):
            path = store(tree, [token] * 6)
            for row in range(6):
                tree.note(path, row, {1000 * row + key: -float(key) for key in range(token % 40)})
            tree.release(path)
            assert tree.known_bytes <= 400_000
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    tree.check()

    assert tree.facts([699] * 6, [1])[1].keys() == {1000 + key for key in range(19)}
    assert tree.facts([300] * 6, [1]) == {}
    assert taken < 450_000  # pages in memory, and the tree itself, beside it


def test_a_row_of_which_too_much_is_known_is_forgotten() -> None:
    """Though its page is in use."""
    tree = RadixTree(2, SIZE, known_bytes=10_000)
    path = store(tree, [1, 2])
    for key in range(500):
        tree.note(path, 1, {key: -1.0})
    tree.check()

    assert 0 < len(tree.facts([1, 2], [1])[1]) < 100


def test_what_was_asked_for_lately_is_kept() -> None:
    """And a page without memory goes with what was known of it."""
    tree = RadixTree(2, SIZE, num_remembered=20, known_bytes=14_000)
    for token in (1, 2, 3, 4, 5):
        path = store(tree, [token] * 3)
        tree.note(path, 0, {0: -1.0})
        tree.facts([1] * 3, [0])
        tree.release(path)
        tree.check()
    assert tree.known_bytes < 14_000
    for token in range(6, 20):
        path = store(tree, [token] * 3)
        tree.note(path, 0, {0: -1.0})
        tree.facts([1] * 3, [0])
        tree.release(path)

    assert tree.facts([1] * 3, [0]) == {0: {0: -1.0}}
    assert tree.facts([7] * 3, [0]) == {}
    assert tree.num_remembered <= 14_000 // 2048


def test_the_longest_list_of_next_tokens_is_remembered() -> None:
    """A shorter one that comes later takes nothing away."""
    tree = RadixTree(2, SIZE)
    path = store(tree, [1])
    tree.note(path, 0, {4: -0.1, 5: -3.0, TOP: 2.0})
    tree.note(path, 0, {4: -0.1, TOP: 1.0})

    assert tree.facts([1], [0]) == {0: {4: -0.1, 5: -3.0, TOP: 2.0}}


def test_a_shared_page_counts_in_part_for_each_of_its_users() -> None:
    """All shares add up to the pages that are held."""
    tree = RadixTree(9, SIZE)
    paths = [store(tree, [1, 2, 3, 4, 5 + i]) for i in range(3)]
    shares = list(tree.shares(paths))

    assert shares == pytest.approx([4 / 3] * 3)
    assert sum(shares) == pytest.approx(tree.num_used)


@given(st.lists(st.integers(0, 2), max_size=14), st.lists(st.integers(0, 2), max_size=14))
def test_common_length_is_the_longest_common_prefix(a: list[int], b: list[int]) -> None:
    """As slices see it."""
    length = common_length(a, b)

    assert a[:length] == b[:length]
    assert a[: length + 1] != b[: length + 1] or length == min(len(a), len(b))


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), max_size=20))
@settings(max_examples=150, deadline=None)
def test_a_match_is_the_longest_common_prefix_with_all_that_was_computed(
    sequences: list[list[int]],
) -> None:
    """By brute force, where memory has room for everything."""
    tree, computed = RadixTree(80, SIZE), list[list[int]]()
    for i, tokens in enumerate(sequences):
        longest = max((common_length(tokens[:-1], other) for other in computed), default=0)
        assert tree.match(tokens).length == longest
        path = store(tree, tokens)
        computed.append(tokens)
        if i % 3:
            tree.release(path)
        tree.check()


def test_what_was_computed_under_another_salt_is_never_found() -> None:
    """Neither keys and values nor facts; and both stand beside each other."""
    tree = RadixTree(8, 4)
    tokens = [*range(9)]
    for salt in ("one", "two"):
        path = tree.join(tree.match(tokens, salt))
        assert path.length == 0
        tree.grow(path, 8)
        tree.record(path, tokens[:8])
        tree.note(path, 3, {7: -0.5})
        tree.release(path)
        tree.check()
        assert tree.match(tokens, salt).length == 8
        assert tree.facts(tokens, [3], salt) == {3: {7: -0.5}}

    assert tree.match(tokens).length == tree.match(tokens, "three").length == 0
    assert tree.facts(tokens, [3]) == {}
