"""Sample: independent continuations of every open candidate.

Where models score every fork, a limit lets only those begin that can be scored, too; see `turns`.

Source: parallel test-time compute, as in Wang et al. 2022 (arXiv 2203.11171), section 2.
Cost: n calls and at most n x max_tokens output tokens for each open candidate; its prompt once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, fields
from itertools import count
from typing import ClassVar, Literal, get_args

from ttc.constraints import Constraint
from ttc.errors import PoolExhausted
from ttc.graph import Cost, Flow, Node, Port, is_count
from ttc.ports import Scope, Stream
from ttc.strategies.calls import start_of
from ttc.strategies.turns import PaidTurns
from ttc.types import PENALTIES, Budget, Candidate, Order, Sampling, Tail

__all__ = ["Sample"]

_AHEAD = 16
_IN_VAIN = 16  # forks that fail in a row, and cost no token, before no more are asked for
_SAMPLING = ("top_k", "top_p", "min_p", *PENALTIES, "logit_bias", "constraint")


@dataclass(frozen=True, kw_only=True)
class Sample(Node):
    """Forks every open candidate n times and lets the engine finish each fork.

    All forks of a prompt are asked for at once, unless `ahead` says otherwise, or a limit that has
    to pay for their scores as well; they come out in launch order. Fork i is drawn with a seed of
    its own, so the first four of `n=6` are those of `n=4`.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")
    passes_each: ClassVar[bool] = True

    n: int | Literal["budget"] = 1
    """Forks of each open candidate; `budget` forks until a limit refuses another, a pool holds no
    more, or 16 in a row have failed without costing a token."""
    temperature: float | tuple[float, ...] = 1.0
    """0 is greedy. A ladder, as `(0.2, 0.6, 1.0)`, is gone through by the forks, over and over."""
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Token ids, and what is added to their logits."""
    constraint: Constraint | None = None
    """What every fork has to be, as `Choice("yes", "no")`; it then ends by itself."""
    max_tokens: int = 512
    """The most output tokens of one fork, and what is reserved for it."""
    at_least: int | None = None
    """The fewest tokens that a tight budget may shrink `max_tokens` to; half by default."""
    until: tuple[str, ...] = ()
    """Strings that end a fork."""
    tail: Tail | None = None
    """What follows a fork that was cut by its length."""
    ahead: int | None = None
    """Forks in flight at once; `None` is all of them, or 16 where nothing but the budget bounds
    them. It is a part of the strategy."""
    order: Order = "launch"
    """`launch`, or `arrival`: as they end. That favours short ones, and depends on timing."""
    role: str = "policy"

    @property
    def roles(self) -> frozenset[str]:
        """The role that is sampled."""
        return frozenset({self.role})

    @property
    def requires(self) -> frozenset[str]:
        """An engine that holds to a constraint, or takes a bias, where there is one."""
        needs = {"grammar": self.constraint is not None, "logit_bias": bool(self.logit_bias)}
        return frozenset(name for name, is_needed in needs.items() if is_needed)

    def samplings(self) -> tuple[Sampling, ...]:
        """How tokens are drawn: of fork i by the i-th, over and over."""
        ladder = self.temperature if isinstance(self.temperature, tuple) else (self.temperature,)
        options = {name: getattr(self, name) for name in _SAMPLING}
        return tuple(Sampling(temperature=t, **options) for t in ladder)

    def faults(self, given: Flow) -> list[str]:
        """Parameters of a wrong kind, and numbers out of range."""
        counts: dict[str, object] = {"max_tokens": self.max_tokens}
        counts |= {} if self.n == "budget" else {"n": self.n}
        optional = {"ahead": self.ahead, "at_least": self.at_least}
        counts |= {name: value for name, value in optional.items() if value is not None}
        faults = [
            f"{name} is a whole number of at least 1, not {value!r}"
            for name, value in counts.items()
            if not is_count(value)
        ]
        if not faults and self.at_least is not None and self.at_least > self.max_tokens:
            faults.append(f"at_least ({self.at_least}) is more than max_tokens ({self.max_tokens})")
        if isinstance(self.temperature, list):
            ladder = tuple(self.temperature)
            return [*faults, f"a ladder of temperatures is a tuple, {ladder}, not a list"]
        try:
            if not self.samplings():
                faults.append("temperature is a number, or a ladder of at least one")
        except (TypeError, ValueError) as error:
            faults.append(str(error))
        if self.order not in get_args(Order):
            faults.append(f"order is launch or arrival, not {self.order!r}")
        if self.constraint is not None and (self.until or self.tail is not None):
            faults.append(
                "a constraint says where a text ends, so until and tail have no place beside it"
            )
        return faults + _text_faults(self.until, self.tail, self.role)

    def flow(self, given: Flow) -> Flow:
        """`n` finished candidates for each one given."""
        n = self.n if isinstance(self.n, int) and is_count(self.n) else None
        count = None if given.count is None or n is None else given.count * n
        roles = frozenset({self.role})
        return Flow(kind="finished", count=count, scores=given.scores, roles=roles)

    def longest(self, given: Flow) -> int | None:
        """A fork with its tail."""
        tail = (self.tail.max_tokens, self.tail.cue) if self.tail else (0, "")
        return given.grown(self.role, self.max_tokens + tail[0], tail[1])

    def bound(self, given: Flow) -> Cost:
        """Every fork as long as it may be; a cue's bytes bound its tokens."""
        return self._most * self.flow(given).count

    @property
    def _most(self) -> Cost:
        tail = len(self.tail.cue.encode()) + self.tail.max_tokens if self.tail else 0
        return Cost(tokens=self.max_tokens + tail, calls=1)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Forks, generates, and yields in launch order."""
        samplings = self.samplings()
        turns = PaidTurns.of(scope, self._most)
        forks = _Forks(candidates, None if self.n == "budget" else self.n)

        async def draw(candidate: Candidate, index: int) -> Candidate:
            fork = index if self.n == "budget" else index % self.n
            try:
                branch = await scope.generate(
                    start_of(candidate, scope, self.role),
                    index=index,
                    max_tokens=self.max_tokens,
                    sampling=samplings[fork % len(samplings)],
                    at_least=self.at_least,
                    until=self.until,
                    tail=self.tail,
                )
            except PoolExhausted as dry:
                if self.n != "budget":
                    raise
                raise dry.as_limit() from None
            drawn = scope.finish(candidate, branch)
            if turns is not None:
                turns.told(candidate, drawn)
            return drawn

        ahead = self._checked_ahead(scope.remaining)
        items, each = (forks.at_once(), forks.n or 1) if turns is None else (forks.by(turns), 1)
        async for candidate in scope.map(draw, items, ahead=ahead, order=self.order, each=each):
            forks.drew(candidate)
            yield candidate

    def _checked_ahead(self, remaining: Budget) -> int | None:
        """Forks in flight at once, where there is something that will end them."""
        if self.n != "budget":
            return self.ahead
        if all(getattr(remaining, field.name) is None for field in fields(Budget)):
            raise ValueError("n='budget' samples until a limit ends it, and there is no limit")
        return self.ahead or _AHEAD


class _Forks:
    """What is drawn from: each candidate n times, or one until nothing comes of it any more."""

    def __init__(self, candidates: Stream[Candidate], n: int | None) -> None:
        self.n = n
        """Forks of each candidate; `None` is as many as a limit allows."""
        self._candidates = candidates
        self._in_vain = self._spent_before = 0

    async def at_once(self) -> AsyncGenerator[Candidate, None]:
        """Each candidate once, for all its forks; one that has no number comes over and over."""
        async for candidate in self._candidates:
            self._spent_before = candidate.usage.tokens
            if self.n is not None:
                yield candidate
                continue
            while self._in_vain < _IN_VAIN:
                yield candidate
            return

    async def by(self, turns: PaidTurns) -> AsyncGenerator[Candidate, None]:
        """Each candidate for each of its forks, once its turn has come."""
        for candidate in [candidate async for candidate in self._candidates]:
            self._spent_before = candidate.usage.tokens
            for _ in count() if self.n is None else range(self.n):
                if self.n is None and self._in_vain >= _IN_VAIN:
                    return
                await turns.begin()
                yield candidate

    def drew(self, candidate: Candidate) -> None:
        """Takes note of what came of a fork."""
        is_in_vain = candidate.status == "failed" and candidate.usage.tokens == self._spent_before
        self._in_vain = self._in_vain + 1 if is_in_vain else 0


def _text_faults(until: object, tail: object, role: object) -> list[str]:
    faults = []
    if not isinstance(until, tuple) or not all(isinstance(end, str) and end for end in until):
        faults.append(f"until is a tuple of strings, none of them empty, not {until!r}")
    if not isinstance(tail, Tail | None):
        faults.append(f"tail={tail!r} is no Tail")
    if not isinstance(role, str) or not role:
        faults.append(f"role is the name of a model's role, not {role!r}")
    return faults
