"""What a JSON schema and a regular expression ask of a grammar, told without building one.

Source: JSON Schema, draft 2020-12 (Wright et al. 2022).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

__all__ = ["check_schema", "expanded_size"]

_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_PARTS = ("items", "additionalProperties")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_VALUES = ("const", "enum", "type", "required", "pattern", "format", "$ref")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ENFORCED = frozenset((*_LISTS, *_MAPS, *_PARTS, *_COUNTS, *_VALUES, *_NUMBERS))
_NOTES = frozenset(
    {
        "$comment",
        "contentEncoding",
        "contentMediaType",
        "default",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords that tell a reader something, and ask nothing."""

_MAX_DEPTH = 50
_MAX_LEAST = 10_000
_MAX_REFS = 200
_MAX_NUMBER = 2**53


def check_schema(schema: Any) -> list[str]:
    """Refuses what no grammar enforces; returns the patterns that it holds.

    Raises:
        ValueError: by keyword and place.
    """
    if isinstance(schema, Mapping) and "$schema" in schema:
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    if far := [number for number in _numbers(schema) if not abs(number) <= _MAX_NUMBER]:
        raise ValueError(f"a schema's numbers are at most 2^53, which a float holds, not {far[0]}")
    patterns: list[str] = []
    refs: dict[str, None] = {}
    for place, part in _walk(schema, "#", 0):
        _check_keywords(place, part)
        patterns += [p for p in (part.get("pattern"),) if isinstance(p, str)]
        patterns += part.get("patternProperties", {})
        refs |= {str(part["$ref"]): None} if "$ref" in part else {}
    if len(refs) > _MAX_REFS:
        raise ValueError(f"a schema refers to at most {_MAX_REFS} of its parts, not {len(refs)}")
    if not _can_end(schema, refs):
        raise ValueError("no finite text is of the schema: it requires itself, again and again")
    return patterns


