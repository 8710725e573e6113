from __future__ import annotations

import json
import os
from collections import Counter, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ttc.sandbox import codec

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.sets(atoms, max_size=3),
        st.frozensets(atoms, max_size=3),
        st.dictionaries(atoms, inner, max_size=3),
    ),
    max_leaves=8,
)


def exact(value: Any) -> Any:
    """A value with the type of every part of it."""
    if isinstance(value, dict):
        return type(value), [(exact(k), exact(v)) for k, v in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), value
    if isinstance(value, (list, tuple, deque)):
        return type(value), [exact(item) for item in value]
    return type(value), repr(value)


@settings(max_examples=60, deadline=None)
@given(values)
def test_a_value_comes_back_with_its_exact_types(value: Any) -> None:
    form = json.loads(json.dumps(codec.encode(value)))
    assert exact(codec.decode(form)) == exact(value)


forms = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.sampled_from(["list", "int", "dict"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(forms)
def test_a_forged_form_is_a_codec_error_or_plain_data(form: Any) -> None:
    try:
        value = codec.decode(form)
    except codec.CodecError:
        return
    codec.encode(value)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        len,
        type("Sub", (int,), {})(3),
        type("Sub", (list,), {})(),
        type("Sub", (dict,), {"items": lambda self: [("a", 1)]})(),
    ],
)
def test_what_is_not_plain_stays(value: object) -> None:
    with pytest.raises(codec.CodecError):
        codec.encode(value)
    assert codec.encode([value], lambda _: 7) == ["list", [["kept", 7]]]


def test_a_value_may_be_neither_deep_nor_endless() -> None:
    deep: list[Any] = []
    for _ in range(codec.MAX_DEPTH + 1):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)
    wide: list[Any] = [0]
    for _ in range(40):
        wide = [wide, wide]
    for value in (deep, endless, wide):
        with pytest.raises(codec.CodecError):
            codec.encode(value)


def test_a_frame_that_is_too_long_is_refused_on_both_sides() -> None:
    reading, writing = os.pipe()
    with pytest.raises(codec.CodecError, match="longer than"):
        codec.send(writing, "x" * (codec.MAX_FRAME_BYTES + 1))
    os.write(writing, (codec.MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(codec.CodecError, match="longer than"):
        codec.receive(reading)
    os.close(writing)
    with pytest.raises(EOFError):
        codec.receive(reading)
    os.close(reading)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_a_frame_that_is_no_json_is_a_codec_error(data: bytes) -> None:
    with pytest.raises(codec.CodecError):
        codec.unpack(data)


def test_standard_types_cross() -> None:
    for value in (
        Counter("aab"),
        range(1, 9, 2),
        Decimal("1.50"),
        Fraction(1, 3),
        bytearray(b"x"),
        1 - 2j,
    ):
        assert exact(codec.decode(codec.encode(value))) == exact(value)
