"""A pool: completions of problems, one JSON object on each line, told apart by problem and index.

Every line stands for itself, and what it does not tell is unknown. A file may be cut at any byte
and be continued: half a line is dropped, and what it held is drawn again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ttc.errors import RecordError
from ttc.journal.values import message_of, message_values
from ttc.lines import Lines, read_lines
from ttc.strict_json import decode, encode
from ttc.types import Branch, FinishReason, Message, Problem, Sampling

__all__ = [
    "SCHEMA_VERSION",
    "Completion",
    "Pool",
    "PoolFile",
    "append",
    "merge",
    "read",
    "score",
    "write",
]

SCHEMA_VERSION = 1
FilePath = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One completion of a problem, as an engine gave it. `None` is unknown."""

    problem: str
    """The id of the problem."""
    index: int
    """Which of the problem's completions it is; each has a seed of its own."""
    messages: tuple[Message, ...] = ()
    """What was asked, where it was a conversation."""
    prompt: str | None = None
    """What was asked, where it was a raw text."""
    text: str = ""
    """What the model wrote; nothing of it where it failed."""
    prompt_ids: tuple[int, ...] | None = None
    """The tokens of the prompt."""
    token_ids: tuple[int, ...] | None = None
    """The tokens of the text, and of whatever ended it."""
    num_tokens: int | None = None
    """How many tokens were generated."""
    logprobs: tuple[float, ...] | None = None
    """(tokens,) The log probability of each token."""
    top_means: tuple[float, ...] | None = None
    """(tokens,) The mean of the greatest log probabilities at each token, at most 20 of them."""
    self_certainty: float | None = None
    """The mean over all tokens of the divergence of the uniform distribution from the model's."""
    finish_reason: FinishReason | None = None
    """`stop`, `length` where `max_tokens` cut it, or `error`."""
    error: str | None = None
    """Why it failed."""
    sampling: Sampling | None = None
    """How tokens were drawn."""
    max_tokens: int | None = None
    """The most tokens that it might have had."""
    until: tuple[str, ...] = ()
    """Strings that would have ended it."""
    seed: int | None = None
    """The seed of its call."""
    model: str | None = None
    """The model, as its user names it."""
    model_hash: str | None = None
    """What decides the bits of the completion: weights, types, kernels."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Scores by name; a column has a value, or `None`, for every completion of a pool."""

    def __post_init__(self) -> None:
        if bool(self.messages) == (self.prompt is not None):
            raise RecordError(f"{self.key} needs messages or a prompt, exactly one of them")
        if self.token_ids is not None and self.num_tokens not in (None, len(self.token_ids)):
            raise RecordError(
                f"{self.key} has {len(self.token_ids)} token ids and num_tokens={self.num_tokens}"
            )

    @property
    def key(self) -> str:
        """Its name: `problem#index`."""
        return f"{self.problem}#{self.index}"

    @property
    def length(self) -> int | None:
        """How many tokens were generated."""
        return self.num_tokens if self.token_ids is None else len(self.token_ids)

    @property
    def failed(self) -> bool:
        """Whether nothing came of it: then it is no sample, and is drawn again."""
        return self.finish_reason == "error"

    @classmethod
    def of(cls, problem: Problem, index: int, segment: Branch, **known: Any) -> Completion:
        """The completion of a problem that an engine gave."""
        root = segment.parent
        certainties = getattr(segment, "self_certainties", None)
        tops = getattr(segment, "top_logprobs", None)
        return cls(
            problem=problem.id,
            index=index,
            messages=problem.messages,
            prompt=problem.prompt,
            text=segment.text,
            prompt_ids=None if root is None else root.token_ids,
            token_ids=segment.token_ids,
            num_tokens=None if segment.token_ids is None else len(segment.token_ids),
            logprobs=segment.logprobs,
            top_means=None if tops is None else tuple(sum(top) / len(top) for top in tops),
            self_certainty=sum(certainties) / len(certainties) if certainties else None,
            finish_reason=segment.finish_reason or "stop",
            **known,
        )


class Pool:
    """Completions by problem, each problem's in order of their index."""

    def __init__(self, completions: Iterable[Completion] = ()) -> None:
        self._of: dict[str, dict[int, Completion]] = {}
        for completion in completions:
            self.add(completion)

    def add(self, completion: Completion) -> bool:
        """Takes a completion in; says whether it was new. One that failed gives way to another.

        Raises:
            RecordError: it contradicts one that is there.
        """
        mine = self._of.setdefault(completion.problem, {})
        other = mine.get(completion.index)
        if other is not None and not other.failed and completion.failed:
            return False
        if other is not None and not other.failed and other != completion:
            raise RecordError(
                f"two completions are called {completion.key}, and {_difference(other, completion)}"
            )
        first = next(iter(mine.values()), None)
        if first is not None and (first.messages, first.prompt) != (
            completion.messages,
            completion.prompt,
        ):
            raise RecordError(
                f"{completion.key} asks something else than {first.key}; a problem's completions "
                "answer one prompt"
            )
        mine[completion.index] = completion
        return other != completion

    def of(self, problem: str) -> tuple[Completion, ...]:
        """The completions of a problem, by index; those that failed are among them."""
        mine = self._of.get(problem, {})
        return tuple(mine[index] for index in sorted(mine))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Its problems, in the order of the file."""
        firsts = [next(iter(mine.values())) for mine in self._of.values()]
        return tuple(Problem(id=f.problem, messages=f.messages, prompt=f.prompt) for f in firsts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its scores, sorted."""
        return tuple(sorted({name for completion in self for name in completion.scores}))

    @property
    def num_failed(self) -> int:
        """Completions of which nothing came."""
        return sum(completion.failed for completion in self)

    def __iter__(self) -> Iterator[Completion]:
        return (completion for problem in self._of for completion in self.of(problem))

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))


