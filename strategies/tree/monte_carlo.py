"""The policy of Monte Carlo tree search: UCT, PUCT or WU-UCT, with progressive widening.

A walk goes down from the root: a node that may have another child gets one, else it goes on to the
child with the highest value plus exploration bonus. What is made so is followed to its end, step by
step, and each step is a node like any other, with the verifier's score of its prefix as its value.

Source: Kocsis and Szepesvári 2006, "Bandit based Monte-Carlo planning"; progressive widening,
Couëtoux et al. 2011, "Continuous upper confidence trees"; the rules as `selection` cites them.
Differs: a simulation's nodes stay in the tree, as in RAP, Hao et al. 2023 (arXiv 2305.14992), and
each is backed up with its own value. A node grows by one child at a time, and a child's prior is
its share of its siblings' draws, since children are drawn from the model and not listed by it. A
node below which nothing can be walked to (all of it is in flight, say) grows beyond its limit,
unless the limit is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from ttc.strategies.tree.actions import Action, Tally, asked, told
from ttc.strategies.tree.nodes import Tree, TreeNode
from ttc.strategies.tree.open_nodes import OpenNodes
from ttc.strategies.tree.policy import Expansion, Result
from ttc.strategies.tree.selection import Select, bonus, default_weight

__all__ = ["Backup", "MonteCarloPolicy", "MonteCarloState"]

Backup = Literal["mean", "max"]

_ROOT_ALPHA = 0.3
"""Of the Dirichlet noise on the root's priors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MonteCarloState:
    """The tree, where it can grow, and what each action has been worth."""

    tree: Tree
    open_nodes: OpenNodes
    tallies: tuple[Tally, ...]
    """One for each action of the policy."""
    simulated: tuple[int, ...] = ()
    """Nodes that are followed to their end, and are waiting for their next step."""


