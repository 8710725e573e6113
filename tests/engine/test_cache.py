"""The tree of pages: sharing, copying, eviction, and that no page is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.engine.local.cache import Page, PrefixCache, common_length

SIZE = 4


def store(cache: PrefixCache, tokens: list[int]) -> list[Page]:
    """Computes a sequence, as the batch does, and returns its pages, held."""
    match = cache.match([*tokens, 0])
    cache.hold(match.shared)
    pages = list(match.shared)
    while len(pages) * SIZE < len(tokens):
        page = cache.take(pages[-1] if pages else None)
        start = len(pages) * SIZE
        page.tokens = list(tokens[start : start + SIZE])
        pages.append(page)
    return pages


def test_a_full_page_is_shared_and_a_beginning_is_copied() -> None:
    """Six common tokens are one page of four, and two of the next."""
    cache = PrefixCache(8, SIZE)
    first = store(cache, [1, 2, 3, 4, 5, 6, 7])
    match = cache.match([1, 2, 3, 4, 5, 6, 9, 9])

    assert match.shared == (first[0],)
    assert (match.source, match.copied, match.length) == (first[1], 2, 6)


def test_the_last_token_is_never_taken_from_the_cache() -> None:
    """Its logits are wanted, so it is computed anew."""
    cache = PrefixCache(8, SIZE)
    store(cache, [1, 2, 3, 4])

    assert cache.match([1, 2, 3, 4]).length == 3
    assert cache.match([1, 2, 3, 4, 5]).length == 4


def test_the_least_recently_used_page_goes_first() -> None:
    """And a page only after those that need it."""
    cache = PrefixCache(4, SIZE)
    cache.release(store(cache, [1, 1, 1, 1, 1]))
    cache.release(store(cache, [2, 2, 2, 2, 2]))
    cache.match([1, 1, 1, 1, 1, 1])
    held = store(cache, [3])

    assert cache.match([1] * 6).length == 4  # its second page went
    assert cache.match([2] * 6).length == 5
    cache.release(held)
    cache.check()


def test_a_page_that_was_never_written_is_free_again() -> None:
    """Nothing can be found in it."""
    cache = PrefixCache(2, SIZE)
    page = cache.take(None)
    cache.release([page])

    assert cache.num_available == 2
    assert cache.match([0, 0]).length == 0
    cache.check()


@given(st.lists(st.integers(0, 2), max_size=14), st.lists(st.integers(0, 2), max_size=14))
def test_common_length_is_the_longest_common_prefix(a: list[int], b: list[int]) -> None:
    """As slices see it."""
    length = common_length(a, b)

    assert a[:length] == b[:length]
    assert a[: length + 1] != b[: length + 1] or length == min(len(a), len(b))


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 1), min_size=1, max_size=12))))
@settings(max_examples=150, deadline=None)
def test_no_page_is_lost_or_used_twice(steps: list[tuple[bool, list[int]]]) -> None:
    """Any order of storing and releasing keeps every page in one place; matches are right."""
    cache = PrefixCache(9, SIZE)
    held: list[list[Page]] = []
    for release, tokens in steps:
        if release and held:
            cache.release(held.pop(0))
        match = cache.match([*tokens, 0])
        found = [token for page in match.shared for token in page.tokens]
        if match.source is not None:
            found += match.source.tokens[: match.copied]
        assert found == tokens[: match.length]
        needed = -(-len(tokens) // SIZE) - len(match.shared) + cache.num_idle(match.shared)
        if needed <= cache.num_available:
            held.append(store(cache, tokens))
        cache.check()
    for pages in held:
        cache.release(pages)
    cache.check()

    assert cache.num_used == 0