class PoolFile:
    """A pool on disk that this process alone continues.

    What models wrote stands in the file alone, so memory does not grow with it.
    """

    pool: Pool
    """Its completions, without their texts and tokens."""

    def __init__(self, path: FilePath) -> None:
        """Opens a file, or makes one.

        Raises:
            RecordError: it is no pool, is in use, or cannot be written.
        """
        self.path = Path(path)
        try:
            self._lines = Lines(self.path, is_whole=_is_whole, keep_alive=True)
        except BlockingIOError:
            raise RecordError(f"{path} is in use by another process; wait for it") from None
        except OSError as error:
            raise RecordError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self.pool = Pool(map(_bare, Pool(_parsed(self._lines.lines, self.path))))
        except BaseException:
            self._lines.close()
            raise
        self._lines.lines.clear()

    def add(self, completion: Completion) -> None:
        """Writes a completion behind the others.

        Raises:
            RecordError: one of its name is there that has not failed, or it cannot be written.
        """
        if self.pool.add(_bare(completion)):
            try:
                self._lines.append(_line(completion))
            except OSError as error:
                raise RecordError(
                    f"{self.path} cannot be continued: {error.strerror}; nothing of it is lost"
                ) from error
        elif not completion.failed:
            raise RecordError(f"{self.path} holds a completion {completion.key} already")

    def __enter__(self) -> PoolFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()


def _bare(completion: Completion) -> Completion:
    """What it is and how it was drawn, without what was read and written."""
    told = {"prompt_ids": None, "token_ids": None, "logprobs": None, "top_means": None}
    return replace(completion, text="", num_tokens=completion.length, **told)  # type: ignore[arg-type]


def read(path: FilePath) -> Pool:
    """The pool in a file. Half a line at its end is left out.

    Raises:
        RecordError: it cannot be read, or is no pool.
    """
    try:
        lines, rest = read_lines(Path(path))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from error
    return Pool(_parsed([*lines, rest] if _is_whole(rest) else lines, Path(path)))


def write(path: FilePath, pool: Pool) -> None:
    """Writes a pool into a file, in one piece or not at all."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.writelines(_line(completion) + b"\n" for completion in pool)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise RecordError(f"{path} cannot be written: {error.strerror}") from error


def append(first: Pool, second: Pool) -> Pool:
    """Both pools; the second one's completions are counted on behind those of the first.

    Raises:
        RecordError: they answer different prompts under one id, or carry different scores.
    """
    _check_columns(first, second)
    whole = Pool(first)
    for problem in second.problems:
        there = first.of(problem.id)
        start = there[-1].index + 1 if there else 0
        for place, completion in enumerate(second.of(problem.id)):
            whole.add(replace(completion, index=start + place))
    return whole


def merge(first: Pool, second: Pool) -> Pool:
    """Both pools, each completion once.

    Raises:
        RecordError: two completions of one name differ, or they carry different scores.
    """
    _check_columns(first, second)
    return Pool([*first, *second])


def score(pool: Pool, name: str, scores: Mapping[tuple[str, int], float | None]) -> Pool:
    """The pool with one more column.

    Args:
        pool: the pool, which stays as it is.
        name: the column.
        scores: the score of each completion by problem and index; `None` is unknown.

    Raises:
        RecordError: there is such a column already, or a completion without a score.
    """
    if name in pool.columns:
        raise RecordError(
            f"the pool has a column {name!r} already, and scores are written once; choose another "
            "name"
        )
    missing = [c.key for c in pool if (c.problem, c.index) not in scores]
    if missing:
        raise RecordError(
            f"{len(missing)} completions have no score {name!r}, {missing[0]} among them; give "
            "null where it is unknown"
        )
    return Pool(replace(c, scores={**c.scores, name: scores[c.problem, c.index]}) for c in pool)


def _check_columns(first: Pool, second: Pool) -> None:
    if len(first) and len(second) and first.columns != second.columns:
        raise RecordError(
            f"the pools carry different scores, {_listed(first.columns)} and "
            f"{_listed(second.columns)}; score both alike first"
        )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _difference(first: Completion, second: Completion) -> str:
    name = next(f.name for f in fields(first) if getattr(first, f.name) != getattr(second, f.name))
    return f"their {name} differs; append one pool to the other, or take one of them out"


def _line(completion: Completion) -> bytes:
    values = {
        f.name: value
        for f in fields(completion)
        if (value := getattr(completion, f.name)) not in (f.default, {})
    }
    if completion.messages:
        values["messages"] = list(map(message_values, completion.messages))
    if completion.sampling is not None:
        values["sampling"] = completion.sampling.values
    return encode({"schema_version": SCHEMA_VERSION, **values}).encode()


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _parsed(lines: Iterable[bytes], path: Path) -> Iterator[Completion]:
    for number, line in enumerate(lines, 1):
        try:
            values = decode(line)
            if not isinstance(values, dict):
                raise TypeError("it is no JSON object")
            yield _completion(values)
        except (ValueError, TypeError, KeyError, RecordError) as error:
            raise RecordError(
                f"{path}: line {number} is no completion of version {SCHEMA_VERSION}: {error}"
            ) from None


def _completion(values: dict[str, Any]) -> Completion:
    version = values.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {version!r}; other files are taken in by an import")
    values["messages"] = tuple(map(message_of, values.get("messages", ())))
    for name in ("prompt_ids", "token_ids", "logprobs", "top_means", "until"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    if values.get("sampling") is not None:
        values["sampling"] = Sampling.of(values["sampling"])
    return Completion(**values)
