"""Graphs in files, as JSON or YAML.

    graph.save("plan.yaml")
    graph = Node.load("plan.yaml")

A file is data. It holds calls of registered names and nothing else, so reading it imports nothing
but what the registry knows and runs nothing but constructors. It may come from a stranger: size and
depth are checked before anything is made of it, and YAML's anchors and tags are refused.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_, or_, rshift
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError
from typing_extensions import TypeAliasType

from ttc.errors import GraphError
from ttc.graph import Chain, Node, Pool
from ttc.named_calls import Unnamed, call_of, made, maker
from ttc.text_form import MAX_NODES, checked

__all__ = ["MAX_BYTES", "SCHEMA_VERSION", "from_json", "load", "save", "to_json"]

SCHEMA_VERSION = 1
MAX_BYTES = 100_000
_MAX_DEPTH = 100
_MAX_FAULTS = 5
_SUFFIXES = (".json", ".yaml", ".yml")


class _Part(BaseModel):
    """A mapping of a file. What it has no field for is refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Call(_Part):
    call: str
    """A registered name."""
    parts: list[_Value] = []
    """What it is called with by place."""
    options: dict[str, _Value] = {}
    """What it is called with by name."""


class _Chain(_Part):
    chain: list[_Value] = Field(min_length=2)


class _Pool(_Part):
    pool: list[_Value] = Field(min_length=2)


class _Either(_Part):
    either: list[_Value] = Field(min_length=2, max_length=2)
    """Two rules, of which one is enough."""


class _Both(_Part):
    both: list[_Value] = Field(min_length=2, max_length=2)


class _Number(_Part):
    number: Literal["inf", "-inf"]
    """What JSON has no form for."""


_FORMS: dict[str, type[_Part]] = {
    "call": _Call,
    "chain": _Chain,
    "pool": _Pool,
    "either": _Either,
    "both": _Both,
    "number": _Number,
}
_OPERATORS = {"chain": rshift, "pool": or_, "either": or_, "both": and_}


def _form(value: Any) -> str | None:
    """Which form a value of a file has."""
    if isinstance(value, dict):
        return next((form for form in _FORMS if form in value), None)
    return "list" if isinstance(value, list) else "plain"


if TYPE_CHECKING:
    _Value = Any
else:
    _Value = TypeAliasType(
        "_Value",
        Annotated[
            Annotated[_Call, Tag("call")]
            | Annotated[_Chain, Tag("chain")]
            | Annotated[_Pool, Tag("pool")]
            | Annotated[_Either, Tag("either")]
            | Annotated[_Both, Tag("both")]
            | Annotated[_Number, Tag("number")]
            | Annotated[list["_Value"], Tag("list")]
            | Annotated[bool | int | float | str | None, Tag("plain")],
            Discriminator(
                _form,
                custom_error_type="form",
                custom_error_message=f"a mapping has one of the keys {', '.join(_FORMS)}",
            ),
        ],
    )


class _File(_Part):
    schema_version: int
    graph: _Value


def save(graph: Node, path: Path) -> None:
    """Writes a graph to a file, all of it or nothing.

    Raises:
        GraphError: a part of it is not registered, it cannot run, it is too large, or the file
            cannot be written.
    """
    suffix = _suffix(path)
    text = to_json(graph)
    if suffix != ".json":
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True)
        if _read(text, suffix) != graph:
            raise GraphError([f"{path}: YAML does not give back what it holds; save it as .json"])
    try:
        _write(text, path)
    except OSError as error:
        raise GraphError([f"{path} cannot be written: {error.strerror}"]) from error


def _write(text: str, path: Path) -> None:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}", delete=False
    ) as file:
        try:
            file.write(text)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def load(path: Path) -> Node:
    """The graph that a file holds, checked as a strategy.

    Raises:
        GraphError: there is no such file, or it holds none; with every fault that was found.
    """
    suffix = _suffix(path)
    try:
        if not path.is_file():
            raise GraphError([f"{path} is no file"])
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError([f"{path} cannot be read: {error}"]) from None
    return _read(text, suffix, str(path))


def to_json(graph: Node) -> str:
    """A graph as JSON text, which `from_json` reads as an equal one.

    Raises:
        GraphError: a part of it is not registered, it cannot run, or it is too large.
    """
    graph.validate()
    faults: list[str] = []
    content = {"schema_version": SCHEMA_VERSION, "graph": _data(graph, "graph", faults)}
    if faults:
        raise GraphError(faults)
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    if from_json(text) != graph:
        raise GraphError(["it is not what its saved form gives back; only its own values have one"])
    return text


def from_json(text: str) -> Node:
    """The graph that a JSON text holds, checked as a strategy.

    Raises:
        GraphError: it holds none, or is too large.
    """
    return _read(text, ".json")


def _suffix(path: Path) -> str:
    if path.suffix not in _SUFFIXES:
        raise GraphError(
            [f"{path}: a saved graph is called {', '.join(f'*{s}' for s in _SUFFIXES)}"]
        )
    return path.suffix


