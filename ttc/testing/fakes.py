"""Fakes: an engine that says what it is told to, and a verifier that scores as it is told to."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

from ttc.clock import SystemClock
from ttc.constraints import Constraint
from ttc.costs import Costs
from ttc.errors import EngineError
from ttc.ports import Capabilities, Clock, Request, Scope, Timer
from ttc.testing.words import check_script, conversation, ids_of, longest_of, pieces_of
from ttc.types import (
    MAX_LOGPROBS,
    Branch,
    Candidate,
    Chunk,
    FinishReason,
    Problem,
    Score,
    Usage,
)

__all__ = ["FAKE_COSTS", "FakeEngine", "Script", "ScriptedVerifier", "finished"]

FAKE_COSTS = Costs(
    flops_per_token=100, flops_per_draw=50, attention=((1, None),), kv_bytes_per_token=8
)
"""What a fake engine says that it spends: small, so that sums can be done by hand."""

_OTHERS = 999
"""Tokens of a fake engine beside the one that it gives."""

Reply = str | EngineError
Script = Reply | Sequence[Reply] | Callable[[Request], Reply]


class FakeEngine:
    """An engine that says what it is told to, and counts everything that it is asked.

    Its tokens are words with the space before them, and its prompts the messages, one to a line,
    after tools and template options as JSON. It is replayable: a reply depends on the
    request alone, so a list of replies is drawn from by the request's seed; to give the i-th call
    the i-th reply, pass `in_order=True`.
    """

    def __init__(  # noqa: PLR0913 - all keywords but one, each of its own
        self,
        script: Script,
        *,
        in_order: bool = False,
        seconds_per_token: float | Callable[[Request], float] = 0.0,
        concurrency: int | None = None,
        context: int | None = None,
        token_bytes: int | None = None,
        clock: Clock | None = None,
        logprob: float | Callable[[Request], float] = -0.5,
        scores: Callable[[Branch, str], float] | None = None,
        rewards: Callable[[Branch, int], Mapping[str, float]] | None = None,
    ) -> None:
        """A fake engine.

        Args:
            script: one reply, several, or a function of the request. An `EngineError` is raised.
            in_order: take a list's replies in order of arrival, around and around.
            seconds_per_token: how long each token takes, by the clock; may depend on the request.
            concurrency: how many calls run at once; more wait in line.
            context: the most tokens of prompt and output together.
            token_bytes: the bytes of the longest word that it says; by default that of its replies,
                where they are given.
            clock: what latencies are measured by; the system's by default.
            logprob: the log probability of every token; may depend on the request. What is left is
                spread over 999 other tokens, so that entropies and the like are those of such a
                distribution.
            scores: the log probability of each token of a text after a branch; `logprob` by
                default.
            rewards: makes it a reward model, with a value for each label of a token of a branch.
        """
        check_script(script)
        self.name = "fake"
        self.numerics = "fake"
        self.capabilities = Capabilities(
            tokens=True,
            fork=True,
            cut=True,
            cancel=True,
            logprobs=MAX_LOGPROBS,
            entropy=True,
            score=rewards is None,
            reward=rewards is not None,
            priority=True,
            prefix_cache=True,
            replayable=True,
        )
        self.context = context
        self.token_bytes = token_bytes or longest_of(script)
        self.costs: Costs | None = FAKE_COSTS
        """What it says that it spends on each token; it caches nothing."""
        self.calls = 0
        """Calls that were submitted."""
        self.output_tokens = 0
        """Tokens that were generated, those of cancelled calls included."""
        self.input_tokens = 0
        """Prompt tokens that were sent."""
        self.flops = 0
        """Operations, those of cancelled calls included."""
        self.kv_byte_seconds = 0.0
        """Memory times how long calls held it."""
        self.active = 0
        """Calls that run now."""
        self.most_active = 0
        """The most calls that ever ran at once."""
        self.requests: list[Request] = []
        self.said: dict[int, str] = {}
        """The words of all replies, by token."""
        self.read: list[tuple[Branch, tuple[str, ...]]] = []
        """What was scored: branches, and the texts after them; or the names of rewards."""
        self.vocab_size = 2**32
        self.labels: tuple[str, ...] = ()
        if rewards is not None:
            self.labels = tuple(rewards(Branch(text="", token_ids=()), 0))
        self._scores, self._rewards = scores, rewards
        self._script, self._in_order = script, in_order
        self._pace, self._slots = seconds_per_token, concurrency
        self._clock: Clock = clock or SystemClock()
        self._logprob = logprob
        self._line: deque[_FakeGeneration] = deque()

    def root(self, problem: Problem, role: str) -> Branch:
        """The prompt: as it is, or the lines of a conversation."""
        text = conversation(problem) if problem.prompt is None else problem.prompt
        return Branch(role=role, text=text, token_ids=ids_of(text))

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`."""
        ids = (zlib.crc32(text.encode()),) if as_token else ids_of(text)
        return Branch(parent=branch, role=branch.role, text=text, token_ids=ids)

    def spell(self, token_id: int) -> bytes:
        """A word that it has said; of any other nothing."""
        return self.said.get(token_id, "").encode()

    def check_constraint(self, constraint: Constraint) -> None:
        """It holds to none."""
        raise ValueError(
            "the fake engine says what it is told to, so it holds to no constraint; run on a model"
        )

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The first words of a branch."""
        segment, count = branch.place_of(num_tokens)
        if segment.is_whole(count):
            return segment
        stop = segment.stop_reason if isinstance(segment.stop_reason, str) else ""
        pieces, tokens = pieces_of(segment.text + stop), segment.token_ids or ()
        if ids_of(segment.text + stop) != tokens:
            pieces = [self.said[token] for token in tokens[:count] if token in self.said]
        if len(pieces) < count:
            raise EngineError(
                f"a fake engine said a word that begins in {segment.text + stop!r} and ends behind "
                "it, so only that engine can cut it; end replies with the delimiter"
            )
        return segment.beginning(count, "".join(pieces[:count]))

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> _FakeReading:
        """It expects nothing."""
        raise EngineError("the fake engine expects no next token; use a model")

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> _FakeReading:
        """The log probabilities of texts after a branch, at once."""
        self.read.append((branch, tuple(suffix.text for suffix in suffixes)))
        lengths = [len(suffix.token_ids or ()) for suffix in suffixes]
        logprobs = map(self._logprob_of, suffixes)
        values = tuple((value,) * n for value, n in zip(logprobs, lengths, strict=True))
        return self._reading(values, given=branch.num_tokens + sum(lengths), draws=sum(lengths))

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> _FakeReading:
        """The rewards of some tokens of a branch, at once."""
        if self._rewards is None:
            raise EngineError("the fake engine was made without rewards=; pass them")
        self.read.append((branch, self.labels))
        rewards = self._rewards
        values = tuple(tuple(rewards(branch, row).values()) for row in rows)
        return self._reading(values, given=branch.num_tokens, draws=len(rows))

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> _FakeReading:
        """It has none."""
        raise EngineError("the fake engine has no hidden states; run on a model")

    def _logprob_of(self, suffix: Branch) -> float:
        if self._scores is not None and suffix.parent is not None:
            return self._scores(suffix.parent, suffix.text)
        if callable(self._logprob):
            raise EngineError("logprob= depends on requests, which a score is none; pass scores=")
        return self._logprob

    def _reading(
        self, values: tuple[tuple[float, ...], ...], *, given: int, draws: int
    ) -> _FakeReading:
        self.calls += 1
        self.input_tokens += given
        flops = None
        if self.costs is not None:
            flops = self.costs.flops(start=0, count=given, draws=draws)
            self.flops += flops
        return _FakeReading(values, Usage(input_tokens=given, flops=flops, kv_byte_seconds=0.0))

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> _FakeGeneration:
        """Queues a call. How tokens are drawn is for the script to read, but what binds them."""
        if request.sampling.logit_bias and not self.capabilities.logit_bias:
            raise EngineError("the fake engine says what it is told to, so it biases nothing")
        if request.sampling.constraint is not None:
            self.check_constraint(request.sampling.constraint)
        self.calls += 1
        self.requests.append(request)
        self.input_tokens += request.branch.num_tokens
        generation = _FakeGeneration(self, request, self._reply(request), on_chunk)
        self._line.append(generation)
        self.start_waiting()
        return generation

    def start_waiting(self) -> None:
        """Starts whoever has a slot."""
        while self._line and (self._slots is None or self.active < self._slots):
            generation = max(self._line, key=lambda waiting: waiting.priority)
            self._line.remove(generation)
            if not generation.ended:
                self.active += 1
                self.most_active = max(self.most_active, self.active)
                generation.start()

    def pace(self, request: Request) -> float:
        """Seconds for each token of a request."""
        return self._pace(request) if callable(self._pace) else self._pace

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Calls back by the engine's clock."""
        return self._clock.call_later(seconds, callback)

    def now(self) -> float:
        """The engine's time."""
        return self._clock.now()

    def measured(self, request: Request, count: int) -> dict[str, Any]:
        """What a branch holds of the distributions of its tokens, where the request asks."""
        own = self._logprob(request) if callable(self._logprob) else self._logprob
        each = -math.expm1(own) / _OTHERS  # the probability of each other token
        other = math.log(each) if each > 0 else -math.inf
        entropy = -math.exp(own) * own - (_OTHERS * each * other if each > 0 else 0.0)
        size = _OTHERS + 1
        certainty = -(own + _OTHERS * other) / size - math.log(size)
        greatest = sorted([own, *[other] * request.sampling.logprobs], reverse=True)
        top = tuple(greatest[: request.sampling.logprobs])
        return {
            "logprobs": (own,) * count,
            "entropies": (entropy,) * count if request.sampling.entropy else None,
            "self_certainties": (certainty,) * count if request.sampling.entropy else None,
            "top_logprobs": (top,) * count if top else None,
        }

    def _reply(self, request: Request) -> Reply:
        if callable(self._script):
            return self._script(request)
        if isinstance(self._script, str | EngineError):
            return self._script
        place = self.calls - 1 if self._in_order else request.seed
        return self._script[place % len(self._script)]


