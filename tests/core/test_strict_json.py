"""SM-04: what is written as JSON is JSON, whatever numbers are in it."""

from __future__ import annotations

import json
import math
from typing import Any, Never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttc.strict_json import decode, encode, pretty

NUMBERS = st.floats(allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def strictly(text: str) -> Any:
    """What a reader makes of a text that takes no `NaN` and no `Infinity`."""

    def refuse(constant: str) -> Never:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@given(VALUES)
def test_what_is_encoded_is_read_back_and_is_json(values: Any) -> None:
    """Whatever there is in it."""
    text = encode(values)
    strictly(text)

    assert decode(text) == values
    assert "\n" not in text


def test_no_number_is_lost() -> None:
    """Of the sign of infinity, and of what is no number."""
    found = decode(encode({"a": (-math.inf, [math.inf]), "b": math.nan}))

    assert found["a"] == [-math.inf, [math.inf]]
    assert math.isnan(found["b"])


def test_what_is_only_shown_has_null_there() -> None:
    """Every reader can make something of it."""
    assert strictly(pretty({"value": -math.inf, "rest": (1.5, math.nan)})) == {
        "value": None,
        "rest": [1.5, None],
    }


def test_what_is_no_json_is_refused_or_replaced() -> None:
    """Nothing is made up."""
    with pytest.raises(TypeError, match="not JSON serializable"):
        encode({"a": {1}})
    assert decode(encode({"a": {1}}, default=repr)) == {"a": "{1}"}
