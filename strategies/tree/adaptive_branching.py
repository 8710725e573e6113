"""The policy of AB-MCTS: whether to generate anew or to go on with a child is drawn, not counted.

At each node a score is drawn for a new child and for the children that there are, by what their
scores make likely, and the highest is taken (Thompson sampling). A node whose children are all
alike grows wider only as long as a new one may be better.

- `M`: the scores below a node are a mixed model, in which each child's subtree is a group.
- `gaussian`, `beta`: generating has a posterior of its own, learned from direct children only;
  going on has one too, learned from whatever lies deeper. If going on wins, the children are drawn.

Source: AB-MCTS, Inoue et al. 2025, arXiv 2503.04412: variants M and A.
Differs: M by `mixed_model` and not by MCMC, without the release's pruning of subtrees whose scores
repeat; A draws means, not scores; actions are chosen as `actions` says.
Cost: an ask draws for the children along its way; M fits a model again where a score was told
below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, NamedTuple

from immutables import Map

from ttc.strategies.tree.actions import Action, Tally, asked, told
from ttc.strategies.tree.mixed_model import MixedModel
from ttc.strategies.tree.nodes import Tree
from ttc.strategies.tree.open_nodes import OpenNodes
from ttc.strategies.tree.policy import Expansion, Result
from ttc.strategies.tree.scores import Draw, Scores, draw_beta, draw_normal

__all__ = ["AdaptivePolicy", "AdaptiveState", "Variant"]

Variant = Literal["M", "gaussian", "beta"]


class Seen(NamedTuple):
    """The scores of a node's subtree, by where they are."""

    all: Scores = Scores()
    """The node's own, and all below it."""
    direct: Scores = Scores()
    """Those of its children."""
    deeper: Scores = Scores()
    """Those below its children."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveState:
    """The tree, where it can grow, and what its scores say."""

    tree: Tree
    open_nodes: OpenNodes
    seen: Map[int, Seen]
    """By node, once it was told; the root from the start."""
    models: Map[int, MixedModel]
    """Of variant M: for a node the model of its children, until a score is told below it."""
    tallies: tuple[Tally, ...]
    """One for each action of the policy."""


@dataclass(frozen=True, kw_only=True)
class AdaptivePolicy:
    """Grows where a draw from the posterior is highest."""

    variant: Variant = "M"
    revises: bool = False
    """Whether nodes are whole answers, which are found as they come and can be extended still."""
    max_expansions: int | None = None
    """The most asks."""
    actions: tuple[Action, ...] = (Action(),)
    price_weight: float = 0.0
    """The score that one unit of price is worth."""

    def init(self) -> AdaptiveState:
        """A root that can grow."""
        return AdaptiveState(
            tree=Tree.planted(),
            open_nodes=OpenNodes.planted(),
            seen=Map({0: Seen()}),
            models=Map(),
            tallies=tuple(Tally() for _ in self.actions),
        )

    def ask(self, state: AdaptiveState, seed: int) -> tuple[AdaptiveState, Expansion | None]:
        """The node at which generating won, and what to do with it."""
        if 0 not in state.open_nodes or state.tree.num_asks == self.max_expansions:
            return state, None
        random, at, models = Random(seed), 0, state.models
        while children := [c for c in state.tree[at].children if c in state.open_nodes]:
            if self.variant == "M":
                if at not in models:
                    models = models.set(at, MixedModel.fit(_groups(state, at)))
                child = _by_model(models[at], state, at, children, random)
            else:
                child = self._by_arms(state.seen, at, children, random)
            if child is None:
                break
            at = child
        index = self._action(state.tallies, random)
        tree, expansion = state.tree.expand(at, self.actions[index].name)
        tallies = asked(state.tallies, index)
        return replace(state, tree=tree, models=models, tallies=tallies), expansion

    def tell(self, state: AdaptiveState, result: Result) -> AdaptiveState:
        """Takes in a score at the node, its parent and all above; an unknown one says nothing."""
        tree, open_nodes = self._recorded(state.tree, result), state.open_nodes
        node = tree[result.id]
        if node.status == "open":
            open_nodes = open_nodes.add(tree, node.id)
        index = [action.name for action in self.actions].index(node.action)
        return replace(
            state,
            tree=tree,
            open_nodes=open_nodes,
            seen=_seen(state.seen, tree, result),
            models=_without(state.models, tree, result.id),
            tallies=told(state.tallies, index, result.value),
        )

    def _recorded(self, tree: Tree, result: Result) -> Tree:
        if not self.revises or result.status not in ("finished", "truncated"):
            return tree.record(result)
        tree = tree.record(replace(result, status="open"))
        return tree.give(result.id) if tree[result.id].status == "open" else tree

    @property
    def _draw(self) -> Draw:
        return draw_beta if self.variant == "beta" else draw_normal

    def _by_arms(
        self, seen: Map[int, Seen], at: int, children: Sequence[int], random: Random
    ) -> int | None:
        """The child to go on with, if going on has the higher draw; `None` generates."""
        generate = self._draw(seen[at].direct, random)
        if generate >= self._draw(seen[at].deeper, random):
            return None
        draws = [self._draw(seen[child].all, random) for child in children]
        return children[draws.index(max(draws))]

    def _action(self, tallies: Sequence[Tally], random: Random) -> int:
        """The action whose mean score, drawn, is highest less its price."""
        if len(tallies) == 1:
            return 0
        draws = [
            self._draw(tally.scores, random) - self.price_weight * action.price
            for tally, action in zip(tallies, self.actions, strict=True)
        ]
        return draws.index(max(draws))


def _told(state: AdaptiveState, at: int) -> list[int]:
    """The children that the model of a node knows, in its order."""
    return [child for child in state.tree[at].children if child in state.seen]


def _groups(state: AdaptiveState, at: int) -> list[Scores]:
    return [state.seen[child].all for child in _told(state, at)]


def _by_model(
    model: MixedModel, state: AdaptiveState, at: int, children: Sequence[int], random: Random
) -> int | None:
    """The child with the highest predicted score, if it is higher than a new one's."""
    prediction = model.predict(random)
    draws = dict(zip(_told(state, at), prediction.groups, strict=True))
    best = max(children, key=draws.__getitem__)
    return best if draws[best] > prediction.new else None


def _seen(seen: Map[int, Seen], tree: Tree, result: Result) -> Map[int, Seen]:
    score, changed = result.value, seen.mutate()
    changed[result.id] = Seen()
    if score is not None:
        for distance, node in enumerate(tree.path(result.id)):
            before = changed[node.id]
            changed[node.id] = Seen(
                before.all.add(score),
                before.direct.add(score) if distance == 1 else before.direct,
                before.deeper.add(score) if distance > 1 else before.deeper,
            )
    return changed.finish()


def _without(models: Map[int, MixedModel], tree: Tree, id: int) -> Map[int, MixedModel]:
    """The models that a score leaves as they are: all but those of the nodes above it."""
    kept = models.mutate()
    for node in tree.path(id):
        if node.id in kept:
            del kept[node.id]
    return kept.finish()
