"""Simulator: an engine of problems whose laws are known, so that policies can be proved on it.

Each problem has a chance of the right answer, masses of wrong ones, a law of lengths that may
depend on which of them it is, and a level of confidence. A reply is a function of (problem, the
simulator's seed, the request's seed) alone, so a run on it repeats at any concurrency. It knows no
text and no model: its tokens are placeholders, whose first one names the draw.

Tokens come in rounds of `every`, by the clock. A call that is cancelled in round r has produced
min(its length, r x every) tokens.

Cost: about 15 microseconds of processor time for a call.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple
from zlib import crc32

from ttc.clock import SystemClock
from ttc.constraints import Constraint
from ttc.costs import Costs
from ttc.engine.laws import Lengths, SimulatedProblem
from ttc.engine.simulated_memory import Held, Memory
from ttc.errors import EngineError
from ttc.frozen import changed
from ttc.ports import Capabilities, Clock, Reading, Request, Timer
from ttc.types import MAX_LOGPROBS, PENALTIES, Branch, Chunk, FinishReason, Problem
from ttc.usage import NO_USAGE, Usage

__all__ = ["Hardware", "Lengths", "SimulatedProblem", "Simulator"]

_NORMAL = NormalDist()
_UNCOUNTED = Usage(flops=None)
_FILLER = " so"
_GIVES_UP = (" I", " give", " up.")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """What the simulated machine can do, and what its model costs."""

    seconds_per_token: float = 0.0
    seconds_per_prompt_token: float = 0.0
    """For prompt tokens that are not in the cache."""
    kv_tokens: int = 1_000_000
    """Tokens whose keys and values fit; a call waits until its worst case does."""
    costs: Costs | None = None
    """What its model spends on each token; `None`: nobody knows."""


class _Draw(NamedTuple):
    """What one call comes to, if nothing cuts it."""

    seed: int
    salt: int
    answer: str | None
    length: int

    @property
    def settles(self) -> float:
        """The part of the trace after which a forced answer is its own answer."""
        return _uniform(self.seed ^ self.salt, 2)

    @property
    def surprise(self) -> float:
        """How far its confidence is from the mean of its kind."""
        return _NORMAL.inv_cdf(_uniform(self.seed ^ self.salt, 3))


class Simulator:
    """Serves simulated problems by their ids, and counts what it does."""

    name = "simulator"

    def __init__(
        self,
        problems: Iterable[SimulatedProblem],
        *,
        seed: int = 0,
        every: int = 32,
        hardware: Hardware | None = None,
        clock: Clock | None = None,
    ) -> None:
        """A simulator.

        Args:
            problems: the laws, by ids that tell them apart.
            seed: another seed is another world with the same laws.
            every: tokens of a round.
            hardware: latencies, memory and costs; without it, everything is at once.
            clock: what latencies are measured by; the system's by default.
        """
        self.laws = {law.id: law for law in problems}
        self.every = every
        self.hardware = hardware or Hardware()
        self.numerics = f"simulator, seed {seed}, rounds of {every}"
        self.context: int | None = self.hardware.kv_tokens
        self.capabilities = Capabilities(
            tokens=True,
            fork=True,
            cut=True,
            cancel=True,
            logprobs=MAX_LOGPROBS,
            prefix_cache=True,
            replayable=True,
            price=self.hardware.costs is not None,
        )
        self.calls = 0
        """Calls that were submitted."""
        self.output_tokens = 0
        """Tokens that were produced, those of cancelled calls included."""
        self.kv_byte_seconds = 0.0
        """What running calls held, their own part in the mean over their time."""
        self.most_kv_tokens = 0
        """The most tokens that running calls ever held or had reserved."""
        self.flops = 0
        """Operations, those of cancelled calls included; 0 where the costs are unknown."""
        self.costs = self.hardware.costs
        self.labels: tuple[str, ...] = ()
        self.clock: Clock = clock or SystemClock()
        self.memory = Memory(self.hardware.kv_tokens)
        self._seed = seed
        self._line: deque[_Generation] = deque()

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's id, as its prompt."""
        law = self.laws.get(problem.id)
        if law is None:
            raise EngineError(f"the simulator has no problem {problem.id!r}; give it one")
        return Branch(role=role, text=law.id, token_ids=_places(law.prompt_tokens))

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`, which forces an answer of what was generated."""
        if as_token:
            raise EngineError(f"the simulator's tokens have no names, so none is called {text!r}")
        ids = tuple(crc32(word.encode()) for word in text.split())
        return Branch(parent=branch, role=branch.role, text=text, token_ids=ids)

    def check_constraint(self, constraint: Constraint) -> None:
        """It holds to none."""
        raise ValueError(
            "the simulator writes by its laws, so it holds to no constraint; run on a model"
        )

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """The first tokens of a branch; but of a prompt, which is a problem's id, no part."""
        segment, count = branch.place_of(num_tokens)
        if segment.is_whole(count):
            return segment
        if segment.parent is None:
            raise EngineError("the simulator's prompts are ids of problems; cut after them")
        if segment.logprobs is None:  # a text that was given
            return segment.beginning(count, " ".join(segment.text.split()[:count]))
        if segment.length == 1 and segment.stop_reason is None:  # a forced answer
            return segment.beginning(count, segment.text)
        draw = self._draw(self.laws[next(branch.lineage()).text], (segment.token_ids or (0,))[0])
        return segment.beginning(count, _Words(draw, _ending(draw.answer), (0, 0)).text(0, count))

    def next_tokens(
        self, branch: Branch, top: int, *, at: Sequence[int] | None = None, owner: str = ""
    ) -> Reading:
        """It cannot."""
        raise EngineError("the simulator's tokens are placeholders, so it expects none next")

    def score(self, branch: Branch, suffixes: Sequence[Branch], *, owner: str = "") -> Reading:
        """It cannot."""
        raise EngineError("the simulator cannot score texts")

    def reward(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """It cannot."""
        raise EngineError("the simulator is no reward model")

    def hidden(self, branch: Branch, rows: Sequence[int], *, owner: str = "") -> Reading:
        """It cannot."""
        raise EngineError("the simulator has no hidden states; run on a model")

    def submit(
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> _Generation:
        """Queues a call; it starts once its worst case fits into the memory."""
        if any(isinstance(end, int) for end in request.until):
            raise EngineError("the simulator's tokens are placeholders; give strings as `until`")
        if request.sampling.penalises or request.sampling.logit_bias:
            raise EngineError(
                f"the simulator writes by its laws, so it penalises nothing; leave out "
                f"{', '.join(PENALTIES)}, logit_bias"
            )
        if request.sampling.constraint is not None:
            self.check_constraint(request.sampling.constraint)
        self.calls += 1
        generation = _Generation(self, request, self._words(request), on_chunk)
        self._line.append(generation)
        self.start_waiting()
        return generation

    def start_waiting(self) -> None:
        """Starts, in order, whoever the memory has room for."""
        while self._line and (self._line[0].ended or self._line[0].start()):
            self._line.popleft()

    def close(self, generation: _Generation, produced: int, elapsed: float) -> Usage:
        """Books a call that has ended, and lets others start; returns what it measured."""
        held = generation.held
        self.output_tokens += produced
        self.memory.release(held)
        flops, memory = None, None
        if self.costs is not None:
            computed = held.fresh + max(0, produced - 1)
            flops = self.costs.flops(start=held.cached, count=computed, draws=produced)
            held_tokens = held.cached + held.fresh + produced / 2
            memory = held_tokens * elapsed * self.costs.kv_bytes_per_token
            self.flops += flops
            self.kv_byte_seconds += memory
        self.start_waiting()
        return changed(
            NO_USAGE,
            input_tokens=held.cached + held.fresh,
            cached_input_tokens=held.cached,
            flops=flops,
            kv_byte_seconds=memory,
        )

    def draw(self, problem: str, seed: int) -> tuple[str | None, int]:
        """The answer and the length of a problem's reply to a request with this seed."""
        drawn = self._draw(self.laws[problem], seed)
        return drawn.answer, drawn.length

    def _words(self, request: Request) -> _Words:
        """What a request would be answered with."""
        segments = list(request.branch.lineage())
        law = self.laws[segments[0].text]
        draw = self._draw(law, request.seed)
        last = segments[-1]
        if last.parent is None or last.call is not None:
            return _Words(draw, _ending(draw.answer), law.confidence)
        traces = [s for s in reversed(segments) if s.call is not None and s.token_ids]
        if not traces:  # no more than a beginning was given
            return _Words(draw, _ending(draw.answer), law.confidence)
        begun = traces[0].token_ids or ()
        trace = self._draw(law, begun[0])
        if len(begun) >= trace.settles * trace.length:  # a cue was appended: the answer is forced
            draw = draw._replace(answer=trace.answer)
        said = "" if draw.answer is None else draw.answer
        closing = "}" if last.text.rstrip().endswith("{") else "."
        return _Words(draw._replace(length=1), (f" {said}{closing}",), law.confidence)

    def _draw(self, law: SimulatedProblem, seed: int) -> _Draw:
        """A draw of a problem's law."""
        salt = _salt(law.id, self._seed)
        answer = law.answer(_uniform(seed ^ salt, 0))
        normal = _NORMAL.inv_cdf(_uniform(seed ^ salt, 1))
        length = law.lengths.draw(normal, is_right=answer == "1")
        return _Draw(seed, salt, answer, length)


class _Words(NamedTuple):
    """The words of a reply: filler, and at its end what it says."""

    draw: _Draw
    ending: tuple[str, ...]
    confidence: tuple[float, float]
    """As the problem's."""

    def text(self, start: int, end: int) -> str:
        """The text of some tokens."""
        filler = self.draw.length - len(self.ending)
        said = self.ending[max(0, start - filler) : max(0, end - filler)]
        return _FILLER * (min(end, filler) - min(start, filler)) + "".join(said)

    def end_at(self, until: Sequence[str], most: int) -> tuple[int, str | None]:
        """How many of at most so many tokens there are until a stop string, and which it is."""
        length = min(self.draw.length, most)
        if not until:
            return length, None
        whole = self.text(0, length)
        hits = [(whole.index(stop) + len(stop), stop) for stop in until if stop in whole]
        if not hits:
            return length, None
        after, stop = min(hits)
        return next(n for n in range(1, length + 1) if len(self.text(0, n)) >= after), stop


class _Generation:
    """One call: by one timer, or, where somebody listens, by one for each round."""

    def __init__(
        self,
        engine: Simulator,
        request: Request,
        words: _Words,
        on_chunk: Callable[[Chunk], None] | None,
    ) -> None:
        self.future: Future[Branch] = Future()
        self.held = Held()
        self.usage = NO_USAGE if engine.costs else _UNCOUNTED
        """What it measured, once it has ended."""
        self.ended, self._given, self._told = False, 0, 0
        self._engine, self._request, self._words = engine, request, words
        self._on_chunk = on_chunk
        stops = [end for end in request.until if isinstance(end, str)]
        self._length, self._stop = words.end_at(stops, request.max_tokens)
        self._end = None if self._stop is None else words.text(0, self._length).index(self._stop)
        self._began: float | None = None
        self._timer: Timer | None = None

    def start(self) -> bool:
        """Takes its memory and begins; says whether there was room."""
        engine, hardware = self._engine, self._engine.hardware
        held = engine.memory.hold(self._request.branch, self._request.max_tokens)
        if held is None:
            return False
        engine.most_kv_tokens = max(engine.most_kv_tokens, engine.memory.pinned)
        self.held = held
        reading = held.fresh * hardware.seconds_per_prompt_token
        self._began = engine.clock.now() + reading
        rest = 0.0 if self._on_chunk is not None else self._length * hardware.seconds_per_token
        following = self._round if self._on_chunk is not None else self._finish
        self._timer = engine.clock.call_later(reading + rest, following)
        return True

    def cancel(self) -> int:
        """Ends it; the round that is running counts in full."""
        if not self.ended:
            self._close(self._produced())
        return self._given

    def _produced(self) -> int:
        if self._began is None:
            return 0
        pace = self._engine.hardware.seconds_per_token * self._engine.every
        if pace == 0:
            return self._given if self._on_chunk is not None else self._length
        rounds = math.ceil((self._engine.clock.now() - self._began) / pace - 1e-9)
        return max(self._given, min(self._length, rounds * self._engine.every))

    def _round(self) -> None:
        """Plans the next round, at whose end its tokens are told."""
        size = min(self._engine.every, self._length - self._given)
        pause = size * self._engine.hardware.seconds_per_token
        self._timer = self._engine.clock.call_later(pause, lambda: self._tell(size))

    def _tell(self, size: int) -> None:
        assert self._on_chunk is not None
        start, told = self._given, self._told
        self._given += size
        said = self._words.text(0, self._given)[: self._end]
        self._told = len(said)
        self._on_chunk(
            Chunk(
                text=said[told:],
                token_ids=self._ids(start),
                top_logprobs=self._best(size),
            )
        )
        if self._given < self._length:
            self._round()
        else:
            self._finish()

    def _best(self, count: int) -> tuple[tuple[float, ...], ...] | None:
        """The best log probabilities of some tokens, where they are asked for: its confidence."""
        asked = self._request.sampling.logprobs
        if not asked:
            return None
        draw = self._words.draw
        level = self._words.confidence[draw.answer == "1"] + draw.surprise
        return ((-level,) * asked,) * count

    def _ids(self, start: int) -> tuple[int, ...]:
        """The tokens since `start`: the first one of a call names its draw."""
        if start:
            return _places(self._given - start)
        return (self._words.draw.seed, *_places(self._given - 1))

    def _finish(self) -> None:
        self._close(self._length)
        request, words = self._request, self._words
        text = words.text(0, self._length)[: self._end]
        is_whole = self._stop is not None or words.draw.length <= request.max_tokens
        reason: FinishReason = "stop" if is_whole else "length"
        self.future.set_result(
            Branch(
                parent=request.branch,
                role=request.branch.role,
                text=text,
                token_ids=self._ids(0),
                logprobs=_logprobs(self._length),
                top_logprobs=self._best(self._length),
                finish_reason=reason,
                stop_reason=self._stop,
            )
        )

    def _close(self, produced: int) -> None:
        self.ended, self._given = True, produced
        if self._timer is not None:
            self._timer.cancel()
        if self._began is not None:
            elapsed = max(0.0, self._engine.clock.now() - self._began)
            self.usage = self._engine.close(self, produced, elapsed)


def _uniform(seed: int, index: int) -> float:
    """A uniform number in (0, 1): SplitMix64, Steele et al. 2014."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return ((z ^ z >> 31) >> 11) * 2.0**-53 + 2.0**-54


@lru_cache(maxsize=4096)
def _salt(problem: str, seed: int) -> int:
    return crc32(problem.encode()) << 32 ^ seed


@lru_cache(maxsize=4096)
def _ending(answer: str | None) -> tuple[str, ...]:
    return _GIVES_UP if answer is None else (" The", " answer", " is", f" {answer}.")


@lru_cache(maxsize=4096)
def _places(count: int) -> tuple[int, ...]:
    return (0,) * count


@lru_cache(maxsize=4096)
def _logprobs(count: int) -> tuple[float, ...]:
    return (-0.5,) * count