def _walk(schema: Any, place: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema in a schema, with its place."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise ValueError(f"{place}: a schema is an object, true or false, not {schema!r}")
    if depth > _MAX_DEPTH:
        raise ValueError(f"a schema is nested at most {_MAX_DEPTH} deep")
    yield place, schema
    for key, value in schema.items():
        for name, part in _parts(key, value, place):
            yield from _walk(part, f"{place}/{name}", depth + 1)


def _parts(key: str, value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The schemas in what a keyword says, with their names."""
    if key in _PARTS:
        yield key, value
    elif key in _LISTS:
        if not isinstance(value, list):
            raise ValueError(f"{place}/{key} is a list of schemas, not {value!r}")
        yield from ((f"{key}/{i}", part) for i, part in enumerate(value))
    elif key in _MAPS:
        if not isinstance(value, Mapping):
            raise ValueError(f"{place}/{key} is an object of schemas, not {value!r}")
        yield from ((f"{key}/{name}", part) for name, part in value.items())


def _numbers(value: Any) -> Iterator[float]:
    """Every number in a JSON value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int | float):
        yield value


def _check_keywords(place: str, schema: Mapping[str, Any]) -> None:
    if unknown := [key for key in schema if key not in _ENFORCED | _NOTES]:
        raise ValueError(f"{place}: {', '.join(unknown)} cannot be enforced; leave it out")
    for key in _COUNTS:
        if key in schema and (type(schema[key]) is not int or schema[key] < 0):
            raise ValueError(f"{place}/{key} is a whole number, not {schema[key]!r}")
        if key.startswith("min") and schema.get(key, 0) > _MAX_LEAST:
            raise ValueError(f"{place}/{key} is at most {_MAX_LEAST}, not {schema[key]}")
    for low, high in (("Length",) * 2, ("Items",) * 2, ("Properties",) * 2):
        if schema.get(f"min{low}", 0) > schema.get(f"max{high}", _MAX_LEAST):
            raise ValueError(f"{place}: min{low} is more than max{high}, so nothing is of it")
    names = schema.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{place}/required is a list of names, not {names!r}")
    if schema.get("minProperties", 0) > len(set(names)):
        # A key may come twice where it is not listed, and is one property then.
        raise ValueError(
            f"{place}: minProperties is enforced for required properties only, of which there are "
            f"{len(set(names))}; name them"
        )


def _can_end(root: Any, refs: Collection[str]) -> bool:
    """Whether a finite text can be of the schema, as far as references decide it.

    References that lead to a finite text are found one after another, until no more are.
    """
    targets = {ref: _target(ref, root) for ref in refs}
    finite: set[str] = set()
    while found := {r for r in refs if r not in finite and _is_finite(targets[r], finite)}:
        finite |= found
    return _is_finite(root, finite)


def _is_finite(schema: Any, finite: Collection[str]) -> bool:
    """Whether a schema has a finite text, where these references have one."""
    if isinstance(schema, bool):
        return True
    if "$ref" in schema and schema["$ref"] not in finite:
        return False
    parts: list[Any] = list(schema.get("allOf", ()))
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        parts += [properties[name] for name in schema.get("required", ()) if name in properties]
    if schema.get("type") == "array":
        least, prefix = schema.get("minItems", 0), schema.get("prefixItems", [])
        parts += prefix[:least]
        parts += [schema["items"]] if "items" in schema and least > len(prefix) else []
    choices = [schema[key] for key in ("anyOf", "oneOf") if schema.get(key)]
    return all(_is_finite(part, finite) for part in parts) and all(
        any(_is_finite(part, finite) for part in choice) for choice in choices
    )


def _target(ref: str, root: Any) -> Any:
    """What a reference names, which lies in the schema itself."""
    if not (ref == "#" or ref.startswith("#/")):
        raise ValueError(f"$ref {ref!r} leads out of the schema; refer to '#/$defs/NAME'")
    found = root
    for step in ref.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, Mapping) and step in found:
            found = found[step]
        else:
            raise ValueError(f"$ref {ref!r} leads nowhere")
    if not isinstance(found, Mapping | bool):
        raise ValueError(f"$ref {ref!r} leads to no schema, but to {found!r}")
    return found


def expanded_size(regex: str) -> int:
    """About how many characters a regular expression has once its repetitions are written out.

    A pattern that is none has a size, too.
    """
    sizes, last, i = [0], 0, 0
    while i < len(regex):
        character = regex[i]
        if character == "(":
            sizes.append(0)
            last = 0
        elif character == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif character == "{" and (count := _count(regex, i)) is not None:
            most, end = count
            sizes[-1] += last * (max(most, 1) - 1)
            last *= max(most, 1)
            i = end
            continue
        else:
            last = 1
            sizes[-1] += 1
            i = _end_of_atom(regex, i)
            continue
        i += 1
    return sum(sizes)


def _count(regex: str, start: int) -> tuple[int, int] | None:
    """The most repetitions of `{m,n}`, and where it ends; `None` where it is no such thing."""
    end = regex.find("}", start)
    least, _, most = regex[start + 1 : end].partition(",") if end > 0 else ("", "", "")
    numbers = [int(n) for n in (least, most) if n.strip().isdecimal() and len(n) < 10]
    if not numbers and not (least.strip().isdecimal() or most.strip().isdecimal()):
        return None
    return max(numbers, default=10**9), end + 1


def _end_of_atom(regex: str, start: int) -> int:
    """Where the character, the escape or the class that begins here ends."""
    if regex[start] == "\\":
        if regex[start + 1 : start + 3] in ("x{", "u{", "p{", "P{"):  # no repetition
            return regex.find("}", start) + 1 or len(regex)
        return start + 2
    if regex[start] != "[":
        return start + 1
    end = start + 2 + regex.startswith("[^", start)  # a bracket that comes first is a member
    while end < len(regex) and regex[end] != "]":
        end += 2 if regex[end] == "\\" else 1
    return end + 1
