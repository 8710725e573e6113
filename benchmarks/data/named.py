"""Registered tasks, and how a task is named.

    gsm8k               a registered data set
    gsm8k[300:700]      the problems from place 300 to 699
    rg:gcd@0-3          a generator of Reasoning Gym, on levels 0 to 3
    svamp:svamp.csv     a file that has a recorded schema
    problems.jsonl      a file of problems, each with `question` and `answer`
    svamp:hf://datasets/OWNER/NAME@REVISION/FILE        a file of a hub, with or without a schema

Others add theirs by the entry point `ttc.tasks`: a function of an `Asking` that gives a `Task`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from random import Random
from typing import Any

from ttc.benchmarks.data.choices import shuffled
from ttc.benchmarks.data.code import human_eval_asked
from ttc.benchmarks.data.generated import generated
from ttc.benchmarks.data.prompts import BOXED, Prompt, Shot, Style
from ttc.benchmarks.data.rows import SUFFIXES, read_rows
from ttc.benchmarks.data.schemas import SCHEMAS, Row, Schema, digest_of
from ttc.benchmarks.data.sources import Found, HubFile, Source, fetched, locate
from ttc.benchmarks.files import read_task
from ttc.benchmarks.game24 import game24
from ttc.benchmarks.hidden_tests import HiddenTests
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.tasks import ExactAnswer, Grader, Item, Reference, Task, chain_sum
from ttc.config import settings
from ttc.errors import RecordError
from ttc.journal import derive_seed
from ttc.sandbox.forms import Asserts
from ttc.types import Problem

__all__ = ["NAMES", "Asking", "DataSet", "task_named"]

_SPEC = re.compile(r"(?P<name>.+?)(?:\[(?P<first>\d*):(?P<last>\d*)\])?")
_FOLDERS = re.compile(r"[^:\[]*/")
"""What a name leaves out: it is to be the same on every machine."""
_SIZE = 24
"""How many problems a generated task has by default."""
_HUB = re.compile(r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?/(?P<path>.+)")


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How problems are chosen and asked."""

    limit: int | None = None
    """At most so many problems, from the first on."""
    seed: int = 0
    """Seeds generators, the order of options, and the shuffle."""
    shuffle: bool = False
    """Whether problems are put into an order of the seed's before any is left out."""
    folders: tuple[Path, ...] = ()
    """Where data sets are looked for."""
    style: Style = "chat"
    instruction: str | None = None
    """Stands behind every question, in the place of the task's own."""
    shots: int = 0
    """Examples: the last so many problems that have solutions, which are then not asked."""

    def prompt(self, instruction: str, shots: Sequence[Shot] = ()) -> Prompt:
        """How a task's questions are put."""
        told = instruction if self.instruction is None else self.instruction
        return Prompt(instruction=told, shots=tuple(shots), style=self.style)


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A registered data set."""

    schema: str
    source: Source
    digest: str | None = None
    """Of its rows, where ttc has run on them; other rows under its name are refused."""


DATA_SETS: Mapping[str, DataSet] = {
    "gsm8k": DataSet(
        schema="gsm8k",
        source=Source(
            name="gsm8k_test.jsonl",
            hub=HubFile("openai/gsm8k", "main/test-00000-of-00001.parquet"),
        ),
        digest="391adbc6ba398f7ff487282dc1d0ca00",
    ),
    "math500": DataSet(
        schema="math",
        source=Source(name="math500.jsonl", hub=HubFile("HuggingFaceH4/MATH-500", "test.jsonl")),
        digest="3cb70e162c3183f3641b60bd260c6705",
    ),
}
GAME24 = Source(name="game24.csv")
_PUZZLES = "863412e1c9d537f8086ef40b7ad4d258"
"""The digest of its puzzles."""


def task_named(spec: str, asking: Asking = Asking()) -> Task:
    """The task that is meant.

    Args:
        spec: its name, with a range of places behind it if it is to be a part.
        asking: how its problems are chosen and asked.

    Raises:
        RecordError: there is no such task, its file holds no problems or others than were recorded.
        ModuleNotFoundError: what it needs is not installed; the message names the extra.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise RecordError("a task has a name; " + _known())
    first = int(match["first"] or 0)
    last = int(match["last"]) if match["last"] else None
    made_here, most = _is_generated(match["name"]), last
    if asking.shuffle and not made_here:
        most = None  # all of them are shuffled before any is left out
    elif last is None and asking.limit is not None:
        most = first + asking.limit
    folders = (*asking.folders, settings().home.value / "data")
    task = _found(match["name"], replace(asking, folders=folders, limit=most or None))
    items = list(task.items)
    if asking.shuffle and not made_here:
        Random(derive_seed(asking.seed, "shuffle", 0)).shuffle(items)
    items = items[first:last][: asking.limit]
    if not items:
        more = "; name an end to have more generated" if made_here and last is None else ""
        raise RecordError(f"{spec} has no problems: there are {len(task.items)} in all{more}")
    return replace(task, items=tuple(items), name=_FOLDERS.sub("", spec))


