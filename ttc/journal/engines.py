"""Engines and the journal: what is asked is written first, and what is known is not asked again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import Any, Protocol, cast

from ttc.constraints import Constraint
from ttc.costs import Costs
from ttc.errors import EngineError, RecordError
from ttc.journal.readings import ReadingAnswers, key_of, read
from ttc.journal.trace import digest
from ttc.journal.values import (
    Values,
    branch_of,
    capabilities_of,
    chunk_of,
    chunk_values,
    costs_of,
    error_of,
    error_values,
    problem_values,
    segment_values,
    usage_of,
    usage_values,
)
from ttc.ports import (
    Capabilities,
    Clock,
    Engine,
    Generation,
    Reading,
    Request,
    Spelling,
    Steerable,
)
from ttc.types import Branch, Chunk, Problem, Usage

__all__ = ["PATIENCE_S", "Answers", "JournaledEngine", "RecordedEngine"]

PATIENCE_S = 0.25
"""How long a call that a stop had cut waits to be cut again, before the engine is asked anew."""

OnChunk = Callable[[Chunk], None]


class Answers(ReadingAnswers, Protocol):
    """What engines need of a journal."""

    @property
    def clock(self) -> Clock:
        """The run's clock."""

    def known(self, key: str, find: Callable[[], Values]) -> Values:
        """The answer that is kept under a key, of what costs nothing to ask."""

    def intend(
        self, key: str, request: Values, *, again: bool, about: Values | None = None
    ) -> None:
        """Writes that something is about to be asked."""

    def lost(self, key: str, output_tokens: int) -> EngineError:
        """The failure of a call that was cut and cannot be asked again; the outcome tells of it."""

    def said(self, engine: str, token_ids: Iterable[int], spell: Callable[[int], bytes]) -> None:
        """Writes the texts of tokens that are new."""


