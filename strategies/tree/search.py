"""TreeSearch: what the nodes that search over steps have in common.

A node of this kind is a policy with its parameters. Here is what is around it: how a trajectory is
extended by a step, what that may cost at most, and what is wrong with the parameters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

from ttc.flow import verifier_cost
from ttc.graph import Cost, Flow, Node, Port, is_count
from ttc.lengths import times
from ttc.ports import Scope, Stream, Verifier
from ttc.strategies.calls import start_of
from ttc.strategies.tree.driver import Driver, Search
from ttc.strategies.tree.policy import Expansion, Policy
from ttc.strategies.tree.steps import Delimiter, StepRule, next_step
from ttc.strategies.verify import verifier_demands
from ttc.types import Candidate, Order, Sampling

__all__ = ["TreeSearch"]


@dataclass(frozen=True)
class TreeSearch(Node):
    """Extends every open candidate step by step, as a policy decides; a verifier scores steps."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")
    compares: ClassVar[bool] = False
    """Whether its policy can ask for scores of nodes beside each other."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Its own parameters that are whole numbers of at least 1."""

    verifier: Verifier
    """What scores a trajectory, finished or not."""
    steps: StepRule = field(default_factory=Delimiter, kw_only=True)
    """Where a trajectory may be cut: `Delimiter()`, `Sentence()`, `FixedLength()`."""
    max_steps: int = field(default=32, kw_only=True)
    """The most steps of a trajectory; what has not ended by then is truncated."""
    temperature: float = field(default=0.8, kw_only=True)
    top_p: float | None = field(default=None, kw_only=True)
    window: int = field(default=64, kw_only=True)
    """Steps in flight at most. It is a part of the strategy: another window is another search."""
    order: Order = field(default="launch", kw_only=True)
    """`launch`, or `arrival`: results are told as they come, and the outcome depends on timing."""
    role: str = field(default="policy", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.verifier, Verifier):
            raise TypeError(f"{self.verifier!r} is no verifier")

    @abstractmethod
    def policy(self, scope: Scope) -> Policy[Any]:
        """What decides, for one open candidate."""

    @property
    @abstractmethod
    def most_expansions(self) -> int | None:
        """The most steps that it draws for one open candidate."""

    @property
    def most_given(self) -> int | None:
        """The most candidates that it gives for each open one."""
        return self.most_expansions

    @property
    def judge(self) -> Verifier:
        """What the driver asks: the verifier, or what stands around it."""
        return self.verifier

    @property
    def roles(self) -> frozenset[str]:
        """Whose steps it draws, and whom the verifier asks."""
        return frozenset({self.role}) | self.judge.roles

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """Tokens that can be forked and cut of its own role, and what the verifier needs."""
        own = frozenset({"tokens", "fork", "cut"}) | self.steps.requires
        needs = verifier_demands(self.verifier, replace(given, roles=frozenset({self.role})))
        return {**needs, self.role: needs.get(self.role, frozenset()) | own}

    def faults(self, given: Flow) -> list[str]:
        """Parameters that make no sense, and a verifier that cannot score a trajectory alone."""
        faults = [
            f"{name} is a whole number of at least 1, not {value!r}"
            for name in ("max_steps", "window", *self.counts)
            if not is_count(value := getattr(self, name))
        ]
        if not isinstance(self.steps, StepRule):
            faults.append(f"steps={self.steps!r} is no rule; pass Delimiter(), say")
        if self.order not in get_args(Order):
            faults.append(f"order is launch or arrival, not {self.order!r}")
        if not self.role:
            faults.append(f"role is the name of a model's role, not {self.role!r}")
        try:
            self._sampling()
        except (TypeError, ValueError) as error:
            faults.append(str(error))
        if self.temperature == 0:
            faults.append("at temperature 0 all children of a step are equal; set a temperature")
        if self.verifier.needs == "all" and not self.compares:
            faults.append(
                f"{self.verifier.name} scores candidates beside each other, and {self.name} needs "
                "the score of each alone; choose another verifier, or tree_of_thoughts()"
            )
        if self.verifier.name in given.scores:
            faults.append(f"its candidates carry a score {self.verifier.name!r} already")
        return faults

    def flow(self, given: Flow) -> Flow:
        """At most so many finished candidates for each one given, with a score."""
        each = self.most_given
        count = None if given.count is None or each is None else given.count * each
        scores = {**given.scores, self.verifier.name: self.verifier.range}
        return Flow(kind="finished", count=count, scores=scores, roles=frozenset({self.role}))

    def longest(self, given: Flow) -> int | None:
        """All steps of a trajectory."""
        return given.grown(self.role, self.max_steps * self.steps.max_tokens)

    def bound(self, given: Flow) -> Cost:
        """Every step as long as it may be, and its score."""
        num_steps = times(given.count, self.most_expansions)
        scored = replace(given, count=num_steps, text=self.longest(given))
        return self.step_cost(given) * num_steps + self.score_cost(scored)

    def step_cost(self, given: Flow) -> Cost:
        """The most that one step costs."""
        return Cost(tokens=self.steps.max_tokens, calls=1)

    def score_cost(self, scored: Flow) -> Cost:
        """The most that the scores of all trajectories cost."""
        return verifier_cost(self.judge, scored)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Searches from one open candidate after the other."""
        first = 0
        async for candidate in candidates:
            driver = self.driver(scope, candidate, first)
            async for found in driver.run():
                yield found
            first += driver.state.tree.num_asks

    def driver(self, scope: Scope, candidate: Candidate, first: int = 0) -> Driver:
        """The search from one open candidate."""

        async def extend(parent: Candidate, expansion: Expansion) -> Candidate:
            return await self.extend(parent, expansion, scope)

        search = Search(
            policy=self.policy(scope),
            expand=extend,
            verifier=self.judge,
            window=self.window,
            order=self.order,
            most={"tokens": self.steps.max_tokens, "calls": 1},
            most_given=self.most_given,
            complete=self.complete,
        )
        return Driver(
            search,
            scope,
            replace(candidate, branch=start_of(candidate, scope, self.role)),
            first=first,
        )

    def complete(self, candidate: Candidate, node: int, state: Any) -> Candidate:
        """What is given for a node that the policy has found."""
        return candidate

    async def extend(self, parent: Candidate, expansion: Expansion, scope: Scope) -> Candidate:
        """A trajectory with one more step: open, unless it has come to an end."""
        branch = await next_step(
            parent.branch, self.steps, scope, index=expansion.id, sampling=self._sampling()
        )
        if branch.finish_reason is None and expansion.depth >= self.max_steps:
            branch = replace(branch, finish_reason="length")
        return scope.finish(parent, branch, is_open=branch.finish_reason is None)

    def _sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p)
