"""Values as JSON, and back: what a journal keeps of problems, branches, scores and engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import date
from decimal import Decimal
from typing import Any

from ttc import errors
from ttc.constraints import Constraint
from ttc.costs import Costs
from ttc.errors import EngineError, RecordError
from ttc.ports import Capabilities, Engine
from ttc.prices import Price
from ttc.types import (
    Branch,
    Budget,
    Candidate,
    Chunk,
    Message,
    Problem,
    Score,
    ToolCall,
    Usage,
)

__all__ = [
    "Values",
    "branch_of",
    "budget_of",
    "candidate_values",
    "capabilities_of",
    "chunk_of",
    "chunk_values",
    "costs_of",
    "engine_values",
    "error_of",
    "error_values",
    "message_of",
    "message_values",
    "plain",
    "price_of",
    "price_values",
    "problem_of",
    "problem_values",
    "score_of",
    "score_values",
    "segment_values",
    "usage_of",
    "usage_values",
]

Values = dict[str, Any]
_NO_USAGE = vars(Usage())
_OF_THE_SCORE = ("verifier", "call")
_OF_THE_CALL = ("parent", "role", "call", "constraint")
"""Fields of a branch that the request tells, not its answer."""


def plain(values: Any) -> Any:
    """The values as JSON gives them back: tuples are lists, and keys are texts.

    Raises:
        RecordError: something among them is no JSON.
    """
    try:
        return json.loads(json.dumps(values))
    except (TypeError, ValueError) as error:
        raise RecordError(f"{error}; a journal keeps JSON values only") from None


def segment_values(segment: Branch) -> Values:
    """What an engine answered, without what had been asked."""
    values = {
        f.name: value
        for f in fields(segment)
        if f.name not in _OF_THE_CALL and (value := getattr(segment, f.name)) is not None
    }
    if segment.top_logprobs is not None:
        values["top_logprobs"] = [list(row) for row in segment.top_logprobs]  # rows may be arrays
    return values


def branch_of(
    values: Mapping[str, Any],
    parent: Branch | None,
    role: str,
    constraint: Constraint | None = None,
) -> Branch:
    """The branch that such values describe."""
    given = {name: _tuples(value) for name, value in values.items()}
    return Branch(**{"token_ids": None, **given}, parent=parent, role=role, constraint=constraint)


def chunk_values(chunk: Chunk) -> list[Any]:
    """A piece of a running call."""
    return [chunk.text, chunk.token_ids]


def chunk_of(values: list[Any]) -> Chunk:
    """The piece that such values describe."""
    return Chunk(text=values[0], token_ids=_tuples(values[1]))


def error_values(error: EngineError) -> Values:
    """Why a call failed."""
    return {
        "error": str(error),
        "kind": type(error).__name__,
        "retryable": error.retryable,
        "output_tokens": error.output_tokens,
    }


def error_of(values: Mapping[str, Any]) -> EngineError:
    """The error that such values describe."""
    kind = getattr(errors, values.get("kind", ""), EngineError)
    return kind(
        values["error"],
        retryable=values.get("retryable", False),
        output_tokens=values.get("output_tokens", 0),
    )


def score_values(score: Score) -> Values:
    """What a verifier said of a candidate; who said it is told by the call."""
    values = {name: value for name, value in vars(score).items() if name not in _OF_THE_SCORE}
    return values | {"evidence": dict(score.evidence)}


def score_of(values: Mapping[str, Any]) -> Score:
    """The score that such values describe."""
    return Score(**{**values, "range": _tuples(values["range"])})


def candidate_values(what: str, candidate: Candidate) -> Values:
    """What a selector did with a candidate, for those who look at the run."""
    return {
        what: candidate.branch.call,
        "answer": candidate.answer,
        "key": None if candidate.key is None else repr(candidate.key),
        "status": candidate.status,
        "scores": {name: score.value for name, score in candidate.scores.items()},
        "confidence": candidate.confidence,
    }


def usage_values(usage: Usage) -> Values:
    """The lines of a usage that something was booked on."""
    return {name: value for name, value in vars(usage).items() if value != _NO_USAGE[name]}


def usage_of(answer: Mapping[str, Any]) -> Usage:
    """What was measured of a call, by its answer."""
    return Usage(**answer.get("usage", {}))


def problem_values(problem: Problem) -> Values:
    """A problem; what it holds has to be JSON."""
    return plain(asdict(problem))  # type: ignore[no-any-return]


def problem_of(values: Mapping[str, Any]) -> Problem:
    """The problem that such values describe."""
    messages = tuple(map(message_of, values["messages"]))
    tools, tests = tuple(values["tools"]), tuple(values["tests"])
    return Problem(**{**values, "messages": messages, "tools": tools, "tests": tests})


def message_values(message: Message) -> Values:
    """One turn, without what it leaves at its default."""
    values = asdict(message)
    return {f.name: values[f.name] for f in fields(message) if values[f.name] != f.default}


def message_of(values: Mapping[str, Any]) -> Message:
    """The turn that such values describe."""
    calls = tuple(ToolCall(**call) for call in values.get("tool_calls", ()))
    return Message(**{**values, "tool_calls": calls})


def budget_of(values: Mapping[str, Any]) -> Budget:
    """The budget that such values describe."""
    return Budget(**values)


def engine_values(engine: Engine) -> Values:
    """What is told of an engine, so that a run can be replayed without it."""
    return {
        "name": engine.name,
        "numerics": engine.numerics,
        "context": engine.context,
        "capabilities": asdict(engine.capabilities),
        "labels": engine.labels,
        "costs": None if engine.costs is None else asdict(engine.costs),
    }


def capabilities_of(values: Mapping[str, Any]) -> Capabilities:
    """The capabilities that such values describe."""
    return Capabilities(**values)


def costs_of(values: Mapping[str, Any] | None) -> Costs | None:
    """What an engine's tokens cost, as such values describe it."""
    return None if values is None else Costs(**{k: _tuples(v) for k, v in values.items()})


def price_values(price: Price) -> Values:
    """A dated price."""
    return {name: None if value is None else str(value) for name, value in vars(price).items()}


def price_of(values: Mapping[str, Any]) -> Price:
    """The price that such values describe."""
    cached = values["cached_input"]
    return Price(
        model=values["model"],
        date=date.fromisoformat(values["date"]),
        input=Decimal(values["input"]),
        cached_input=None if cached is None else Decimal(cached),
        output=Decimal(values["output"]),
    )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
