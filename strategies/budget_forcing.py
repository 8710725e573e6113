"""BudgetForcing: thinking is ended at a cap, and kept from ending too early.

Source: Muennighoff et al. 2025, arXiv 2501.19393 (s1), section 3.1: at the cap the end of thinking
and an answer cue are appended; to think longer, its end is suppressed and `Wait` appended.
Differs: where a token limit is near, thinking is cut so far that every fork can still answer.
Cost: for each fork at most waits + 2 calls: `max_thinking` output tokens in all, and `max_tokens`
for the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ttc.errors import EngineError, TTCError
from ttc.graph import Cost, Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.strategies.calls import Ask, Calls, ended, resting_on, start_of
from ttc.strategies.refinement import count_faults, sampling_faults, text_faults
from ttc.types import Branch, Candidate, Sampling, Usage

__all__ = ["BudgetForcing", "suppressed"]


@dataclass(eq=False)
class _Fork:
    """One fork on its way."""

    candidate: Candidate
    branch: Branch
    left: int
    """Tokens that it may still think."""
    waits: int
    """How often its end may still be suppressed."""
    calls: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    thought: Branch | None = None
    """What it has thought last."""
    is_thinking: bool = True
    is_lost: bool = False
    """Whether a call failed or was refused while it thought."""
    result: Candidate | None = None
    """What it came to; a fork that was refused at once has none."""


@dataclass(frozen=True, kw_only=True)
class BudgetForcing(Node):
    """Forks every open candidate n times, lets each think within bounds, and then answer.

    A model that does not think in a block of its own thinks until its turn would end.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    n: int = 1
    """Forks of each open candidate."""
    max_thinking: int = 1024
    """The most tokens of thinking; then its end is forced."""
    waits: int = 0
    """How often the end of thinking is suppressed, as long as tokens are left."""
    wait: str = "\nWait"
    """What is appended in the place of the end."""
    opens: str = ""
    """What is appended to the prompt where its template does not open a thought."""
    ends: str = "</think>"
    """What ends a thought: one control token where the model has it, else plain text."""
    cue: str = "\nThe final answer is"
    """What is appended after the thought, so that an answer follows."""
    max_tokens: int = 256
    """The most output tokens of the answer."""
    temperature: float = 0.8
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """Who thinks."""
        return frozenset({self.role})

    @property
    def requires(self) -> frozenset[str]:
        """Tokens, to cut and to append to."""
        return frozenset({"tokens"})

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and no end to look for."""
        counts = {"n": self.n, "max_thinking": self.max_thinking, "max_tokens": self.max_tokens}
        faults = count_faults(**counts, **({"waits": self.waits} if self.waits != 0 else {}))
        faults += text_faults(ends=self.ends, role=self.role)
        faults += text_faults(wait=self.wait) if self.waits else []
        return faults + sampling_faults(self.temperature)

    def flow(self, given: Flow) -> Flow:
        """N for each one given."""
        count = None if given.count is None else given.count * self.n
        return Flow(kind="finished", count=count, roles=frozenset({self.role}))

    def longest(self, given: Flow) -> int | None:
        """Thoughts and answer."""
        return given.grown(self.role, self.max_thinking + self.max_tokens, self._appended)

    def bound(self, given: Flow) -> Cost:
        """All thinking and the answer; what is appended is bounded by its bytes."""
        tokens = self.max_thinking + self.max_tokens + len(self._appended.encode())
        return Cost(tokens=tokens, calls=self.waits + 2) * given.count * self.n

    @property
    def _appended(self) -> str:
        """All that may be appended to one fork."""
        return self.opens + self.ends + self.cue + (self.wait + self.ends) * self.waits

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Lets all forks think, and then all answer."""
        calls = Calls(scope)
        given = [candidate async for candidate in candidates]
        forks = [self._fork(candidate, scope) for candidate in given for _ in range(self.n)]
        while live := [fork for fork in forks if fork.is_thinking]:
            await self._think(live, calls, scope)
        await self._answer([f for f in forks if not f.is_lost], calls, scope)
        for fork in forks:
            if fork.result is not None:
                yield resting_on(fork.result, calls=fork.calls)
        calls.end()

    def _fork(self, candidate: Candidate, scope: Scope) -> _Fork:
        start = start_of(candidate, scope, self.role)
        branch = scope.append(start, self.opens) if self.opens else start
        return _Fork(candidate, branch, left=self.max_thinking, waits=self.waits)

    async def _think(self, live: Sequence[_Fork], calls: Calls, scope: Scope) -> None:
        """One call of each fork that thinks."""
        room = self._room(live, scope)
        if room < 1:
            for fork in live:
                self._close(fork, scope, is_forced=True)
            return
        sampling = Sampling(temperature=self.temperature)
        until: tuple[str | int, ...] = (self.ends, *self._control(live[0].branch, scope))
        asks = [
            Ask(
                of=fork.branch,
                max_tokens=min(fork.left, room),
                sampling=sampling,
                at_least=1,
                until=until,
            )
            for fork in live
        ]
        for fork, found in zip(live, await calls.generate(asks), strict=True):
            if not isinstance(found, Branch):
                fork.is_thinking, fork.is_lost = False, True
                fork.result = self._result(fork, found, scope)
                continue
            fork.thought = found
            fork.usage += scope.finish(Candidate(branch=found), found).usage
            fork.calls += [found.call] if found.call else []
            fork.left -= len(found.token_ids or ())
            self._go_on(fork, found, scope)

    async def _answer(self, forks: Sequence[_Fork], calls: Calls, scope: Scope) -> None:
        """One call of each fork; where it is refused, what was thought is what there is."""
        sampling = Sampling(temperature=self.temperature)
        asks = [
            Ask(of=fork.branch, max_tokens=self.max_tokens, sampling=sampling, at_least=1)
            for fork in forks
        ]
        for fork, found in zip(forks, await calls.generate(asks), strict=True):
            fork.result = self._result(fork, found, scope)

    @staticmethod
    def _result(fork: _Fork, found: Branch | TTCError, scope: Scope) -> Candidate | None:
        """What a fork comes to by its last call; where that fails, by what it has thought."""
        before = replace(fork.candidate, branch=fork.branch, usage=fork.usage)
        last = ended(scope, before, found)
        if isinstance(found, Branch) or fork.thought is None:
            return last
        usage = last.usage if last is not None else fork.usage
        return replace(scope.finish(fork.candidate, fork.thought), usage=usage)

    def _room(self, live: Sequence[_Fork], scope: Scope) -> int:
        """Tokens that each may think now, such that a token limit leaves every one its answer."""
        left = scope.remaining.tokens
        if left is None:
            return self.max_thinking
        texts = len((self.wait + self.ends + self.cue).encode())
        kept = len(live) * (self.max_tokens + texts) + max(f.branch.num_tokens for f in live)
        return (left - kept) // len(live)

    def _go_on(self, fork: _Fork, found: Branch, scope: Scope) -> None:
        """Ends a thought, or suppresses its end."""
        is_forced = found.finish_reason == "length"
        thought = found if is_forced else suppressed(scope, found, self.ends)
        fork.branch = found if thought is None else thought
        if fork.waits and not is_forced and fork.left > 0 and thought is not None:
            fork.waits -= 1
            fork.branch = scope.append(thought, self.wait)
        else:
            self._close(fork, scope, is_forced=is_forced)

    def _close(self, fork: _Fork, scope: Scope, *, is_forced: bool) -> None:
        """Appends the end of the thought, and the cue."""
        fork.is_thinking = False
        if is_forced:
            scope.decide("forced_end", end=False, left=fork.left)
        as_token = bool(self._control(fork.branch, scope))
        fork.branch = scope.append(fork.branch, self.ends, as_token=as_token)
        if self.cue:
            fork.branch = scope.append(fork.branch, self.cue)

    def _control(self, branch: Branch, scope: Scope) -> tuple[int, ...]:
        """The control token that ends a thought, where the model has one."""
        try:
            return scope.append(branch, self.ends, as_token=True).token_ids or ()
        except EngineError:
            return ()


def suppressed(scope: Scope, found: Branch, ends: str) -> Branch | None:
    """What a call generated, less the end that it came to; `None` where that cannot be cut out.

    An end token needs no cut: a call goes on in its place. A text is cut out token by token; where
    it began inside a token, the text before it is appended again, in no more tokens than the end
    has bytes.
    """
    if not isinstance(found.stop_reason, str) or found.parent is None:
        return found
    ids, given = found.token_ids or (), scope.append(found.parent, found.text).token_ids or ()
    same = 0
    while same < min(len(ids), len(given)) and ids[same] == given[same]:
        same += 1
    if len(given) - same > len(ends.encode()):
        return None
    measures = {
        name: values[:same]
        for name in ("logprobs", "entropies", "self_certainties", "top_logprobs")
        if (values := getattr(found, name)) is not None
    }
    cut = replace(found, token_ids=ids[:same], stop_reason=None, **measures)
    if same == len(given):
        return cut
    return Branch(parent=cut, role=cut.role, text="", token_ids=given[same:])
