"""A file of problems as a task.

A file holds one JSON object on each line. A problem's text
is its `question`, `problem` or `prompt`, or its `messages`; its right answer, where there is one,
is its `answer` or `gold`, after the last `####` where a solution comes before it. Its id is `id` or
`unique_id`, or its place in the file.

An answer is a text or a number. `null` is none, and so is the `NaN` of tables with gaps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.errors import RecordError
from ttc.lines import read_lines
from ttc.types import Message, Problem

__all__ = ["json_objects", "read_task", "stated"]

_QUESTIONS = ("question", "problem")
_ANSWERS = ("answer", "gold")


def read_task(path: Path) -> Task:
    """The task in a file. A problem without a right answer is never graded.

    Raises:
        RecordError: it cannot be read, or a line holds no problem.
    """
    try:
        items = [_item(row, number, path) for number, row in json_objects(path)]
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    if not items:
        raise RecordError(f"{path} holds no problems")
    try:
        return Task(name=path.stem, items=tuple(items), grader=ExactAnswer(text=True))
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from None


def stated(answer: Any, where: str) -> str:
    """A right answer as a file tells it; empty where it tells none.

    Raises:
        RecordError: it is neither a text nor a number.
    """
    if answer is None or answer != answer:  # NaN alone differs from itself
        return ""
    if not isinstance(answer, str | int | float | Decimal):
        raise RecordError(f"{where}: an answer is a text or a number, not {answer!r}")
    return str(answer)


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file, one on each line that is not blank, with the lines' numbers.

    Raises:
        OSError: it cannot be read.
        RecordError: a line holds no object.
    """
    lines, rest = read_lines(path)
    for number, line in enumerate([*lines, rest], 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RecordError(
                f"{path}: line {number} is no JSON: {error}; each line holds one object"
            ) from None
        if not isinstance(row, dict):
            raise RecordError(f"{path}: line {number} is no JSON object; each line holds one")
        yield number, row


def _item(row: dict[str, Any], number: int, path: Path) -> Item:
    id_ = str(row.get("id", row.get("unique_id", number - 1)))
    question = next((row[name] for name in _QUESTIONS if name in row), None)
    answer = next((row[name] for name in _ANSWERS if name in row), "")
    try:
        if question is not None:
            problem = Problem.ask(question, id=id_)
        elif "messages" in row:
            turns = tuple(Message(role=m["role"], content=m["content"]) for m in row["messages"])
            problem = Problem(id=id_, messages=turns)
        else:
            problem = Problem(id=id_, prompt=row["prompt"])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(
            f"{path}: line {number} holds no problem ({error}); give it a question, messages or a "
            "prompt"
        ) from None
    told = stated(answer, f"{path}: line {number}")
    return Item(problem, Reference(answer=told.rpartition("####")[2].strip()))
