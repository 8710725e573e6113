"""Constraints: what a generated text has to be, from its first letter to its last.

An engine with the capability `grammar` draws only tokens after which such a text can still come,
and lets the text end only where it is one. A call that its length cuts is truncated, and nothing
completes it. What can be told without an engine is checked here: a constraint that is too large,
that holds what no engine enforces, or that nothing satisfies is refused when it is made.

Differs: a JSON schema's keywords that engines do not enforce are refused by name, also those that
JSON Schema would ignore. White space is bounded, and so are the digits of a number; properties come
in the order of the schema. What a schema leaves unbounded itself, such as a string, only
`max_tokens` ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ttc.call_grammars import call_grammar
from ttc.schemas import check_schema, expanded_size

__all__ = [
    "Calls",
    "Choice",
    "Constraint",
    "Pattern",
    "Schema",
    "constraint_of",
    "constraint_values",
]

_MAX_CHARACTERS = 64_000
_MAX_OPTIONS = 1_000
_MAX_PATTERN = 4_000
_MAX_EXPANDED = 10_000


@dataclass(frozen=True, init=False)
class Choice:
    """One of some texts."""

    options: tuple[str, ...]

    def __init__(self, *options: str) -> None:
        """A choice.

        Raises:
            ValueError: there is no option, an empty one, one twice, or too many.
        """
        if not options or not all(options) or {type(option) for option in options} != {str}:
            raise ValueError(f"a choice has options, which are texts and not empty, not {options}")
        if len(set(options)) < len(options):
            raise ValueError(f"a choice has each option once, not {options}")
        if len(options) > _MAX_OPTIONS or sum(map(len, options)) > _MAX_CHARACTERS:
            raise ValueError(
                f"a choice has at most {_MAX_OPTIONS} options of {_MAX_CHARACTERS} characters in "
                f"all, not {len(options)} of {sum(map(len, options))}"
            )
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class Pattern:
    """A text that a regular expression matches as a whole, in the language of Rust's `regex`.

    That has no look-around and no references back. It is Python's, less these.
    """

    regex: str

    def __post_init__(self) -> None:
        if type(self.regex) is not str or not self.regex:
            raise ValueError(f"a pattern is a text and not empty, not {self.regex!r}")
        if len(self.regex) > _MAX_PATTERN:
            raise ValueError(
                f"a pattern has at most {_MAX_PATTERN} characters, not {len(self.regex)}"
            )
        _check_size(self.regex)


@dataclass(frozen=True, init=False)
class Schema:
    """One JSON value that a schema of draft 2020-12 allows."""

    schema: str
    """The schema, as JSON; a mapping is written out."""

    def __init__(self, schema: str | Mapping[str, Any]) -> None:
        """A schema.

        Raises:
            ValueError: it is no JSON, too large, contradicts itself, or holds a keyword that is not
                enforced.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if len(text) > _MAX_CHARACTERS:
            raise ValueError(f"a schema has at most {_MAX_CHARACTERS} characters, not {len(text)}")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the schema is no JSON: {error}") from None
        for pattern in check_schema(content):
            _check_size(pattern)
        object.__setattr__(self, "schema", json.dumps(content))


@dataclass(frozen=True, init=False)
class Calls:
    """An assistant's turn: words, or calls of tools whose arguments their schemas allow."""

    form: str
    """How the model writes calls; see `ttc.tool_calls.Form`."""
    tools: str
    """The schemas of the tools' arguments by name, as JSON; a mapping is written out."""
    is_thinking: bool
    """Whether the turn begins within a thought, which its prompt has opened."""
    may_call: bool
    """Whether it may call something; else it is words that could be no call."""

    def __init__(
        self,
        form: str,
        tools: str | Mapping[str, Mapping[str, Any]],
        is_thinking: bool = False,
        may_call: bool = True,
    ) -> None:
        """Such a turn.

        Raises:
            ValueError: there is no tool, or a schema is none, or the form cannot be held to it.
        """
        given = json.loads(tools) if isinstance(tools, str) else tools
        if not given:
            raise ValueError("there is no tool to call")
        known = {}
        for name, schema in given.items():
            try:
                known[name] = json.loads(Schema(schema).schema)
            except ValueError as error:
                raise ValueError(f"the schema of {name} is none: {error}") from None
        call_grammar(form, known, {})  # says what it cannot hold to
        object.__setattr__(self, "form", form)
        object.__setattr__(self, "tools", json.dumps(known))
        object.__setattr__(self, "is_thinking", is_thinking)
        object.__setattr__(self, "may_call", may_call)

    def grammar(self, control: Mapping[str, int]) -> str:
        """The grammar of the turn, for a vocabulary with such control tokens."""
        known = json.loads(self.tools)
        more = {"is_thinking": self.is_thinking, "may_call": self.may_call}
        return call_grammar(self.form, known, control, **more)


Constraint = Calls | Choice | Pattern | Schema
"""What a text has to be."""


def _check_size(regex: str) -> None:
    size = expanded_size(regex)
    if size > _MAX_EXPANDED:
        raise ValueError(
            f"the pattern {regex[:60]!r} repeats {size} characters when it is written out, and "
            f"{_MAX_EXPANDED} are allowed; repeat less"
        )


def constraint_values(constraint: Constraint | None) -> dict[str, Any] | None:
    """A constraint as JSON."""
    if constraint is None:
        return None
    if isinstance(constraint, Calls):
        return {"calls": dict(vars(constraint))}
    (value,) = vars(constraint).values()
    return {type(constraint).__name__.lower(): value}


def constraint_of(values: Mapping[str, Any] | None) -> Constraint | None:
    """The constraint that such values describe.

    Raises:
        ValueError: they describe none.
    """
    if values is None:
        return None
    match list(values.items()):
        case [("choice", [*options])]:
            return Choice(*options)
        case [("pattern", str(regex))]:
            return Pattern(regex)
        case [("schema", str(schema))]:
            return Schema(schema)
        case [
            (
                "calls",
                {"form": str(), "tools": str(), "is_thinking": bool(), "may_call": bool()} as turn,
            )
        ]:
            return Calls(**turn)
    raise ValueError(f"{values} is no constraint; one is a choice, a pattern, a schema or calls")