class JournaledEngine:
    """An engine behind a journal; implements `ttc.ports.Engine`."""

    def __init__(self, engine: Engine, journal: Answers) -> None:
        self.name: str = engine.name
        self.numerics: str = engine.numerics
        self.capabilities: Capabilities = engine.capabilities
        self.context: int | None = engine.context
        self.costs: Costs | None = engine.costs
        self.labels: tuple[str, ...] = engine.labels
        self._engine, self._journal = engine, journal
        self._spell = engine.spell if isinstance(engine, Spelling) else None

    def root(self, problem: Problem, role: str) -> Branch:
        """A problem's prompt, as it was when the run began."""
        asked = json.dumps(problem_values(problem), sort_keys=True)
        whole = blake2b(asked.encode(), digest_size=16).hexdigest()
        values = self._journal.known(
            f"prompt of {role}: {whole}", lambda: segment_values(self._engine.root(problem, role))
        )
        return branch_of(values, None, role)

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`."""
        key = f"{digest(branch)} + {'the token ' if as_token else ''}{text}"
        values = self._journal.known(
            key, lambda: segment_values(self._engine.append(branch, text, as_token=as_token))
        )
        return branch_of(values, branch, branch.role)

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The first tokens of a branch."""
        segment, count = branch.place_of(num_tokens)
        if segment.is_whole(count):
            return segment

        def find() -> Values:
            return {"text": self._engine.cut(segment, num_tokens).text}

        key = f"{digest(segment)} cut back to {num_tokens}"
        return segment.beginning(count, self._journal.known(key, find)["text"])

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """Asks the engine what comes next, unless it is known."""
        key = key_of(f"next {top} tokens", branch, () if at is None else at)

        def ask() -> Reading:
            return self._engine.next_tokens(branch, top, at=at, owner=owner)

        return read(key, self.numerics, ask, self._journal)

    def check_constraint(self, constraint: Constraint) -> None:
        """Asks the engine."""
        self._engine.check_constraint(constraint)

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Reading:
        """Asks the engine for log probabilities, unless they are known."""
        key = key_of("score", branch, suffixes)

        def ask() -> Reading:
            return self._engine.score(branch, suffixes, owner=owner)

        return read(key, self.numerics, ask, self._journal)

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Asks the engine for rewards, unless they are known."""
        key = key_of("reward", branch, rows)

        def ask() -> Reading:
            return self._engine.reward(branch, rows, owner=owner)

        return read(key, self.numerics, ask, self._journal)

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Asks the engine for hidden states, unless they are known."""
        key = key_of("hidden states", branch, rows)

        def ask() -> Reading:
            return self._engine.hidden(branch, rows, owner=owner)

        return read(key, self.numerics, ask, self._journal)

    def submit(self, request: Request, on_chunk: OnChunk | None = None) -> Generation:
        """Asks the engine, unless the answer is known."""
        facts = _facts(request, self.numerics)
        again = self.capabilities.replayable
        about = {"behind": _call_of(request.branch), "role": request.branch.role}
        answer = self._journal.asked(request.call, facts, again=again, about=about)
        if answer is None:
            return _Asked(self._engine, request, on_chunk, self._journal, self._spell)
        for values in answer.get("chunks", ()) if on_chunk is not None else ():
            on_chunk(chunk_of(values))  # type: ignore[misc]
        if "cut_at" not in answer:
            return _Known(answer, request)

        def ask() -> Generation:
            if not again:
                raise self._journal.lost(request.call, answer["cut_at"])
            self._journal.intend(request.call, facts, again=again, about=about)
            rest = None if on_chunk is None else _beyond(answer.get("chunks", ()), on_chunk)
            return _Asked(self._engine, request, rest, self._journal, self._spell)

        return _Cut(answer, ask, self._journal.clock)


class RecordedEngine:
    """What is known of an engine that is not there: it answers nothing itself."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.name: str = values["name"]
        self.numerics: str = values["numerics"]
        self.context: int | None = values["context"]
        self.capabilities = capabilities_of(values["capabilities"])
        self.costs = costs_of(values["costs"])
        self.labels = tuple(values["labels"])

    def root(self, problem: Problem, role: str) -> Branch:
        """Nothing."""
        raise self._missing(f"the prompt of {role}")

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """Nothing."""
        raise self._missing(f"the tokens of {text!r}")

    def check_constraint(self, constraint: Constraint) -> None:
        """It was checked when the run was recorded."""

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """Nothing, but for what ends where a segment does."""
        segment, count = branch.place_of(num_tokens)
        if not segment.is_whole(count):
            raise self._missing(f"the text of {num_tokens} tokens")
        return segment

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """Nothing."""
        raise self._missing("next tokens")

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Reading:
        """Nothing."""
        raise self._missing("a score of given text")

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Nothing."""
        raise self._missing("a reward of given text")

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """Nothing."""
        raise self._missing("hidden states of given text")

    def submit(self, request: Request, on_chunk: OnChunk | None = None) -> Generation:
        """Nothing."""
        raise self._missing(request.call)

    def _missing(self, what: str) -> RecordError:
        return RecordError(f"the journal does not hold {what}: the run has not ended; resume it")


class _Known:
    """A call whose answer is known."""

    def __init__(self, answer: Values, request: Request) -> None:
        self.future: Future[Branch] = Future()
        self.usage = usage_of(answer)
        if "error" in answer:
            self.future.set_exception(error_of(answer))
        else:
            branch, constraint = request.branch, request.sampling.constraint
            segment = branch_of(answer["segment"], branch, branch.role, constraint)
            self.future.set_result(segment)

    def cancel(self) -> int:
        """Nothing runs; what had been produced is in the answer."""
        if self.future.exception() is not None:
            return 0
        return len(self.future.result().token_ids or ())

    def prioritise(self, priority: float) -> None:
        """Nothing runs."""


class _Asked:
    """A call of the engine, whose answer is kept before anybody sees it."""

    def __init__(
        self,
        engine: Engine,
        request: Request,
        on_chunk: OnChunk | None,
        journal: Answers,
        spell: Callable[[int], bytes] | None,
    ) -> None:
        self.future: Future[Branch] = Future()
        self._journal, self._key, self._on_chunk = journal, request.call, on_chunk
        self._chunks: list[list[Any]] = []
        self._numerics = engine.numerics
        self._spell = spell
        self._ending, self._has_ended = threading.Lock(), False
        try:
            self._call = engine.submit(request, None if on_chunk is None else self._pass_on)
        except EngineError as error:
            self._end(error_values(error))
            raise
        self._call.future.add_done_callback(self._receive)

    @property
    def usage(self) -> Usage:
        """The physical lines, as the engine measures them."""
        return self._call.usage

    def cancel(self) -> int:
        """Ends it, and keeps how far it had come."""
        produced = self._call.cancel()
        self._end({"cut_at": produced, "usage": usage_values(self._call.usage)})
        return produced

    def prioritise(self, priority: float) -> None:
        """Gives it another priority."""
        cast(Steerable, self._call).prioritise(priority)

    def _pass_on(self, chunk: Chunk) -> None:
        self._chunks.append(chunk_values(chunk))
        if self._on_chunk is not None:
            self._on_chunk(chunk)

    def _receive(self, future: Future[Branch]) -> None:
        if future.cancelled():
            error: BaseException | None = EngineError("the engine gave the call up")
        else:
            error = future.exception()
        if error is None:
            segment = future.result()
            usage = usage_values(self._call.usage)
            if self._spell is not None and segment.token_ids is not None:
                self._journal.said(self._numerics, segment.token_ids, self._spell)
            self._end({"segment": segment_values(segment), "usage": usage})
            _resolve(self.future, segment)
            return
        if not isinstance(error, EngineError):
            error = EngineError(f"{type(error).__name__}: {error}")
        self._end({**error_values(error), "usage": usage_values(self._call.usage)})
        _resolve(self.future, error)

    def _end(self, answer: Values) -> None:
        with self._ending:
            if self._has_ended:
                return
            self._has_ended = True
        if self._chunks:
            answer["chunks"] = self._chunks
        self._journal.answered(self._key, answer)


class _Cut:
    """A call that a stop had cut. Most often the same stop comes again, and nothing is asked."""

    def __init__(self, answer: Values, ask: Callable[[], Generation], clock: Clock) -> None:
        self.future: Future[Branch] = Future()
        self._produced: int = answer["cut_at"]
        self._usage = usage_of(answer)
        self._ask = ask
        self._call: Generation | None = None
        self._timer = clock.call_later(PATIENCE_S, self._go_on)

    @property
    def usage(self) -> Usage:
        """The physical lines, as they were measured, or as they are by now."""
        return self._usage if self._call is None else self._call.usage

    def cancel(self) -> int:
        """Ends it where it had ended, or where it is by now."""
        self._timer.cancel()
        return self._produced if self._call is None else self._call.cancel()

    def prioritise(self, priority: float) -> None:
        """Gives it another priority, if it runs by now."""
        if self._call is not None:
            cast(Steerable, self._call).prioritise(priority)

    def _go_on(self) -> None:
        try:
            self._call = self._ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits has to hear of it
            _resolve(self.future, error)
            return
        self._call.future.add_done_callback(self._receive)

    def _receive(self, future: Future[Branch]) -> None:
        error = future.exception()
        _resolve(self.future, future.result() if error is None else error)


def _facts(request: Request, numerics: str) -> Values:
    """Everything that the answer to a request depends on."""
    return {
        "prompt": digest(request.branch),
        "engine": numerics,
        "max_tokens": request.max_tokens,
        "sampling": request.sampling.values,
        "until": list(request.until),
        "seed": request.seed,
    }


def _call_of(branch: Branch) -> str | None:
    """The call that a branch goes on from; `None` where nothing was generated of it."""
    at: Branch | None = branch
    while at is not None and at.call is None:
        at = at.parent
    return None if at is None else at.call


def _beyond(chunks: list[list[Any]], on_chunk: OnChunk) -> OnChunk:
    """Passes on what lies behind chunks that were given already."""
    left = sum(len(values[0]) for values in chunks)

    def pass_on(chunk: Chunk) -> None:
        nonlocal left
        if left <= 0:
            on_chunk(chunk)
        left -= len(chunk.text)

    return pass_on


def _resolve(future: Future[Branch], result: Branch | BaseException) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
