"""The text of a budget, `tokens=4000,seconds=30`, and what a budget that holds no call lacks."""

from __future__ import annotations

import math
from dataclasses import fields

from ttc.cli.terminal import Fault, one_line
from ttc.graph import Node
from ttc.ports import Engine
from ttc.types import Budget, Outcome, Tail

__all__ = ["parse_budget", "shortage"]

_NAMES = tuple(f.name for f in fields(Budget))
_FIRST_CALL = 16  # the most output tokens that a problem's first call insists on


def parse_budget(text: str) -> Budget:
    """The budget that a text names.

    Raises:
        Fault: a name is unknown or comes twice, or a limit is no number of at least 0.
    """
    limits: dict[str, int | float] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or name not in _NAMES:
            wrong = f"{_quoted(name)} is no limit" if separator else f"{_quoted(part)} has no ="
            raise Fault(f"--budget: {wrong}; write tokens=4000,seconds=30, of {', '.join(_NAMES)}")
        if name in limits:
            raise Fault(f"--budget: {name} comes twice; leave one of them out")
        limits[name] = _limit(name, value)
    return Budget(**limits)  # type: ignore[arg-type]  # whole numbers but for the seconds


def _limit(name: str, value: str) -> int | float:
    kind = "number" if name == "seconds" else "whole number"
    try:
        limit = float(value) if name == "seconds" else int(value)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise Fault(f"--budget: {name} is a {kind} of at least 0, not {_quoted(value)}")
    return limit


def _quoted(text: str) -> str:
    return repr(one_line(text, 40))


def shortage(outcome: Outcome, graph: Node, engine: Engine, budget: Budget) -> str | None:
    """What a budget lacked, where a limit refused every call; `None` where calls were made."""
    resource = outcome.stopped_by
    if outcome.usage.calls or resource not in _NAMES:
        return None
    limit = getattr(budget, resource)
    if resource == "seconds":
        return f"seconds: no call could start within {limit:g} s; raise the budget's seconds"
    if resource != "tokens":
        return (
            f"{resource}: the first call needs 1 and the budget holds {limit}; raise its {resource}"
        )
    prompt, output = _first_call(outcome, graph, engine)
    if prompt + output > limit:
        then = f"the budget holds {limit}; raise it to --budget tokens={prompt + output}"
    else:
        then = f"its part of the budget of {limit} is less; raise the budget's tokens"
    return (
        f"tokens: the first call needs at least {prompt + output}, {prompt} of them for the "
        f"prompt, and {then}"
    )


def _first_call(outcome: Outcome, graph: Node, engine: Engine) -> tuple[int, int]:
    """The tokens of the prompt, and the fewest of output, that the first refused call needs."""
    refused = {record.path for record in outcome.trace if "refused" in record.detail}
    node = next((placed.node for placed in graph.walk() if placed.path in refused), None)
    prompt = engine.root(outcome.problem, getattr(node, "role", "policy"))
    most = getattr(node, "max_tokens", 1)
    least = getattr(node, "at_least", None) or min((most + 1) // 2, _FIRST_CALL)
    tail = getattr(node, "tail", None)
    extra = 0
    if isinstance(tail, Tail):
        cue = engine.append(prompt, tail.cue).num_tokens - prompt.num_tokens
        extra = cue + tail.max_tokens
    return prompt.num_tokens, min(least, most) + extra
