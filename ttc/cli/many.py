"""Many questions out of a file, each with its own budget or under one allocator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttc.cli.outcomes import as_json
from ttc.cli.terminal import Fault, counted, say, show, table
from ttc.safe_text import one_line
from ttc.solve import solve_many
from ttc.strict_json import pretty
from ttc.types import AnswerFormat, Budget, Outcome, Problem

__all__ = ["read_problems", "show_outcomes", "solve_problems"]

_MOST_OF_ONE = 4
"""How many times its part of the budget one problem may spend under an allocator."""
_WIDTH = 40


def read_problems(path: Path, answer_format: AnswerFormat) -> list[Problem]:
    """The problems of a file: a question on each line, or JSON lines.

    A JSON line has a `question`, and may have an `id`, and `tests` and `metadata` as a
    `ttc.Problem` has them.

    Raises:
        Fault: the file cannot be read, holds no question, or a line is no problem.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Fault(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Fault(f"{path} is no text in UTF-8: {error}") from None
    is_json = path.suffix in (".jsonl", ".json")
    problems = [
        _problem(line, f"{path}, line {place}", str(place), is_json, answer_format)
        for place, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not problems:
        raise Fault(f"{path} holds no question")
    if len({problem.id for problem in problems}) < len(problems):
        raise Fault(f"{path} gives one id to several problems; give each its own")
    return problems


def _problem(
    line: str, place: str, number: str, is_json: bool, answer_format: AnswerFormat
) -> Problem:
    if not is_json:
        return Problem.ask(line.strip(), id=number, answer_format=answer_format)
    try:
        row = json.loads(line)
    except ValueError as error:
        raise Fault(f"{place} is no JSON: {error}") from None
    question = row.get("question") if isinstance(row, dict) else None
    if not isinstance(question, str) or not question.strip():
        raise Fault(f'{place} is no problem; write {{"id": "1", "question": "What is 2 + 2?"}}')
    tests, metadata = row.get("tests", []), row.get("metadata", {})
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise Fault(f"{place}: tests are a list of texts, not {one_line(repr(tests), _WIDTH)}")
    if not isinstance(metadata, dict):
        raise Fault(f"{place}: metadata is an object, not {one_line(repr(metadata), _WIDTH)}")
    asked = Problem.ask(question, id=str(row.get("id", number)), answer_format=answer_format)
    return replace(asked, tests=tuple(tests), metadata=metadata)


def solve_problems(
    problems: list[Problem], graph: Any, limits: Budget, *, allocator: str | None, **arguments: Any
) -> list[Outcome]:
    """Solves problems; `limits` are those of one, which an allocator may give to another.

    With an allocator the run holds as many tokens and calls as all problems together, and one may
    spend at most four times its part. All other limits stay those of one.
    """
    if allocator is None:
        return solve_many(problems, graph, per_problem=limits, **arguments)
    if limits.tokens is None:
        raise Fault("--allocator gives tokens away; name a limit of them, as --budget tokens=4000")
    count, most = len(problems), _MOST_OF_ONE
    calls = limits.calls
    run = Budget(
        tokens=limits.tokens * count,
        calls=None if calls is None else calls * count,
        seconds=limits.seconds,
    )
    one = replace(
        limits,
        tokens=limits.tokens * most,
        calls=None if calls is None else calls * most,
        seconds=None,
    )
    try:
        return solve_many(
            problems, graph, budget=run, per_problem=one, allocator=allocator, **arguments
        )
    except ValueError as error:
        raise Fault(f"--allocator: {error}") from None


def show_outcomes(outcomes: list[Outcome], *, is_json: bool) -> None:
    """Writes a table, or a JSON array with an object for each problem."""
    if is_json:
        whole = [{"id": o.problem.id, **json.loads(as_json(o))} for o in outcomes]
        say(pretty(whole))
        return
    rows = [
        (
            outcome.problem.id,
            "(none)" if outcome.answer is None else one_line(outcome.answer, _WIDTH),
            "" if outcome.confidence is None else f"{outcome.confidence:.2f}",
            f"{outcome.usage.tokens:,}",
            outcome.stopped_by,
        )
        for outcome in outcomes
    ]
    show(table(("problem", "answer", "confidence", "tokens", "stopped by"), rows, right="tokens"))
    tokens = sum(outcome.usage.tokens for outcome in outcomes)
    answered = sum(outcome.answer is not None for outcome in outcomes)
    say("")
    say(f"{answered} of {counted(len(outcomes), 'problem')} answered, {counted(tokens, 'token')}")