@dataclass(frozen=True, kw_only=True)
class MonteCarloPolicy:
    """Grows where the mean or the best value is high or little is known."""

    select: Select = "uct"
    exploration_weight: float | None = None
    """`None` is the rule's own: a tenth of the root of 2, 1.25 for PUCT, 0.1 for WU-UCT."""
    backup: Backup = "mean"
    """Which of the values below a node stands for it."""
    widening_factor: float = 1.0
    """k of the limit k * N^alpha on the children of a node, N being its visits."""
    widening_exponent: float = 1 / 3
    """alpha; with 0 each node has at most k children."""
    virtual_loss: float = 0.0
    """How many visits of value 0 stand for one that is in flight."""
    root_noise: float = 0.0
    """The share of Dirichlet noise in the root's priors; only PUCT has priors."""
    simulate: bool = True
    """Whether new nodes are followed to their end. Without it every step is chosen by a walk."""
    max_expansions: int | None = None
    """The most asks."""
    actions: tuple[Action, ...] = (Action(),)
    price_weight: float = 0.0
    """The score that one unit of price is worth."""

    def init(self) -> MonteCarloState:
        """A root that can grow."""
        tallies = tuple(Tally() for _ in self.actions)
        return MonteCarloState(tree=Tree.planted(), open_nodes=OpenNodes.planted(), tallies=tallies)

    def ask(self, state: MonteCarloState, seed: int) -> tuple[MonteCarloState, Expansion | None]:
        """The node that is followed, or the one that a walk ends at; and what to do with it."""
        open_nodes = state.open_nodes
        if 0 not in open_nodes or state.tree.num_asks == self.max_expansions:
            return state, None
        at = state.simulated[0] if state.simulated else self._walk(state, seed)
        index = self._action(state.tallies)
        tree, expansion = state.tree.expand(at, self.actions[index].name)
        if self._is_full(tree[at]):
            open_nodes = open_nodes.remove(tree, at)
        after = replace(
            state,
            tree=tree,
            open_nodes=open_nodes,
            tallies=asked(state.tallies, index),
            simulated=state.simulated[1:],
        )
        return after, expansion

    def tell(self, state: MonteCarloState, result: Result) -> MonteCarloState:
        """Backs the value up; an unknown one is a visit and nothing else."""
        tree, open_nodes, simulated = state.tree.record(result), state.open_nodes, state.simulated
        node = tree[result.id]
        if node.status == "open":
            open_nodes = open_nodes.add(tree, node.id)
            simulated = (*simulated, node.id) if self.simulate else simulated
        index = [action.name for action in self.actions].index(node.action)
        tallies = told(state.tallies, index, result.value)
        return replace(
            state, tree=tree, open_nodes=open_nodes, tallies=tallies, simulated=simulated
        )

    @property
    def _weight(self) -> float:
        given = self.exploration_weight
        return default_weight(self.select) if given is None else given

    def _walk(self, state: MonteCarloState, seed: int) -> int:
        """The node that gets a child."""
        tree, node = state.tree, state.tree[0]
        while not self._may_widen(node):
            children = [child for child in tree.children(node.id) if child.id in state.open_nodes]
            if not children:
                break
            node = self._best(node, children, tree, seed)
        return node.id

    def _may_widen(self, node: TreeNode) -> bool:
        visits = max(1, node.num_visits + node.num_in_flight)
        limit = self.widening_factor * math.pow(visits, self.widening_exponent)
        return len(node.children) < limit

    def _is_full(self, node: TreeNode) -> bool:
        return self.widening_exponent == 0 and len(node.children) >= self.widening_factor

    def _best(
        self, node: TreeNode, children: Sequence[TreeNode], tree: Tree, seed: int
    ) -> TreeNode:
        """The child with the highest score; of equal ones the first."""
        priors = self._priors(node, children, tree, seed)
        fallback = self._value(node, 0.0)
        parent_visits = self._visits(node)
        scores = [
            self._value(child, fallback)
            + bonus(self.select, self._weight, parent_visits, self._visits(child), prior)
            for child, prior in zip(children, priors, strict=True)
        ]
        return children[scores.index(max(scores))]

    def _value(self, node: TreeNode, fallback: float) -> float:
        """What stands for a node; its parent's where nothing below it is known."""
        value = node.mean_value if self.backup == "mean" else node.value_max
        if value is None:
            return fallback
        if self.virtual_loss and self.backup == "mean":
            lost = self.virtual_loss * node.num_in_flight
            value *= node.num_values / (node.num_values + lost)
        return value

    def _visits(self, node: TreeNode) -> float:
        in_flight = 1.0 if self.select == "wu_uct" else self.virtual_loss
        return node.num_visits + in_flight * node.num_in_flight

    def _priors(
        self, node: TreeNode, children: Sequence[TreeNode], tree: Tree, seed: int
    ) -> list[float]:
        """How often each child was drawn, as a share of all draws of the node that were told."""
        if self.select != "puct":
            return [0.0] * len(children)
        draws = sum(
            child.multiplicity
            for child in tree.children(node.id)
            if child.num_visits and child.status != "dropped"
        )
        priors = [child.multiplicity / draws for child in children]
        if self.root_noise and node.parent is None:
            random = Random(seed)
            noise = [random.gammavariate(_ROOT_ALPHA, 1.0) for _ in children]
            total = sum(noise)
            priors = [
                (1 - self.root_noise) * prior + self.root_noise * part / total
                for prior, part in zip(priors, noise, strict=True)
            ]
        return priors

    def _action(self, tallies: Sequence[Tally]) -> int:
        """The action with the highest score less its price; each is tried once first.

        What is in flight counts as visits, so that many asks at once do not all choose the same.
        """
        if len(tallies) == 1:
            return 0
        total = sum(tally.num_asks for tally in tallies)
        scores = []
        for tally, action in zip(tallies, self.actions, strict=True):
            num, value, _ = tally.scores
            gain = bonus(self.select, self._weight, total, tally.num_asks, 1 / len(tallies))
            mean = value / num if num else 0.0
            scores.append(mean + gain - self.price_weight * action.price)
        untried = [i for i, tally in enumerate(tallies) if not tally.num_asks]
        return untried[0] if untried else scores.index(max(scores))
