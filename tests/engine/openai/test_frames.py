"""Server-sent events out of bytes, wherever they are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttc.engine.openai.frames import MOST_BYTES, Frames
from ttc.errors import EngineError

STREAM = (
    b': ping\n\ndata: {"choices":[{"delta":{"content":"caf\xc3\xa9"}}]}\r\n\r\n'
    b'data: {"choices":\ndata: []}\n\nevent: x\rid: 1\rdata: 7\r\rdata: [DONE]\n\ntrailing'
)
EVENTS = ['{"choices":[{"delta":{"content":"café"}}]}', '{"choices":\n[]}', "7", "[DONE]"]


def framed(*pieces: bytes) -> list[str]:
    frames = Frames()
    return [event.decode() for piece in pieces for event in frames.feed(piece)]


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
def test_a_stream_says_the_same_wherever_it_is_cut(place: int) -> None:
    """PX-04: comments, CRLF, a split character, data on several lines, and what comes after."""
    assert framed(STREAM[:place], STREAM[place:]) == EVENTS


def test_a_stream_says_the_same_byte_by_byte() -> None:
    assert framed(*(bytes([byte]) for byte in STREAM)) == EVENTS


@given(
    texts=st.lists(st.text(max_size=20), max_size=5),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=5),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_any_texts_come_through_any_cuts(
    texts: list[str], ends: list[str], cuts: list[int]
) -> None:
    """As JSON, which has no line ends of its own."""
    whole = "".join(
        f"data: {json.dumps(text, ensure_ascii=False)}{2 * ends[i % len(ends)]}"
        for i, text in enumerate(texts)
    ).encode()
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]

    events = framed(*(whole[a:b] for a, b in pairwise(places)))

    assert [json.loads(event) for event in events] == texts


def test_a_byte_order_mark_is_passed_over() -> None:
    assert framed(b"\xef\xbb\xbfdata: 1\n\n") == ["1"]


def test_an_event_without_an_end_is_refused() -> None:
    frames = Frames()
    frames.feed(b"data: " + b"x" * (MOST_BYTES - 6))

    with pytest.raises(EngineError, match="an event of more than"):
        frames.feed(b"x")
