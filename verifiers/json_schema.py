"""JsonSchema: whether a text is JSON, and of the form that a schema tells.

Source: JSON Schema, draft 2020-12 (Wright et al. 2022), by the library jsonschema.
Differs: nothing is fetched, whatever a `$ref` says; patterns are those of RE2; a text that takes
more than a bounded number of steps is unknown.
Cost: no engine calls, one verifier call for each candidate.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

from ttc.registry import install_hint
from ttc.verifiers.patterns import TooMuchWork, compiled, fits
from ttc.verifiers.text import Of, TextCheck

__all__ = ["JsonSchema"]

_MAX_CHARACTERS = 200_000
_MAX_STEPS = 50_000
_STEPS_OF_A_REFERENCE = 5  # it takes that much longer than another keyword
_MAX_DEPTH = 100


@dataclass(frozen=True, init=False)
class JsonSchema(TextCheck):
    """Whether a text is one JSON value that a schema allows.

    Nothing around the value is forgiven: a text with prose or a code fence is no JSON.
    """

    schema: str
    """The schema, as JSON; a mapping is written out."""
    of: Of = field(default="text", kw_only=True)
    name: str = field(default="json_schema", kw_only=True)

    def __init__(
        self,
        schema: str | Mapping[str, Any] | bool,
        *,
        of: Of = "text",
        name: str = "json_schema",
    ) -> None:
        """A schema.

        Raises:
            ValueError: it is no JSON, no schema, holds a pattern that is none, or jsonschema is not
                installed.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema, sort_keys=True)
        for key, value in (("schema", text), ("of", of), ("name", name)):
            object.__setattr__(self, key, value)
        self.__post_init__()
        _validator(text)

    async def check(self, text: str) -> bool | str:
        """Whether it is valid."""
        if len(text) > _MAX_CHARACTERS:
            return f"{len(text)} characters are too many to be checked"
        if _depth(text) > _MAX_DEPTH:
            return "it is nested too deep to be checked"
        try:
            value = json.loads(text, parse_constant=_refuse)
        except json.JSONDecodeError:
            return False
        except ValueError as error:
            return False if error.args == (_CONSTANT,) else f"it cannot be read: {error}"
        try:
            return _validator(self.schema)(value)
        except (TooMuchWork, RecursionError, UnicodeEncodeError) as error:
            return f"the check was given up: {error}"


_CONSTANT = "not a JSON constant"


def _refuse(name: str) -> None:
    """NaN and the infinities are no JSON, though Python reads them."""
    raise ValueError(_CONSTANT)


def _depth(text: str) -> int:
    """At least as deep as its JSON is nested; brackets in strings count, too."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


class _Validator:
    """A schema that is ready to validate, in a bounded number of steps."""

    def __init__(self, schema: Any) -> None:
        try:
            jsonschema = import_module("jsonschema")
            registry = import_module("referencing").Registry()  # holds nothing, fetches nothing
        except ModuleNotFoundError:
            raise ValueError(
                f"schemas need jsonschema, which is missing: {install_hint('verify')}"
            ) from None
        plain = jsonschema.Draft202012Validator
        try:
            plain.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise ValueError(f"it is no schema: {error.message}") from None
        self._error = jsonschema.ValidationError
        self._local = threading.local()
        keywords = {name: self._counted(name, rule) for name, rule in plain.VALIDATORS.items()}
        keywords |= {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": self._unique_items,
        }
        bounded = jsonschema.validators.extend(plain, keywords)
        self._validator = bounded(schema, registry=registry)
        self._unresolvable = import_module("referencing.exceptions").Unresolvable

    def __call__(self, value: Any) -> bool:
        """Whether a value is valid.

        Raises:
            TooMuchWork: it takes too many steps.
        """
        self._local.steps = 0
        try:
            return bool(self._validator.is_valid(value))
        except self._unresolvable as error:
            raise TooMuchWork(f"a reference leads nowhere: {error}") from None
        except ArithmeticError as error:
            raise TooMuchWork(f"a number is out of reach: {error}") from None

    def _step(self, count: int = 1) -> None:
        self._local.steps += count
        if self._local.steps > _MAX_STEPS:
            raise TooMuchWork(f"more than {_MAX_STEPS} steps")

    def _counted(self, name: str, rule: Any) -> Any:
        count = _STEPS_OF_A_REFERENCE if name in ("$ref", "$dynamicRef") else 1

        def counted(validator: Any, keyword: Any, value: Any, schema: Any) -> Iterator[Any]:
            self._step(count)
            yield from rule(validator, keyword, value, schema) or ()

        return counted

    def _pattern(self, validator: Any, pattern: str, value: Any, _: Any) -> Iterator[Any]:
        self._step()
        if isinstance(value, str) and not fits(compiled(pattern), value, whole=False):
            yield self._error(f"{pattern!r} does not match")

    def _pattern_properties(
        self, validator: Any, patterns: Mapping[str, Any], value: Any, _: Any
    ) -> Iterator[Any]:
        for pattern, schema in patterns.items() if isinstance(value, dict) else ():
            for key, item in value.items():
                self._step()
                if fits(compiled(pattern), key, whole=False):
                    yield from validator.descend(item, schema, path=key, schema_path=pattern)

    def _additional_properties(
        self, validator: Any, allowed: Any, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[Any]:
        if not isinstance(value, dict):
            return
        patterns = [compiled(pattern) for pattern in schema.get("patternProperties", ())]
        for key, item in value.items():
            self._step()
            if key in schema.get("properties", ()):
                continue
            if not any(fits(pattern, key, whole=False) for pattern in patterns):
                yield from validator.descend(item, allowed, path=key)

    def _unique_items(self, validator: Any, wanted: bool, value: Any, _: Any) -> Iterator[Any]:
        self._step()
        if wanted and isinstance(value, list) and len(set(map(_canonical, value))) < len(value):
            yield self._error("items are not unique")


def _canonical(value: Any) -> str:
    """One text for all that JSON Schema calls equal: 1 is 1.0, and true is not 1."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _patterns(schema: Any) -> Iterator[str]:
    """Every regular expression in a schema, and perhaps a text that is none of its patterns."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
        for part in schema.values():
            yield from _patterns(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _patterns(part)


@lru_cache(maxsize=64)
def _validator(schema: str) -> _Validator:
    if _depth(schema) > _MAX_DEPTH:
        raise ValueError(f"a schema is nested at most {_MAX_DEPTH} deep")
    try:
        content = json.loads(schema)
    except ValueError as error:
        raise ValueError(f"the schema is no JSON: {error}") from None
    for pattern in _patterns(content):
        compiled(pattern)
    if "unevaluatedProperties" in schema and "patternProperties" in schema:
        raise ValueError(
            "a schema with patternProperties has no unevaluatedProperties here, since the library "
            "matches these by backtracking; use additionalProperties"
        )
    return _Validator(content)