class _FakeReading:
    """One call of a `FakeEngine` that reads: it has ended when it begins."""

    def __init__(self, values: tuple[tuple[float, ...], ...], usage: Usage) -> None:
        self.future: Future[tuple[tuple[float, ...], ...]] = Future()
        self.future.set_result(values)
        self.usage = usage

    def cancel(self) -> int:
        """Ends nothing: it has ended."""
        return 0


class _FakeGeneration:
    """One call of a `FakeEngine`: a token each tick of its pace."""

    def __init__(
        self,
        engine: FakeEngine,
        request: Request,
        reply: Reply,
        on_chunk: Callable[[Chunk], None] | None,
    ) -> None:
        self.future: Future[Branch] = Future()
        self.ended = False
        self._engine, self._request, self._on_chunk = engine, request, on_chunk
        self._error = reply if isinstance(reply, EngineError) else None
        self._stop: str | int | None = None
        self._pieces = list(self._until(pieces_of("" if isinstance(reply, EngineError) else reply)))
        self._text = "".join(self._pieces)
        engine.said.update((ids_of(piece)[0], piece) for piece in self._pieces)
        if isinstance(self._stop, str):
            self._text = self._text[: self._text.index(self._stop)]
        self._given = self._told = 0
        self._timer: Timer | None = None
        self._running = False
        self._prompt = request.branch.num_tokens
        self.priority = request.priority
        self._flops, self._kv, self._since = 0, 0.0, 0.0

    @property
    def usage(self) -> Usage:
        """What it counted; the engine has counted the same."""
        is_known = self._engine.costs is not None
        return Usage(
            input_tokens=self._prompt,
            flops=self._flops if is_known else None,
            kv_byte_seconds=self._kv if is_known else None,
        )

    def start(self) -> None:
        """Takes its slot."""
        self._running, self._since = True, self._engine.now()
        self._compute(start=0, count=self._prompt, draws=0)
        self._tick()

    def cancel(self) -> int:
        """Ends it; returns how many tokens it had generated."""
        if not self.ended:
            self._leave()
        return self._given

    def fork(self, num_tokens: int) -> Branch:
        """The branch of its first words."""
        if not 1 <= num_tokens <= self._given:
            raise ValueError(f"the call has {self._given} tokens by now, not {num_tokens}")
        return self._segment().beginning(num_tokens, "".join(self._pieces[:num_tokens]))

    def prioritise(self, priority: float) -> None:
        """Lets it start before others that wait."""
        self.priority = priority

    def _until(self, pieces: Sequence[str]) -> Iterator[str]:
        text = ""
        for piece in pieces[: self._request.max_tokens]:
            text += piece
            yield piece
            hits = [s for s in self._request.until if isinstance(s, str) and s in text]
            if hits:
                self._stop = min(hits, key=text.index)
                return

    def _tick(self) -> None:
        pace = self._engine.pace(self._request)
        if pace > 0 and self._given < len(self._pieces):
            self._timer = self._engine.after(pace, self._token)
        else:
            while self._given < len(self._pieces):
                self._give()
            self._timer = self._engine.after(0.0, self._finish)

    def _token(self) -> None:
        self._give()
        self._tick()

    def _give(self) -> None:
        piece = self._pieces[self._given]
        self._draw()
        told, self._told = self._told, self._told + len(piece)
        said = self._text[told : self._told]  # a stop string is no part of the text
        if self._on_chunk is not None:
            whole = self._engine.measured(self._request, 1)
            measured = {name: whole[name] for name in ("logprobs", "top_logprobs")}
            self._on_chunk(Chunk(text=said, token_ids=ids_of(piece), **measured))

    def _draw(self) -> None:
        self._hold()
        computed = self._prompt + self._given
        self._compute(start=computed - 1, count=int(self._given > 0), draws=1)
        self._given += 1
        self._engine.output_tokens += 1

    def _compute(self, *, start: int, count: int, draws: int) -> None:
        if self._engine.costs is not None:
            flops = self._engine.costs.flops(start=start, count=count, draws=draws)
            self._flops += flops
            self._engine.flops += flops

    def _hold(self) -> None:
        """Counts the memory that it has held since it was last counted."""
        now = self._engine.now()
        if self._engine.costs is not None:
            size = self._engine.costs.kv_bytes_per_token * (self._prompt + self._given)
            self._kv += size * (now - self._since)
            self._engine.kv_byte_seconds += size * (now - self._since)
        self._since = now

    def _finish(self) -> None:
        self._leave()
        if self._error is not None:
            for _ in range(self._error.output_tokens):
                self._draw()
            self.future.set_exception(self._error)
            return
        self.future.set_result(self._segment())

    def _segment(self) -> Branch:
        full = len(self._pieces) >= self._request.max_tokens and self._stop is None
        reason: FinishReason = "length" if full else "stop"
        return Branch(
            parent=self._request.branch,
            role=self._request.branch.role,
            text=self._text,
            token_ids=tuple(i for piece in self._pieces for i in ids_of(piece)),
            **self._engine.measured(self._request, len(self._pieces)),
            finish_reason=reason,
            stop_reason=self._stop,
        )

    def _leave(self) -> None:
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            self._running = False
            self._hold()
            self._engine.active -= 1
            self._engine.start_waiting()


