"""JSON schemas, and schemas and texts that would hang, fetch or break a validator."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from typing import Any

import pytest

from tests.verifiers.lab import generated, scored
from ttc.types import Score
from ttc.verifiers import JsonSchema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


def check(schema: Any, text: str) -> Score:
    (score,) = scored(JsonSchema(schema), [generated(text=text)])
    return score


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"name": "Ada", "age": 36}', 1.0),
        (' {"name": "Ada"}\n', 1.0),
        ('{"name": "ada"}', 0.0),
        ('{"age": 36}', 0.0),
        ('{"name": "Ada", "age": 36.5}', 0.0),
        ('{"name": "Ada", "x": 1}', 0.0),
        ('Here it is: {"name": "Ada"}', 0.0),
        ('```json\n{"name": "Ada"}\n```', 0.0),
        ('{"name": "Ada"', 0.0),
        ('{"name": "Ada", "age": NaN}', 0.0),
        ("[1, Infinity]", 0.0),
        ("-", 0.0),
    ],
)
def test_a_text_is_valid_or_not(text: str, value: float) -> None:
    """Prose around it, a fence, a cut and Python's constants are no JSON."""
    assert check(PERSON, text).value == value


def test_a_schema_is_a_text_or_a_mapping() -> None:
    """Both are the same value, and a bool allows all or nothing."""
    assert JsonSchema(PERSON) == JsonSchema(json.dumps(PERSON, sort_keys=True))
    assert check(True, "[]").value == 1.0
    assert check("false", "[]").value == 0.0


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "is no JSON"),
        ({"type": "thing"}, "is no schema"),
        ({"pattern": "(?=a)"}, "not in the language"),
        ({"patternProperties": {r"(a)\1": {}}}, "not in the language"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "use additional"),
        ("[" * 500, "at most 100 deep"),
    ],
)
def test_a_schema_that_is_none_is_refused_when_it_is_made(schema: Any, reason: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=reason):
        JsonSchema(schema)


def test_patterns_of_properties_decide_what_is_additional() -> None:
    """By RE2."""
    schema = {"patternProperties": {"^n_": {"type": "number"}}, "additionalProperties": False}

    assert check(schema, '{"n_a": 1}').value == 1.0
    assert check(schema, '{"n_a": "x"}').value == 0.0
    assert check(schema, '{"m": 1}').value == 0.0


@pytest.mark.parametrize(
    ("items", "value"),
    [("[1, 2]", 1), ("[1, 1.0]", 0), ("[1, true]", 1), ('[{"a": 1}, {"a": 1.0}]', 0), ("[]", 1)],
)
def test_items_are_unique_by_value(items: str, value: float) -> None:
    """1 is 1.0, and true is not 1."""
    assert check({"uniqueItems": True}, items).value == value


def _doubling(depth: int) -> dict[str, Any]:
    """A schema whose validation visits 2^depth places."""
    definitions: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)
    }
    return {"$defs": {**definitions, f"d{depth}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (_doubling(40), "7"),
        ({"$ref": "#"}, "7"),
        ({"pattern": "(a?){900}b"}, json.dumps("a" * 100_000)),
        (
            {"uniqueItems": True, "items": {"type": "array"}},
            json.dumps([[i] for i in range(30_000)]),
        ),
        ({}, "[" * 5_000 + "]" * 5_000),
        ({}, '"' + "x" * 300_000 + '"'),
        ({}, "1" * 10_000),
        ({"multipleOf": 0.5}, "1e999"),
        ({"pattern": "a"}, r'"\ud800"'),
        ({"$ref": "#/$defs/nowhere"}, "7"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_cannot_be_checked_within_bounds_is_unknown(schema: Any, text: str) -> None:
    """Neither a schema nor a text holds anything up, and the score is no guess."""
    started = time.perf_counter()
    score = check(schema, text)

    assert score.value is None
    assert score.evidence["unknown"]
    assert time.perf_counter() - started < 10  # unbounded, the first takes 10^12 steps


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to somewhere else leads nowhere."""

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)

    assert check({"$ref": "http://localhost:1/schema.json"}, "7").value is None


def test_uniqueness_of_many_items_is_quick() -> None:
    """Ten thousand arrays are compared by hash, not each with each."""
    text = json.dumps([[i] for i in range(10_000)])

    assert check({"uniqueItems": True}, text).value == 1.0
    assert check({"uniqueItems": True}, text[:-1] + ", [7]]").value == 0.0