def _data(value: Any, where: str, faults: list[str]) -> Any:
    """A value as what JSON can hold; what has no form is noted."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, tuple | list):
        return [_data(item, f"{where}.{n}", faults) for n, item in enumerate(value)]
    joined = _joined(value)
    if joined is not None:
        form, parts = joined
        return {form: _data(parts, f"{where}.{form}", faults)}
    try:
        name, parts, options = call_of(value)
    except Unnamed as error:
        faults.append(f"{where}: {error}")
        return None
    data: dict[str, Any] = {"call": name}
    if parts:
        data["parts"] = _data(parts, f"{where}.{name}", faults)
    if options:
        data["options"] = {k: _data(v, f"{where}.{name}.{k}", faults) for k, v in options.items()}
    return data


def _joined(value: Any) -> tuple[str, Sequence[Any]] | None:
    """How a value is made of others by an operator, and of which; `None` for anything else."""
    if isinstance(value, Chain | Pool):
        return ("chain" if isinstance(value, Chain) else "pool"), value.parts
    sign = getattr(value, "sign", None)
    return sign and (("either" if sign == "|" else "both"), (value.first, value.second))


def _read(text: str, suffix: str, where: str = "the saved graph") -> Node:
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise GraphError([f"{where} has more than {MAX_BYTES:,} bytes"])
    try:
        data = _from_yaml(text) if suffix != ".json" else _from_json(text)
        _check_size(data)
        file = _File.model_validate(data)
        if file.schema_version != SCHEMA_VERSION:
            raise _Unreadable(
                f"its schema_version is {file.schema_version}; this ttc reads {SCHEMA_VERSION}"
            )
        graph = _value(file.graph, "graph")
    except _Unreadable as error:
        raise GraphError([f"{where}: {error}"]) from None
    except ValidationError as error:
        faults = error.errors(include_url=False)
        told = [
            f"{where}: {_place(fault['loc'])}: {fault['msg']}" for fault in faults[:_MAX_FAULTS]
        ]
        raise GraphError(told) from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits among them
        raise GraphError([f"{where} cannot be read: {error}"]) from None
    return checked(graph, where)


class _Unreadable(Exception):
    """A file that holds something which no graph is saved as."""


def _from_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_mapping, parse_constant=_constant)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise _Unreadable(f"the key {twice!r} is given twice")
    return mapping


def _constant(name: str) -> Any:
    raise _Unreadable(f'{name} is no number of JSON; infinity is {{"number": "inf"}}')


def _from_yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc] # the package has no types
        """As it is, but a key that is given twice is none."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            pairs = [
                (self.construct_object(k), self.construct_object(v, True)) for k, v in node.value
            ]
            return _mapping(pairs)

    try:
        _check_events(yaml.parse(text, Loader=yaml.SafeLoader))
        return Loader(text).get_single_data()
    except yaml.YAMLError as error:
        raise _Unreadable(f"it is no YAML: {' '.join(str(error).split())[:200]}") from None
    except TypeError as error:  # a mapping or a list as a key
        raise _Unreadable(f"a key is a text: {error}") from None


def _check_events(events: Iterator[Any]) -> None:
    """Refuses anchors, aliases, tags, and what is nested too deep, before anything is made."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            raise _Unreadable("anchors and aliases are no part of a saved graph")
        if getattr(event, "tag", None) is not None:
            raise _Unreadable(f"the tag {event.tag!r} is no part of a saved graph")
        depth += kind.endswith(("SequenceStartEvent", "MappingStartEvent"))
        depth -= kind.endswith(("SequenceEndEvent", "MappingEndEvent"))
        if depth > _MAX_DEPTH:
            raise _Unreadable(f"it is nested more than {_MAX_DEPTH} deep")


def _check_size(data: Any) -> None:
    """Refuses what is nested too deep, and more calls and operators than a text may have."""
    level, forms, depth = [data], 0, 0
    while level:
        depth += 1
        forms += sum(isinstance(value, dict) and _form(value) is not None for value in level)
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if depth > _MAX_DEPTH:
            raise _Unreadable(f"it is nested more than {_MAX_DEPTH} deep")
    if forms > MAX_NODES:
        raise _Unreadable(f"it has {forms} calls and operators, and at most {MAX_NODES} may be")


def _value(value: Any, where: str) -> Any:
    """What a checked value of a file stands for."""
    if isinstance(value, list):
        return tuple(_value(item, f"{where}.{n}") for n, item in enumerate(value))
    if isinstance(value, _Number):
        return float(value.number)
    if isinstance(value, _Call):
        here = f"{where}.{value.call[:40]}"
        parts = [_value(part, f"{here}.{n}") for n, part in enumerate(value.parts)]
        options = {name: _value(given, f"{here}.{name}") for name, given in value.options.items()}
        try:
            return made(maker(value.call), parts, options)
        except Unnamed as error:
            raise _Unreadable(f"{here}: {error}") from None
    if isinstance(value, _Part):
        ((form, given),) = value
        parts = list(_value(given, f"{where}.{form}"))
        try:
            return reduce(_OPERATORS[form], parts)
        except TypeError as error:
            raise _Unreadable(f"{where}.{form}: {error}") from None
    return value


def _place(steps: Sequence[int | str]) -> str:
    return ".".join(str(step) for step in steps if step not in ("list", "plain"))
