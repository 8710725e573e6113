"""Text while it comes: whole characters, and stop strings across borders."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttc.engine.local.text.stream import StopStrings, TextStream


def run(
    data: Sequence[bytes], stops: Sequence[str] = (), *, trims: bool = False
) -> tuple[list[str], str | None]:
    """The pieces of a stream, the flushed one last, and the stop string that ended it."""
    stream = TextStream(stops, trims=trims)
    pieces = []
    for item in data:
        text, stop = stream.feed(item)
        pieces.append(text)
        if stop is not None:
            return pieces, stop
    text, stop = stream.flush()
    return [*pieces, text], stop


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (["f09f", "a7ae", "206f6b"], ["", "\U0001f9ee", " ok", ""]),
        (["61", "f09f"], ["a", "", "\ufffd"]),
        (["61", "ff", "62"], ["a", "\ufffd", "b", ""]),
    ],
    ids=["split character", "unfinished at the end", "invalid at once"],
)
def test_characters_come_whole_or_as_one_replacement(data: list[str], pieces: list[str]) -> None:
    """ST-05: An unfinished character waits; an invalid byte does not."""
    assert run([bytes.fromhex(item) for item in data]) == (pieces, None)


@given(st.lists(st.binary(max_size=5), max_size=20))
def test_pieces_join_to_the_decoded_whole(data: list[bytes]) -> None:
    """However bytes are cut, the text is that of all of them."""
    pieces, _ = run(data)

    assert "".join(pieces) == b"".join(data).decode(errors="replace")


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (["", " In", " a"], ["", "In", " a", ""]),
        ([" ", "  if"], ["", "  if", ""]),
        (["In", " a"], ["In", " a", ""]),
    ],
    ids=["after a control token", "one of three", "none to drop"],
)
def test_a_stream_that_trims_drops_one_space_that_comes_first(
    data: list[str], pieces: list[str]
) -> None:
    """Once, and only where it is the first letter."""
    assert run([item.encode() for item in data], trims=True) == (pieces, None)


@pytest.mark.parametrize(
    ("texts", "stops", "expected", "stop"),
    [
        (["The sum", " is 9", ".EN", "D", " extra"], ["END"], "The sum is 9.", "END"),
        ([".EN", "TER", " now"], ["END"], ".ENTER now", None),
        (["The sum", " is 9", ".EN", "D", " extra"], ["EN", "END"], "The sum is 9.", "EN"),
        (["xab", "cd"], ["abc", "bc"], "x", "abc"),
    ],
    ids=["across tokens", "a false start", "the one complete first", "the longest that ends"],
)
def test_a_stop_string_ends_the_text_before_it(
    texts: list[str], stops: list[str], expected: str, stop: str | None
) -> None:
    """ST-01: No part of a stop string is given out, and what only looked like one is."""
    pieces, found = run([text.encode() for text in texts], stops)

    assert ("".join(pieces), found) == (expected, stop)


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    """ST-01: No piece ends in a beginning of the stop string."""
    stops = StopStrings(["END"])

    assert [stops.feed(text).text for text in (".E", "N", "T")] == [".", "", "ENT"]


def first_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The rule, letter by letter: complete first, and then the longest."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(
    st.lists(st.text("abé", max_size=4), max_size=10),
    st.lists(st.text("abé", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_do_not_depend_on_how_text_is_cut(texts: list[str], stops: list[str]) -> None:
    """Any cutting gives what a reader of the whole text finds."""
    pieces, found = run([text.encode() for text in texts], stops)

    assert ("".join(pieces), found) == first_stop("".join(texts), stops)
