"""SampleInRounds: continuations that advance together by a token clock, so that some can end early.

Source: short-m@k, Hassid et al. 2025 (arXiv 2505.17813): launch k, keep the m that finish first.
DeepConf online (arXiv 2508.15260) and Certaindex (arXiv 2412.20993) by `rule`.
Differs: `first` is by fewest tokens and then by launch, so that no machine's speed decides it.
Cost: n calls, and a probe's call at each of its intervals for each trace. A trace that is ended
costs the tokens that the engine had produced, all labelled as cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from math import exp
from statistics import fmean
from typing import ClassVar

from ttc.errors import EngineError
from ttc.graph import Cost, Flow, Node, Port, is_count
from ttc.ports import Handle, Scope, Stream
from ttc.strategies.stopping_branches import BranchRule, Probe, Trace
from ttc.types import Branch, Candidate, Chunk, Sampling

__all__ = ["SampleInRounds"]

_GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True, kw_only=True)
class SampleInRounds(Node):
    """Forks every open candidate n times and lets all forks advance in rounds.

    Where `first` is given, they come out by fewest tokens, so that a vote's ties go to the
    shortest; else in launch order.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    n: int = 8
    """Forks of each open candidate."""
    first: int | None = None
    """Forks that are waited for; the others are ended. `None` waits for all."""
    rule: BranchRule | None = None
    """What ends a single fork."""
    every: int = 32
    """Tokens of a round."""
    temperature: float = 1.0
    max_tokens: int = 512
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """The role that is sampled."""
        return frozenset({self.role})

    @property
    def requires(self) -> frozenset[str]:
        """Calls that can be cancelled, and what the rule needs."""
        return frozenset({"cancel"}) | (self.rule.requires if self.rule else frozenset())

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and a rule that is none."""
        counts = {"n": self.n, "every": self.every, "max_tokens": self.max_tokens}
        if self.first is not None:
            counts["first"] = self.first
        faults = [
            f"{name} is a whole number of at least 1, not {value!r}"
            for name, value in counts.items()
            if not is_count(value)
        ]
        if not faults and self.first is not None and self.first > self.n:
            faults.append(f"first={self.first} of n={self.n} forks can never finish")
        if not isinstance(self.rule, BranchRule | None):
            faults.append(f"rule={self.rule!r} looks at no trace; pass DeepConf(), say")
        elif not faults and self.rule is not None and self.rule.probe is not None:
            interval = self.rule.probe.interval
            if interval % self.every:
                faults.append(
                    f"{self.rule!r} asks every {interval} tokens, and a round has {self.every}; "
                    "let the first be a multiple of the second"
                )
        return faults

    def flow(self, given: Flow) -> Flow:
        """At most n finished candidates for each one given, or `first`."""
        each = self.n if self.first is None else self.first
        count = None if given.count is None else given.count * each
        return Flow(kind="finished", count=count, scores=given.scores)

    def longest(self, given: Flow) -> int | None:
        """A whole fork, or one that was ended with a probe's answer."""
        probe = None if self.rule is None else self.rule.probe
        asked = (probe.max_tokens, probe.cue) if probe is not None else (0, "")
        return given.grown(self.role, self.max_tokens + asked[0], asked[1])

    def bound(self, given: Flow) -> Cost:
        """Every fork as long as it may be, with all its probes."""
        probes = asked = 0
        if self.rule is not None and self.rule.probe is not None:
            probes = self._probes(self.rule.probe)
            asked = len(self.rule.probe.cue.encode()) + self.rule.probe.max_tokens
        fork = Cost(tokens=self.max_tokens + probes * asked, calls=1 + probes)
        return fork * given.count * self.n

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Forks, advances round by round, and yields what has finished."""
        launched = 0
        async for candidate in candidates:
            whole: list[_Lane] = []
            warm_up = min(self.n, self.rule.warm_up) if self.rule is not None else 0
            for count, is_watched in ((warm_up, False), (self.n - warm_up, True)):
                lanes = [self._lane(candidate, scope, launched + i) for i in range(count)]
                launched += count
                for result in await self._race(lanes, whole, scope, is_watched=is_watched):
                    yield result
                whole += lanes

    def _lane(self, candidate: Candidate, scope: Scope, place: int) -> _Lane:
        probe = self.rule.probe if self.rule is not None else None
        index = place * (1 + (self._probes(probe) if probe is not None else 0))
        stream = scope.stream(
            candidate.branch,
            index=index,
            max_tokens=self.max_tokens,
            sampling=Sampling(temperature=self.temperature, logprobs=self._logprobs()),
        )
        return _Lane(candidate, index, stream, scope)

    def _logprobs(self) -> int:
        """How many log probabilities the rule reads of each token."""
        wanted = "logprobs>="
        needs = self.rule.requires if self.rule is not None else frozenset[str]()
        return max((int(n.removeprefix(wanted)) for n in needs if n.startswith(wanted)), default=0)

    def _probes(self, probe: Probe) -> int:
        return self.max_tokens // probe.interval

    async def _race(
        self, lanes: Sequence[_Lane], whole: Sequence[_Lane], scope: Scope, *, is_watched: bool
    ) -> list[Candidate]:
        """Lets lanes advance to the end of all, or of those that are waited for."""
        live, target = list(lanes), 0
        warm_up = tuple(lane.trace() for lane in whole)
        while live:
            target += self.every
            handles: list[Handle] = [scope.spawn(lane.advance(target)) for lane in live]
            for handle in handles:
                await handle
            if is_watched and self.rule is not None:
                await self._look(live, target, warm_up, scope)
            if is_watched and self.first is not None:
                done = [lane for lane in lanes if lane.has_finished]
                if len(done) >= self.first:
                    for lane in live:
                        lane.stop()
            live = [lane for lane in live if not lane.has_ended]
        results = [lane for lane in lanes if lane.result is not None]
        if self.first is not None:
            results = sorted(results, key=_Lane.order)[: self.first]
        return [lane.result for lane in results if lane.result is not None]

    async def _look(
        self, live: Sequence[_Lane], target: int, warm_up: tuple[Trace, ...], scope: Scope
    ) -> None:
        """Applies the rule at the end of a round."""
        assert self.rule is not None
        running = [lane for lane in live if not lane.has_ended]
        probe = self.rule.probe
        if probe is not None and target % probe.interval == 0:
            handles = [scope.spawn(lane.ask(probe, target // probe.interval)) for lane in running]
            for handle in handles:
                await handle
        for lane in running:
            if self.rule(replace(lane.trace(), warm_up=warm_up)):
                scope.decide(self.rule.name, fork=lane.index, num_tokens=lane.num_tokens)
                lane.conclude(drop=self.rule.drops)


@dataclass(eq=False)
class _Lane:
    """One fork that advances."""

    candidate: Candidate
    index: int
    stream: Stream[Chunk]
    scope: Scope
    chunks: list[Chunk] = field(default_factory=list)
    num_tokens: int = 0
    confidences: list[float] = field(default_factory=list)
    probes: list[str] = field(default_factory=list)
    sureness: list[float | None] = field(default_factory=list)
    probed: Branch | None = None
    """What the last probe was answered."""
    asked: list[Branch] = field(default_factory=list)
    """The calls of all its probes."""
    result: Candidate | None = None
    has_ended: bool = False

    @property
    def has_finished(self) -> bool:
        """Whether it came to an end of its own."""
        return self.result is not None and self.result.status == "finished"

    def order(self) -> tuple[bool, int, int]:
        """Who finished first: by tokens, then by launch; who did not finish comes last."""
        return not self.has_finished, self.num_tokens, self.index

    async def advance(self, target: int) -> None:
        """Reads until it has so many tokens, or its end."""
        try:
            while self.num_tokens < target:
                chunk = await anext(self.stream)
                if chunk.branch is not None:
                    self.num_tokens = len(chunk.branch.token_ids or ())
                    self.result = self.whole(chunk.branch)
                    self.has_ended = True
                    return
                self.chunks.append(chunk)
                self.num_tokens += len(chunk.token_ids or ())
                self.confidences += [-fmean(best) for best in chunk.top_logprobs or ()]
        except StopAsyncIteration:
            self.has_ended = True  # it was refused
        except EngineError as error:
            self.has_ended = True
            failed = replace(self.partial(call=error.call), finish_reason="error")
            self.result = replace(self.candidate, branch=failed, status="failed", error=str(error))

    def partial(self, *, call: str | None) -> Branch:
        """What has been written until now, as a branch."""
        return Branch(
            parent=self.candidate.branch,
            role=self.candidate.branch.role,
            text="".join(chunk.text for chunk in self.chunks),
            token_ids=tuple(i for chunk in self.chunks for i in chunk.token_ids or ()),
            call=call,
        )

    def trace(self) -> Trace:
        """How it stands."""
        return Trace(
            text="".join(chunk.text for chunk in self.chunks),
            num_tokens=self.num_tokens,
            confidences=tuple(self.confidences),
            probes=tuple(self.probes),
            sureness=tuple(self.sureness),
        )

    async def ask(self, probe: Probe, count: int) -> None:
        """Lets it answer now, beside what it goes on to write."""
        written = self.partial(call=f"{self.scope.path}#{self.index}")
        answering = self.scope.stream(
            self.scope.append(written, probe.cue),
            index=self.index + count,
            max_tokens=probe.max_tokens,
            sampling=_GREEDY,
            at_least=probe.max_tokens,
            booked_as="probe",
        )
        answer: Branch | None = None
        try:
            async for chunk in answering:
                answer = chunk.branch
        except EngineError as error:  # it says nothing, and costs what it had written
            self.asked.append(replace(written, call=error.call))
        if answer is not None:
            self.probed = answer
            self.asked.append(answer)
        self.probes.append("" if answer is None else probe.cue + answer.text)
        logprobs = answer.logprobs if answer is not None else None
        self.sureness.append(exp(fmean(logprobs)) if logprobs else None)

    def conclude(self, *, drop: bool) -> None:
        """Ends it; unless it is dropped, it stands with its probe's answer, or as it is."""
        self.stop()
        if not drop:
            here = self.partial(call=f"{self.scope.path}#{self.index}")
            written = replace(here, finish_reason="stop")
            finished = self.whole(written)
            if self.probed is not None:
                chosen = self.scope.finish(self.candidate, self.probed)
                finished = replace(chosen, usage=finished.usage)
            self.result = replace(finished, status="finished")

    def whole(self, written: Branch) -> Candidate:
        """The candidate that its trace makes; its usage is the trace's and that of its probes."""
        spent = self.candidate
        for probe in self.asked:
            spent = self.scope.finish(spent, probe)
        return self.scope.finish(spent, written)

    def stop(self) -> None:
        """Ends it without a result, unless it has one."""
        if not self.has_ended:
            self.has_ended = True
            self.stream.stop()
