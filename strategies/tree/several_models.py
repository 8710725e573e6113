"""SeveralModels: a search over steps in which each step is written by one of several models.

Each model reads what the others wrote as text, token by token as it tokenises it; its own steps it
goes on from as they are. Which one writes is for the policy to choose, by scores and prices.

Source: several models in one tree, Inoue et al. 2025, arXiv 2503.04412.
Cost: a model that goes on from another's step reads the trajectory as a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ttc.graph import Cost, Flow
from ttc.lengths import largest
from ttc.ports import Scope, Verifier
from ttc.strategies.tree.actions import Action, action_faults
from ttc.strategies.tree.policy import Expansion
from ttc.strategies.tree.search import TreeSearch
from ttc.types import Candidate

__all__ = ["SeveralModels", "named_actions", "range_faults"]


@dataclass(frozen=True)
class SeveralModels(TreeSearch):
    """Lets the models of several roles write steps of one tree."""

    actions: tuple[Action, ...] = field(default=(), kw_only=True)
    """The roles of the models that write steps, each with its price; `role` alone by default."""
    price_weight: float = field(default=0.0, kw_only=True)
    """The score that one unit of price is worth."""

    @property
    def roles(self) -> frozenset[str]:
        """Whoever writes steps, and whom the verifier asks."""
        return self._writers | self.judge.roles

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """Of each model that writes what is needed of one."""
        demands: dict[str, frozenset[str]] = {}
        for action in named_actions(self.actions, self.role):
            alone = replace(self, role=action.name, actions=())
            for role, needs in TreeSearch.demands(alone, given).items():
                demands[role] = demands.get(role, frozenset()) | needs
        return demands

    def faults(self, given: Flow) -> list[str]:
        """Prices that mean nothing, and scores that are not between 0 and 1."""
        actions = named_actions(self.actions, self.role)
        faults = super().faults(given) + action_faults(actions, self.price_weight)
        return faults + range_faults(self.verifier)

    def flow(self, given: Flow) -> Flow:
        """With the tokens of all who write."""
        return replace(super().flow(given), roles=self._writers)

    def longest(self, given: Flow) -> int | None:
        """All steps of a trajectory, whoever writes them."""
        alone = (replace(self, role=role, actions=()) for role in self._writers)
        return largest(*(TreeSearch.longest(one, given) for one in alone))

    def step_cost(self, given: Flow) -> Cost:
        """With the whole trajectory before it, where another model may have written that."""
        text, most = self.longest(given), self.steps.max_tokens
        calls = [given.lengths.call(role, most, text) for role in self._writers]
        return Cost(tokens=largest(*calls), calls=1) if len(calls) > 1 else super().step_cost(given)

    @property
    def _writers(self) -> frozenset[str]:
        return frozenset(action.name for action in named_actions(self.actions, self.role))

    async def extend(self, parent: Candidate, expansion: Expansion, scope: Scope) -> Candidate:
        """A trajectory with one more step, by the model that was chosen."""
        role = expansion.action
        if parent.branch.role != role:
            root, text = scope.root(role), parent.branch.output
            parent = replace(parent, branch=scope.append(root, text) if text else root)
        return await super().extend(parent, expansion, scope)


def named_actions(actions: tuple[Action, ...], role: str) -> tuple[Action, ...]:
    """The actions of a search; the one role alone where none are given."""
    return actions or (Action(role),)


def range_faults(verifier: Verifier) -> list[str]:
    """What is wrong with a verifier whose scores are weighed against chances and bonuses."""
    bounds = verifier.range
    if bounds is not None and bounds[0] >= 0 and bounds[1] <= 1:
        return []
    return [
        f"the scores of {verifier.name} have the range {bounds}, and this search needs scores "
        "between 0 and 1; wrap the verifier in Calibrated(...)"
    ]
