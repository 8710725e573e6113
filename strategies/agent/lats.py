"""LanguageAgentTreeSearch: Monte Carlo tree search over the turns of an agent.

A node of the tree is a turn: what the model thought, what it called, and what came of it. Its value
is a verifier's score of the trajectory up to there, mixed with how often its siblings called the
same. Children go on from the very tokens of their parent, and a reversible tool's state is that of
the path.

Source: Zhou et al. 2023, language agent tree search (arXiv 2310.04406), section 4: UCT with weight
sqrt 2, five children, a depth of seven, and the value lambda * score + (1 - lambda) * consistency.
Differs: consistency is counted among the siblings that were drawn before, so that a turn is valued
once; what failed trajectories teach is told where a turn begins, and in no prompt (see `lessons`),
and only where `memory` asks for it. Nothing that cannot be undone is called.
Cost: at most `max_expansions` turns with their calls, and a score and a lesson for each.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

from ttc.errors import EngineError
from ttc.flow import verifier_cost
from ttc.graph import Cost, Flow, Node, Port, after
from ttc.ports import Scope, Stream, Verifier
from ttc.strategies.agent.agent import Agent
from ttc.strategies.agent.lessons import Lessons
from ttc.strategies.agent.trajectory import AgentTurns, Trajectory
from ttc.strategies.calls import ended
from ttc.strategies.refinement import count_faults
from ttc.strategies.tree.driver import Driver, Search
from ttc.strategies.tree.monte_carlo import MonteCarloPolicy
from ttc.strategies.tree.policy import Expansion
from ttc.strategies.tree.several_models import range_faults
from ttc.strategies.verify import verifier_demands
from ttc.types import Branch, Candidate, Order, Problem, Score

__all__ = ["LanguageAgentTreeSearch"]


@dataclass(frozen=True)
class LanguageAgentTreeSearch(Node):
    """Gives every trajectory that came to an answer, in the order of the search."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    verifier: Verifier
    """What scores a trajectory, finished or not, between 0 and 1."""
    agent: Agent = field(kw_only=True)
    """Whose turns are searched over; its `n` and `select` have no place here."""
    max_expansions: int = field(default=32, kw_only=True)
    """Turns in all."""
    width: int = field(default=5, kw_only=True)
    """The most turns that are tried after one."""
    exploration_weight: float = field(default=math.sqrt(2), kw_only=True)
    """What little knowledge weighs against the value."""
    consistency: float = field(default=0.2, kw_only=True)
    """What agreement among siblings weighs in a value; the score weighs the rest."""
    memory: int = field(default=0, kw_only=True)
    """The last so many lessons of failed trajectories that a turn is told; with 0 none is drawn."""
    enough: float = field(default=1.0, kw_only=True)
    """A score below which a trajectory that has ended has failed, where there are lessons."""
    window: int = field(default=8, kw_only=True)
    """Turns in flight at most. It is a part of the strategy."""
    order: Order = field(default="launch", kw_only=True)
    """`launch`, or `arrival`: results are told as they come, and the outcome depends on timing."""

    def __post_init__(self) -> None:
        given: dict[str, tuple[Any, type]] = {
            "verifier": (self.verifier, Verifier),
            "agent": (self.agent, Agent),
        }
        for name, (value, kind) in given.items():
            if not isinstance(value, kind):
                raise TypeError(f"{value!r} is no {name}")

    @property
    def roles(self) -> frozenset[str]:
        """Who speaks, and whom the verifier asks."""
        return frozenset({self.agent.role}) | self.verifier.roles

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """Forks of the agent's model, and what the verifier needs."""
        role = self.agent.role
        needs = verifier_demands(self.verifier, replace(given, roles=frozenset({role})))
        return {**needs, role: needs.get(role, frozenset()) | {"tokens", "fork"}}

    def faults(self, given: Flow) -> list[str]:
        """What is wrong with the agent, with numbers, and with scores that cannot be weighed."""
        counts = {name: getattr(self, name) for name in ("max_expansions", "width", "window")}
        faults = self.agent.faults(given) + count_faults(**counts) + range_faults(self.verifier)
        for name, number, most in (
            ("exploration_weight", self.exploration_weight, math.inf),
            ("consistency", self.consistency, 1.0),
            ("enough", self.enough, 1.0),
        ):
            if not (math.isfinite(number) and 0 <= number <= most):
                faults.append(f"{name} lies between 0 and {most:g}, not at {number!r}")
        if self.memory != 0 or isinstance(self.memory, bool):
            faults += count_faults(memory=self.memory)
        if self.order not in get_args(Order):
            faults.append(f"order is launch or arrival, not {self.order!r}")
        if self.agent.n != 1 or self.agent.select is not None:
            faults.append("the tree forks the agent's turns; leave out its n and its select")
        if acting := [t.name for t in self.agent.kit if t.effect == "irreversible"]:
            faults.append(f"a search undoes what it tried, and {acting[0]} cannot be undone")
        if self.verifier.needs == "all":
            faults.append(f"{self.verifier.name} scores candidates beside each other only")
        return faults

    def flow(self, given: Flow) -> Flow:
        """At most one for each turn, with a score."""
        count = None if given.count is None else given.count * self.max_expansions
        scores = {self.verifier.name: self.verifier.range}
        return Flow(kind="finished", count=count, scores=scores, roles=frozenset({self.agent.role}))

    def bound(self, given: Flow) -> Cost:
        """Turns, votes and calls; what tools write is bounded by the context alone."""
        turns = after(self, given)
        each = self.agent.turn_cost(given) + Cost(calls=self.agent.max_calls)
        if self.memory:
            tokens = given.lengths.call(self.agent.role, self.agent.max_tokens, None)
            each += Cost(tokens=tokens, calls=1)
        return each * turns.count + verifier_cost(self.verifier, turns)

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Searches from one open candidate after the other."""
        first = 0
        async for candidate in candidates:
            try:
                turns = self.agent.turns(scope)
            except EngineError as error:  # the model has no form for it, or no room
                if (failed := ended(scope, candidate, error)) is not None:
                    yield failed
                continue
            driver = self._driver(turns, turns.begun(candidate), first)
            async for found in driver.run():
                yield found
            first += driver.state.tree.num_asks

    def _driver(self, turns: AgentTurns, root: Trajectory, first: int) -> Driver:
        known = {root.candidate.branch: root}
        siblings = _Siblings(self.verifier, self.consistency)
        lessons = self._lessons(turns)
        each = self.agent.votes + (self.memory > 0)

        async def extend(parent: Candidate, expansion: Expansion) -> Candidate:
            before = known[parent.branch]
            before = lessons.told(before, expansion.parent, expansion.id - first)
            grown = await turns.speak(before, expansion.id * each)
            key = turns.key(grown) if grown.wanted else grown.candidate.key
            if not grown.is_over:
                grown = await turns.answer(grown)
            known[grown.candidate.branch] = grown
            siblings.add(parent.branch, expansion.id, key, grown.candidate.branch)
            return grown.candidate

        async def learn(candidate: Candidate, number: int) -> None:
            score = candidate.scores[self.verifier.name]
            if score.value is not None:  # the verifier's own, without what siblings add
                score = replace(score, value=score.evidence["score"])
            await lessons.draw(candidate, score, number - first, number * each + self.agent.votes)

        search = Search(
            policy=MonteCarloPolicy(
                exploration_weight=self.exploration_weight,
                widening_factor=self.width,
                widening_exponent=0.0,
                max_expansions=self.max_expansions,
            ),
            expand=extend,
            learn=learn,
            verifier=siblings,
            window=self.window,
            order=self.order,
            most={
                "tokens": self.agent.votes * self.agent.max_tokens,
                "calls": self.agent.votes,
            },
            most_given=self.max_expansions,
        )
        return Driver(search, turns.scope, root.candidate, first=first)

    def _lessons(self, turns: AgentTurns) -> Lessons:
        return Lessons(
            conversation=turns.conversation,
            sampling=replace(turns.sampling, constraint=None),
            max_tokens=turns.max_tokens,
            memory=self.memory,
            enough=self.enough,
            window=self.window,
            last=self.max_expansions,
        )


class _Siblings:
    """A verifier's score of a turn, mixed with the share of earlier siblings that did the same."""

    def __init__(self, verifier: Verifier, weight: float) -> None:
        self.name, self.range, self.requires = verifier.name, verifier.range, verifier.requires
        self.needs: Literal["each", "all"] = "each"
        self.roles, self.parts = verifier.roles, (verifier,)
        self._verifier, self._weight = verifier, weight
        self._drawn: dict[Branch, dict[int, object]] = {}
        self._place: dict[Branch, tuple[Branch, int]] = {}

    def add(self, parent: Branch, number: int, key: object, branch: Branch) -> None:
        """Notes what a turn does."""
        self._drawn.setdefault(parent, {})[number] = key
        self._place[branch] = parent, number

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> Sequence[Score]:
        """One score for each turn."""
        scores = await scope.verify(self._verifier, candidates)
        return [self._mixed(c, score) for c, score in zip(candidates, scores, strict=True)]

    def _mixed(self, candidate: Candidate, score: Score) -> Score:
        if score.value is None:
            return score
        share = self._share(candidate.branch)
        value = (1 - self._weight) * score.value + self._weight * share
        evidence = {**score.evidence, "score": score.value, "consistency": share}
        return replace(score, value=value, evidence=evidence)

    def _share(self, branch: Branch) -> float:
        """The part of the turns drawn here, up to this one, that do the same."""
        parent, number = self._place[branch]
        drawn = [key for n, key in self._drawn[parent].items() if n <= number]
        return drawn.count(self._drawn[parent][number]) / len(drawn)