@dataclass(frozen=True)
class ScriptedVerifier:
    """A verifier that scores by a function of the candidate, or by its answer."""

    script: Mapping[str | None, float | None] | Callable[[Candidate], float | None]
    """Scores by answer, or a function. An answer that is missing is scored as unknown."""
    name: str = "scripted"
    range: tuple[float, float] | None = (0.0, 1.0)
    needs: Literal["each", "all"] = "each"
    requires: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    seen: list[Candidate] = field(default_factory=list, compare=False, repr=False)
    """Every candidate that it was asked about."""

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; a number that is not finite is unknown."""
        self.seen.extend(candidates)
        return tuple(Score.of(self._value(c), range=self.range) for c in candidates)

    def _value(self, candidate: Candidate) -> float | None:
        if callable(self.script):
            return self.script(candidate)
        return self.script.get(candidate.answer)


def finished(answer: str | None, *, text: str = "", score: float | None = None) -> Candidate:
    """A finished candidate with an answer, and with a score named `scripted` if one is given."""
    from ttc.answers import answer_key

    scores = {} if score is None else {"scripted": Score(value=score, verifier="scripted")}
    return Candidate(
        branch=Branch(text=text, token_ids=()),
        text=text,
        answer=answer,
        key=answer_key(answer),
        status="finished",
        scores=scores,
    )