def _is_generated(name: str) -> bool:
    """Whether its problems come in an order of the seed's, and only as many as are asked for."""
    return name == "chain_sum" or name.startswith("rg:")


def _found(name: str, asking: Asking) -> Task:
    if name in DATA_SETS:
        return _data_set(name, asking)
    if name in _MADE:
        return _MADE[name](asking)
    if name.startswith("rg:"):
        _check_own(name, asking, "generated problems have")
        return generated(name[3:], asking.limit or _SIZE, asking.seed, asking.prompt(BOXED))
    schema, separator, file = name.partition(":")
    if separator and schema in SCHEMAS:
        path, told = _placed(file)
        rows = SCHEMAS[schema].rows(read_rows(path), path.name)
        return _asked(file, rows, SCHEMAS[schema], asking, (told, digest_of(rows)))
    if name.endswith(SUFFIXES):
        if separator and "/" not in schema and schema != "hf" and not Path(name).is_file():
            raise RecordError(f"{schema!r} is no schema, and {name} no file; {_known()}")
        return _file(*_placed(name), asking)
    for entry in entry_points(group="ttc.tasks", name=name):
        return _checked(entry.load()(asking), name)
    raise RecordError(f"{name!r} is no file, and none of the tasks; {_hint(name)}{_known()}")


def _placed(name: str) -> Found:
    """A file that is named by its place: in a folder, or on a hub."""
    match = _HUB.fullmatch(name)
    if match is not None:
        return fetched(HubFile(match["repo"], match["path"], match["revision"] or "main"))
    if name.startswith("hf:"):
        raise RecordError(f"{name} is written as hf://datasets/OWNER/NAME@REVISION/FILE")
    return Found(Path(name), f"the file {Path(name).name}")


def _check_own(name: str, asking: Asking, told: str) -> None:
    """That no examples are asked of a task that has none."""
    if asking.shots:
        raise RecordError(f"{name}: {told} no solutions to show; leave out --shots")


def _hint(name: str) -> str:
    """What may have been meant."""
    plain, bracket, _ = name.partition("[")
    close = get_close_matches(plain, NAMES, n=1)
    if bracket and plain in NAMES:
        return f"a part is written as {plain}[300:700]; "
    return f"did you mean {close[0]}? " if close else ""


def _known() -> str:
    return (
        f"there is {', '.join(NAMES)}, rg:GENERATOR, a file of problems, or SCHEMA:FILE with one "
        f"of {', '.join(SCHEMAS)}"
    )


def _checked(made: Any, name: str) -> Task:
    if not isinstance(made, Task):
        raise RecordError(f"the entry point {name} of ttc.tasks gave {made!r}, which is no task")
    return made


def _data_set(name: str, asking: Asking) -> Task:
    known = DATA_SETS[name]
    path, told = locate(known.source, asking.folders)
    schema = SCHEMAS[known.schema]
    rows = schema.rows(read_rows(path), path.name)
    digest = digest_of(rows)
    if known.digest is not None and digest != known.digest:
        raise RecordError(
            f"{path} is not the {name} that ttc knows: its problems have the digest {digest}, and "
            f"{known.digest} is expected; get the right file, or name it as {known.schema}:{path}"
        )
    return _asked(name, rows, schema, asking, (told, digest))


def _file(path: Path, told: str, asking: Asking) -> Task:
    """A file without a recorded schema: what the usual names of columns say."""
    if path.suffix in (".csv", ".parquet"):
        schema = Schema(text=True, instruction="")
        rows = schema.rows(read_rows(path), path.name)
        return _asked(path.stem, rows, schema, asking, (told, digest_of(rows)))
    task = read_task(path)
    items = tuple(_put(item, asking) for item in task.items)
    return _task(path.stem, items, MathEqual(text=True), (told, task.digest))


