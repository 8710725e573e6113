"""AdaptiveBranchingMCTS: write anew or revise, whichever is likely to score higher.

A node is a whole answer. Below the root answers are written anew; below an answer they are
revisions of it, by a model that is shown the answer and its score. The policy, which decides
between wider and deeper, is `adaptive_branching`.

Source: AB-MCTS, Inoue et al. 2025, arXiv 2503.04412.
Differs: see the policy; the prompt of a revision is ours.
Cost: `max_expansions` calls and as many scores; a revision's prompt holds the answer that it
revises.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import ClassVar, get_args

from ttc.flow import verifier_cost
from ttc.graph import Cost, Flow, Node, Port, after, is_count
from ttc.lengths import largest
from ttc.messages import Message
from ttc.ports import Scope, Stream, Verifier
from ttc.registry import install_hint
from ttc.strategies.calls import start_of
from ttc.strategies.tree.actions import Action, action_faults
from ttc.strategies.tree.adaptive_branching import AdaptivePolicy, Variant
from ttc.strategies.tree.driver import Driver, Search
from ttc.strategies.tree.policy import Expansion
from ttc.strategies.tree.several_models import named_actions, range_faults
from ttc.strategies.verify import verifier_demands
from ttc.types import Candidate, Order, Problem, Sampling

__all__ = ["AdaptiveBranchingMCTS"]


@dataclass(frozen=True)
class AdaptiveBranchingMCTS(Node):
    """Gives every answer that it wrote, in the order of the search."""

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "many")

    verifier: Verifier
    """What scores an answer."""
    variant: Variant = field(default="M", kw_only=True)
    """Where a draw comes from: `M`, `gaussian` or `beta`."""
    max_expansions: int = field(default=32, kw_only=True)
    """Answers in all."""
    revise: str = field(
        default="A check gave this solution the score {score}, of at most 1. Find what is wrong "
        "with it or could be better, and write a whole new solution with its answer.",
        kw_only=True,
    )
    """What a model is asked that is shown an answer; `{score}` becomes its score."""
    temperature: float = field(default=0.8, kw_only=True)
    max_tokens: int = field(default=512, kw_only=True)
    """The most output tokens of an answer."""
    actions: tuple[Action, ...] = field(default=(), kw_only=True)
    """The roles of the models that write answers, each with its price; `role` alone by default."""
    price_weight: float = field(default=0.0, kw_only=True)
    """The score that one unit of price is worth."""
    window: int = field(default=8, kw_only=True)
    """Answers in flight at most. It is a part of the strategy: another window is another search."""
    order: Order = field(default="launch", kw_only=True)
    role: str = field(default="policy", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.verifier, Verifier):
            raise TypeError(f"{self.verifier!r} is no verifier")

    @property
    def roles(self) -> frozenset[str]:
        """Whoever writes, and whom the verifier asks."""
        return self._writers | self.verifier.roles

    @property
    def _writers(self) -> frozenset[str]:
        return frozenset(action.name for action in named_actions(self.actions, self.role))

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """Of those that write what the verifier reads."""
        needs = verifier_demands(self.verifier, replace(given, roles=self._writers))
        return {**dict.fromkeys(self._writers, frozenset[str]()), **needs}

    def faults(self, given: Flow) -> list[str]:
        """Parameters that make no sense, and a verifier that cannot score an answer alone."""
        faults = [
            f"{name} is a whole number of at least 1, not {value!r}"
            for name in ("max_expansions", "max_tokens", "window")
            if not is_count(value := getattr(self, name))
        ]
        for name, value, known in (
            ("variant", self.variant, get_args(Variant)),
            ("order", self.order, get_args(Order)),
        ):
            if value not in known:
                faults.append(f"{name} is one of {', '.join(known)}, not {value!r}")
        try:
            Sampling(temperature=self.temperature)
            self.revise.format(score="0.50")
        except (TypeError, ValueError) as error:
            faults.append(str(error))
        except (AttributeError, LookupError):
            faults.append(f"revise is a text that knows {{score}} alone, not {self.revise!r}")
        if self.variant == "M" and find_spec("numpy") is None:
            faults.append(
                f"variant M needs numpy: {install_hint('local')}; or choose gaussian or beta"
            )
        if self.temperature == 0:
            faults.append("at temperature 0 all answers to a prompt are equal; set a temperature")
        if self.verifier.needs == "all":
            faults.append(
                f"{self.verifier.name} scores candidates beside each other, and {self.name} needs "
                "the score of each alone; choose another verifier"
            )
        if self.verifier.name in given.scores:
            faults.append(f"its candidates carry a score {self.verifier.name!r} already")
        actions = named_actions(self.actions, self.role)
        return faults + action_faults(actions, self.price_weight) + range_faults(self.verifier)

    def flow(self, given: Flow) -> Flow:
        """At most so many answers for each open candidate, with a score."""
        count = None if given.count is None else given.count * self.max_expansions
        scores = {**given.scores, self.verifier.name: self.verifier.range}
        return Flow(kind="finished", count=count, scores=scores, roles=self._writers)

    def longest(self, given: Flow) -> int | None:
        """An answer, whoever writes it."""
        return largest(*(given.grown(role, self.max_tokens) for role in self._writers))

    def bound(self, given: Flow) -> Cost:
        """Answers, each with another one that its prompt shows, and their scores."""
        answers = after(self, given)
        texts = answers.text, len(self.revise.encode())
        calls = [given.lengths.call(role, self.max_tokens, *texts) for role in self._writers]
        answer = Cost(tokens=largest(*calls), calls=1)
        return answer * answers.count + verifier_cost(self.verifier, answers)

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
        policy = AdaptivePolicy(
            variant=self.variant,
            revises=True,
            max_expansions=self.max_expansions,
            actions=named_actions(self.actions, self.role),
            price_weight=self.price_weight,
        )

        async def extend(parent: Candidate, expansion: Expansion) -> Candidate:
            return await self.extend(parent, expansion, scope)

        search = Search(
            policy=policy,
            expand=extend,
            verifier=self.verifier,
            window=self.window,
            order=self.order,
            most={"tokens": self.max_tokens, "calls": 1},
            most_given=self.max_expansions,
        )
        return Driver(search, scope, candidate, first=first)

    async def extend(self, parent: Candidate, expansion: Expansion, scope: Scope) -> Candidate:
        """An answer that is written anew, or in place of another."""
        role = expansion.action
        if expansion.depth == 1:
            prompt = start_of(parent, scope, role)
        else:
            prompt = scope.prompt(self._revision(parent, scope.problem), role)
        branch = await scope.generate(
            prompt,
            index=expansion.id,
            max_tokens=self.max_tokens,
            sampling=Sampling(temperature=self.temperature),
        )
        return scope.finish(parent, branch)

    def _revision(self, parent: Candidate, problem: Problem) -> Problem:
        """The problem, the answer that there is, and what is wanted of it."""
        score = parent.scores.get(self.verifier.name)
        known = "unknown" if score is None or score.value is None else f"{score.value:.2f}"
        wanted = self.revise.format(score=known)
        if problem.prompt is not None:
            return replace(problem, prompt=f"{problem.prompt}{parent.text}\n\n{wanted}\n\n")
        asked, said = problem.messages, parent.text
        if problem.continue_last:
            asked, said = asked[:-1], asked[-1].content + said
        turns = (
            Message(role="assistant", content=said),
            Message(role="user", content=wanted),
        )
        return replace(problem, messages=(*asked, *turns), continue_last=False)
