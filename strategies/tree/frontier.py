"""Frontier: a search that takes the best trajectory that it knows, and expands it.

What is best is for a subclass to say: the lower the cost of a node, the sooner it is taken. The
first whole solutions that are taken are the result.

Source: Hart, Nilsson and Raphael 1968.
Cost: a tell copies the frontier, 8 bytes for each node in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from immutables import Map

from ttc.strategies.tree.nodes import Tree, TreeNode
from ttc.strategies.tree.policy import Expansion, Result

__all__ = ["Frontier", "FrontierState", "Place"]


class Place(NamedTuple):
    """Where a node stands in the line; equal costs go to the deeper one, then by launch."""

    cost: float
    height: int
    """Minus its depth."""
    id: int


@dataclass(frozen=True, kw_only=True)
class FrontierState:
    """The state of a frontier search."""

    tree: Tree
    line: tuple[Place, ...] = ()
    """The nodes that can be taken, the best first."""
    queue: tuple[int, ...] = ()
    """Parents of the children that are asked for next."""
    waits: Map[int, int] = field(default_factory=Map)
    """How many children of a node that was taken have not been told."""
    paid: Map[int, float] = field(default_factory=Map)
    """What the way to each node has cost, where that counts."""


@dataclass(frozen=True, kw_only=True)
class Frontier(ABC):
    """Takes the node of the least cost, and expands it or gives it."""

    width: int
    """Children of a node that is expanded."""
    num_answers: int
    """Whole solutions after which the search ends."""
    max_expansions: int
    """The most children in all."""
    num_expanding: int = 1
    """Nodes that may be in expansion at once."""

    @abstractmethod
    def cost(self, state: FrontierState, node: TreeNode) -> tuple[float, float]:
        """The cost by which a node is ordered, and what the way to it has cost."""

    def init(self) -> FrontierState:
        """The root alone in line."""
        return FrontierState(
            tree=Tree.planted(backs_up=False), line=(Place(0.0, 0, 0),), paid=Map({0: 0.0})
        )

    def ask(self, state: FrontierState, seed: int) -> tuple[FrontierState, Expansion | None]:
        """Another child of what is being expanded, or one of the node that is best now."""
        while not state.queue:
            room = self.max_expansions - state.tree.num_asks
            if not state.line or len(state.waits) >= self.num_expanding:
                return state, None
            best, *line = state.line
            state = replace(state, line=tuple(line))
            if state.tree[best.id].status == "finished":
                state = self._answered(state, best.id)
            elif room > 0:
                count = min(self.width, room)
                waits = state.waits.set(best.id, count)
                state = replace(state, queue=(best.id,) * count, waits=waits)
        tree, expansion = state.tree.expand(state.queue[0])
        return replace(state, tree=tree, queue=state.queue[1:]), expansion

    def tell(self, state: FrontierState, result: Result) -> FrontierState:
        """Puts a child in line."""
        tree = state.tree.record(result, gives=False)
        node = tree[result.id]
        parent = node.parent or 0
        left = state.waits.get(parent, 1) - 1
        waits = state.waits.set(parent, left) if left else state.waits.delete(parent)
        state = replace(state, tree=tree, waits=waits)
        if node.status not in ("open", "finished"):
            return state
        cost, paid = self.cost(state, node)
        line = list(state.line)
        insort(line, Place(cost, -node.depth, node.id))
        return replace(state, line=tuple(line), paid=state.paid.set(node.id, paid))

    def _answered(self, state: FrontierState, id: int) -> FrontierState:
        tree = state.tree.give(id)
        if len(tree.given) < self.num_answers:
            return replace(state, tree=tree)
        return replace(state, tree=tree.close(), line=())