def _put(item: Item, asking: Asking) -> Item:
    """A problem of a file as it stands, unless something is to be asked of it."""
    problem = item.problem
    if asking.shots:
        raise RecordError("a file without a schema has no solutions; leave out --shots")
    if asking.instruction is None and asking.style == "chat":
        return item
    if len(problem.messages) != 1:
        raise RecordError("a file that holds conversations or prompts asks them as they are")
    asked = asking.prompt("").asked(problem.messages[0].content)
    return Item(Problem(id=problem.id, metadata=problem.metadata, **asked), item.reference)


def _asked(
    name: str, rows: list[Row], schema: Schema, asking: Asking, source: tuple[str, str]
) -> Task:
    examples = _examples(rows, asking.shots, name)
    rows = [row for row in rows if row not in examples]
    shots = [Shot(row.question, _worked(row)) for row in examples]
    prompt = asking.prompt(schema.instruction, shots)
    grader: Grader = MathEqual(text=schema.text)
    if schema.tests:
        grader = HiddenTests()
    elif schema.options:
        grader = ExactAnswer(text=True)
    items = tuple(_item(row, schema, prompt, asking.seed) for row in rows)
    return _task(name, items, grader, source)


def _task(name: str, items: tuple[Item, ...], grader: Grader, source: tuple[str, str]) -> Task:
    """A task of rows that have a place and a digest."""
    told, digest = source
    return Task(
        name=name, items=items, grader=grader, source=f"{told}, digest {digest}", rows=digest
    )


def _examples(rows: list[Row], count: int, name: str) -> list[Row]:
    if not count:
        return []
    solved = [row for row in rows if row.solution]
    if len(solved) < count:
        raise RecordError(f"{name} has {len(solved)} solutions for {count} examples")
    return solved[-count:]


def _worked(row: Row) -> str:
    if "\\boxed" in row.solution:
        return row.solution
    return f"{row.solution}\nThe final answer is \\boxed{{{row.answer}}}."


def _item(row: Row, schema: Schema, prompt: Prompt, seed: int) -> Item:
    question, answer, format = row.question, row.answer, schema.format
    if row.options:
        options = shuffled(row.options, answer, seed=seed, id=row.id)
        question, answer = f"{question}\n{options.text}", options.letter
    metadata = {} if row.level is None else {"level": row.level}
    reference = Reference(answer=answer)
    shown: tuple[str, ...] = ()
    if row.tests:  # the first shows what is asked for; the others grade
        shown, hidden = row.tests[:1], row.tests[1:] or row.tests
        question = f"{question}\nThe program has to pass: {shown[0]}"
        reference = Reference(tests=Asserts(asserts=hidden, setup=row.setup))
    problem = Problem(
        id=row.id, answer_format=format, metadata=metadata, tests=shown, **prompt.asked(question)
    )
    return Item(problem, reference)


def _game24(asking: Asking) -> Task:
    path, told = locate(GAME24, asking.folders)
    task = game24(path)
    _check_own("game24", asking, "its puzzles have")
    digest = digest_of(Row(id="", question=r.answer, answer="") for _, r in task.items)
    if digest != _PUZZLES:
        raise RecordError(
            f"{path} is not the game24 that ttc knows: its puzzles have the digest {digest}, and "
            f"{_PUZZLES} is expected; get the right file"
        )
    return replace(task, items=tuple(_put(i, asking) for i in task.items), source=told)


def _human_eval(asking: Asking) -> Task:
    _check_own("human_eval", asking, "its prompts show examples, and there are")
    if asking.instruction is not None:
        raise RecordError("human_eval asks in its own words; leave out --instruction")
    return human_eval_asked(asking.style)


def _chain_sum(asking: Asking) -> Task:
    task = chain_sum(asking.limit or _SIZE, asking.seed)
    _check_own("chain_sum", asking, "generated problems have")
    source = f"Reasoning Gym's chain_sum of two one-digit numbers, seed {asking.seed}"
    return replace(task, items=tuple(_put(i, asking) for i in task.items), source=source)


_MADE: Mapping[str, Callable[[Asking], Task]] = {
    "chain_sum": _chain_sum,
    "game24": _game24,
    "human_eval": _human_eval,
}
NAMES = tuple(sorted([*DATA_SETS, *_MADE]))
"""Registered tasks."""
