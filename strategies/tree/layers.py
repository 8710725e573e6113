"""Layers: searches that draw all steps of one depth, and then decide which of them go on.

What goes on is for a subclass to say. Nothing of a layer is asked for before the whole layer above
it has been told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ttc.strategies.tree.nodes import Tree
from ttc.strategies.tree.policy import Comparison, Expansion, Result

__all__ = ["LayerState", "Layers", "best_of"]


@dataclass(frozen=True, kw_only=True)
class LayerState:
    """The state of a search in layers."""

    tree: Tree
    queue: tuple[int, ...]
    """Parents of the steps that are still to be asked for, in order."""
    layer: tuple[int, ...] = ()
    """The nodes of this layer that can go on, in the order of the asks."""
    depth: int = 0
    """Layers that have been told."""
    is_compared: bool = False
    """Whether the layer's nodes have been scored beside each other."""


@dataclass(frozen=True, kw_only=True)
class Layers(ABC):
    """Draws a layer, tells it, and spreads the next one over its nodes."""

    compares: bool = False
    """Whether the nodes of a layer are scored beside each other, once all have been told."""

    @abstractmethod
    def first(self) -> int:
        """How many steps the root is extended by."""

    @abstractmethod
    def spread(self, state: LayerState) -> LayerState:
        """Drops what does not go on, and queues what does."""

    def is_scored(self, depth: int) -> bool:
        """Whether the steps of a layer are scored."""
        return True

    def init(self) -> LayerState:
        """The first layer in the queue."""
        return LayerState(tree=Tree.planted(backs_up=False), queue=(0,) * self.first())

    def ask(self, state: LayerState, seed: int) -> tuple[LayerState, Expansion | Comparison | None]:
        """The next step of the layer."""
        if state.queue:
            parent, *queue = state.queue
            is_scored = self.is_scored(state.depth + 1)
            tree, expansion = state.tree.expand(parent, is_scored=is_scored)
            return replace(state, tree=tree, queue=tuple(queue)), expansion
        if self.compares and state.layer and not state.tree.num_in_flight:
            tree, comparison = state.tree.compare(*state.layer)
            return replace(state, tree=tree), comparison
        return state, None

    def tell(self, state: LayerState, result: Result) -> LayerState:
        """Takes in a step; the last one of a layer ends it."""
        is_step = result.id in state.tree.nodes
        tree = state.tree.record(result, gives=not self.compares)
        state = replace(state, tree=tree)
        if is_step and tree[result.id].status in self._stays:
            state = replace(state, layer=(*state.layer, result.id))
        if state.queue or tree.num_in_flight or (self.compares and is_step and state.layer):
            return state
        state = self.spread(replace(state, depth=state.depth + 1))
        return replace(state, layer=())

    @property
    def _stays(self) -> tuple[str, ...]:
        return ("open", "finished", "truncated") if self.compares else ("open",)


def best_of(tree: Tree, nodes: Iterable[int], count: int) -> tuple[int, ...]:
    """The nodes with the greatest values, unknown ones last, ties by launch; the best first."""

    def rank(id: int) -> tuple[bool, float, int]:
        value = tree[id].value
        return value is None, -(value or 0.0), id

    return tuple(sorted(nodes, key=rank)[:count])
