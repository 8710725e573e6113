"""Schemas: which column of a data set is what, recorded by name.

A row that lacks a column is an error that names it. The digest of a data set is over what is asked
and what is right, so it is the same whichever kind of file brings the rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ttc.benchmarks.data.prompts import BOXED, LETTER, PROGRAM
from ttc.benchmarks.data.rows import Values
from ttc.benchmarks.files import stated
from ttc.errors import RecordError
from ttc.types import AnswerFormat

__all__ = ["SCHEMAS", "Row", "Schema", "digest_of"]

_WORKINGS = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One problem of a data set, before it is asked."""

    id: str
    question: str
    answer: str
    """The right answer; of a problem with options the text of the right one."""
    solution: str = ""
    """How the answer is found; empty where the data set does not tell."""
    options: tuple[str, ...] = ()
    level: str | None = None
    """How hard it is, as the data set says."""
    tests: tuple[str, ...] = ()
    """Statements that a program has to pass."""
    setup: str = ""
    """Code that runs before them."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Which column is what."""

    question: tuple[str, ...] = ("question",)
    """What is asked: these columns, one after another."""
    answer: str = "answer"
    after: str = ""
    """The answer stands behind the last of these marks; what is before them is its solution."""
    id: str | None = None
    """The place in the file where there is none."""
    solution: str | None = None
    options: str | None = None
    """A list of texts, or an object with a list called `text`."""
    level: str | None = None
    tests: str | None = None
    setup: str | None = None
    format: AnswerFormat = "auto"
    text: bool = False
    """Whether an answer may be a text rather than mathematics."""
    instruction: str = BOXED
    """What is said behind every question."""

    def rows(self, found: Sequence[Values], source: str) -> list[Row]:
        """The rows of a file.

        Raises:
            RecordError: one lacks a column, or its answer is none of its options.
        """
        return [self._row(values, place, source) for place, values in enumerate(found)]

    def _row(self, values: Values, place: int, source: str) -> Row:
        def column(name: str | None) -> Any:
            if name is None:
                return ""
            if name not in values:
                raise RecordError(
                    f"{source}: row {place + 1} has no column {name!r}; it has "
                    f"{', '.join(map(str, values))}"
                )
            return values[name]

        where = f"{source}: row {place + 1}"
        told = stated(column(self.answer), where) if self.tests is None else ""
        solution, _, answer = told.rpartition(self.after) if self.after else ("", "", told)
        options = _texts(column(self.options), self.options, where) if self.options else ()
        if options:
            answer = _right_option(answer.strip(), options, values, where)
        tests = _texts(column(self.tests), self.tests, where) if self.tests else ()
        return Row(
            id=str(column(self.id) if self.id else place),
            question="\n".join(str(column(name)).strip() for name in self.question),
            answer=answer.strip(),
            solution=_WORKINGS.sub("", str(column(self.solution) or solution)).strip(),
            options=options,
            level=str(column(self.level)) if self.level else None,
            tests=tests,
            setup=str(column(self.setup) or ""),
        )


def digest_of(rows: Iterable[Row]) -> str:
    """A hash of what is asked and what is right."""
    hashed = hashlib.blake2b(digest_size=16)
    for row in rows:
        hashed.update(json.dumps([row.question, row.answer, row.options, row.tests]).encode())
    return hashed.hexdigest()


def _texts(value: Any, column: str, where: str) -> tuple[str, ...]:
    """The texts of a column: a list, its JSON, or an object with a list called `text`."""
    found = value
    if isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            found = None
    if isinstance(found, Mapping):
        found = found.get("text")
    if not isinstance(found, list | tuple) or not found:
        raise RecordError(f"{where}: the column {column!r} holds no list of texts, but {value!r}")
    return tuple(map(str, found))


def _right_option(answer: str, options: Sequence[str], values: Values, where: str) -> str:
    """The text of the right option, which is told by its text, its letter or its number."""
    if answer in options:
        return answer
    choices = values.get("choices")
    labels = list(choices.get("label", ())) if isinstance(choices, Mapping) else []
    letters = labels or [chr(ord("A") + place) for place in range(len(options))]
    if answer in letters:
        return options[letters.index(answer)]
    if answer.isdigit() and int(answer) < len(options):
        return options[int(answer)]
    raise RecordError(f"{where}: the answer {answer!r} is none of its {len(options)} options")


SCHEMAS: Mapping[str, Schema] = {
    "aime": Schema(question=("problem",), answer="answer", id="id", solution="solution"),
    "amc": Schema(question=("problem",), answer="answer", id="id"),
    "arc": Schema(
        answer="answerKey", id="id", options="choices", format="choice", instruction=LETTER
    ),
    "gsm8k": Schema(after="####"),
    "math": Schema(
        question=("problem",), id="unique_id", solution="solution", level="level", text=True
    ),
    "mbpp": Schema(
        question=("text",),
        id="task_id",
        tests="test_list",
        setup="test_setup_code",
        format="code",
        instruction=PROGRAM,
    ),
    "svamp": Schema(question=("Body", "Question"), answer="Answer", id="ID"),
}
"""Schemas by name; `NAME:FILE` is the task of a file that has one."""
