"""The policy of BG-MCTS: it explores while much of the budget is left, and finishes at its end.

With u, the share of the token budget that is spent, growing from 0 to 1:

    value of a node      mean over its subtree of score + kappa * u * depth / D
    score of a child     value + c * (1 - u) * prior * sqrt(ln N_parent / N_child)
    score of a new one   mean of the children's scores + lambda * (1 - u) * their variance

so that late in the budget deep nodes are favoured, and new branches are not. The walk goes to the
best child as long as it beats a new one.

Source: BG-MCTS, Miyamoto et al. 2026, arXiv 2602.09574.
Differs: u is tokens told over the token budget; D, the mean depth of finished answers, is the
deepest depth until there is one; the variance of fewer than two children is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from immutables import Map

from ttc.strategies.tree.nodes import Tree, TreeNode
from ttc.strategies.tree.open_nodes import OpenNodes
from ttc.strategies.tree.policy import Expansion, Result

__all__ = ["BudgetGuidedPolicy", "BudgetGuidedState"]

_FIRST_CHILDREN = 2
"""Children that a node gets before anything else is asked of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetGuidedState:
    """The tree, where it can grow, and how deep it is."""

    tree: Tree
    open_nodes: OpenNodes
    depths: Map[int, int] = field(default_factory=Map)
    """For each node the depths of all nodes told in its subtree, summed up."""
    deepest: int = 1
    num_finished: int = 0
    """Finished answers."""
    finished_depth: int = 0
    """Their depths, summed up."""


@dataclass(frozen=True, kw_only=True)
class BudgetGuidedPolicy:
    """Widens early and deepens late."""

    token_budget: int
    """The tokens that the search may spend. Once that many are told, it asks for nothing more."""
    max_expansions: int | None = None
    """The most asks."""
    exploration_weight: float = math.sqrt(2)
    """c."""
    depth_weight: float = 1.0
    """kappa."""
    width_weight: float = 1.0
    """lambda."""

    def init(self) -> BudgetGuidedState:
        """A root that can grow."""
        return BudgetGuidedState(tree=Tree.planted(), open_nodes=OpenNodes.planted())

    def ask(
        self, state: BudgetGuidedState, seed: int
    ) -> tuple[BudgetGuidedState, Expansion | None]:
        """The node at which a new child beats those that there are. Nothing in it is random."""
        tree, open_nodes = state.tree, state.open_nodes
        if 0 not in open_nodes or self._is_over(tree):
            return state, None
        node = tree[0]
        while len(node.children) >= _FIRST_CHILDREN:
            siblings = [child for child in tree.children(node.id) if child.num_visits]
            can_grow = [child for child in siblings if child.id in open_nodes]
            if not can_grow:
                break
            best, score = self._best(state, node, siblings, can_grow)
            if score <= self._new(state, siblings):
                break
            node = best
        tree, expansion = tree.expand(node.id)
        return replace(state, tree=tree), expansion

    def tell(self, state: BudgetGuidedState, result: Result) -> BudgetGuidedState:
        """Backs score and depth up; an unknown score leaves the depth."""
        tree, open_nodes = state.tree.record(result), state.open_nodes
        node = tree[result.id]
        if node.status == "open":
            open_nodes = open_nodes.add(tree, node.id)
        is_finished = node.status == "finished"
        depths, deepest = state.depths, state.deepest
        if node.num_visits:  # it was not cancelled
            deepest = max(deepest, node.depth)
            changed = depths.mutate()
            for above in tree.path(node.id):
                changed[above.id] = changed.get(above.id, 0) + node.depth
            depths = changed.finish()
        return replace(
            state,
            tree=tree,
            open_nodes=open_nodes,
            depths=depths,
            deepest=deepest,
            num_finished=state.num_finished + is_finished,
            finished_depth=state.finished_depth + node.depth * is_finished,
        )

    def spent(self, state: BudgetGuidedState) -> float:
        """u: the share of the budget that is spent, at most 1."""
        return min(1.0, state.tree.tokens / self.token_budget)

    def value(self, state: BudgetGuidedState, node: TreeNode) -> float | None:
        """What is expected of a node; `None` where no score in its subtree is known."""
        if node.mean_value is None:
            return None
        depth: float = state.deepest
        if state.num_finished:
            depth = state.finished_depth / state.num_finished
        mean_depth = state.depths[node.id] / node.num_visits
        return node.mean_value + self.depth_weight * self.spent(state) * mean_depth / depth

    def _is_over(self, tree: Tree) -> bool:
        return tree.num_asks == self.max_expansions or tree.tokens >= self.token_budget

    def _best(
        self,
        state: BudgetGuidedState,
        node: TreeNode,
        siblings: Sequence[TreeNode],
        can_grow: Sequence[TreeNode],
    ) -> tuple[TreeNode, float]:
        """The open child with the highest selection score, the first of equal ones."""
        left = 1.0 - self.spent(state)
        fallback = self.value(state, node) or 0.0
        priors = _softmax(siblings)
        scores = []
        for child in can_grow:
            known = self.value(state, child)
            explore = math.sqrt(math.log(node.num_visits) / child.num_visits)
            value = fallback if known is None else known
            scores.append(value + self.exploration_weight * left * priors[child.id] * explore)
        best = max(scores)
        return can_grow[scores.index(best)], best

    def _new(self, state: BudgetGuidedState, siblings: Sequence[TreeNode]) -> float:
        """The score of a child that is still to be generated."""
        scores = [child.value for child in siblings if child.value is not None]
        if not scores:
            return 0.0
        mean = fmean(scores)
        variance = fmean((score - mean) ** 2 for score in scores)
        return mean + self.width_weight * (1.0 - self.spent(state)) * variance


def _softmax(siblings: Sequence[TreeNode]) -> dict[int, float]:
    """Priors by the nodes' own scores; an unknown one counts as the mean of the others."""
    known = [child.value for child in siblings if child.value is not None]
    mean = fmean(known) if known else 0.0
    powers = {c.id: math.exp(mean if c.value is None else c.value) for c in siblings}
    total = sum(powers.values())
    return {id: power / total for id, power in powers.items()}
