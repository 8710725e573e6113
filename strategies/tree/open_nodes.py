"""Which parts of a tree can still grow: a count of open nodes for every subtree.

A persistent map from each node to how many nodes of its subtree, itself included, may be extended.
A search that walks down from the root goes only where the number is not 0, so it always arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

from immutables import Map

from ttc.strategies.tree.nodes import Tree

__all__ = ["OpenNodes"]


@dataclass(frozen=True, slots=True)
class OpenNodes:
    """The nodes that may be extended, counted below each node."""

    counts: Map[int, int]
    """A node without an entry has none: it runs, has ended, or is full."""

    @classmethod
    def planted(cls) -> OpenNodes:
        """The root alone."""
        return cls(Map({0: 1}))

    def add(self, tree: Tree, id: int) -> OpenNodes:
        """With one node more that may be extended."""
        return self._changed(tree, id, 1)

    def remove(self, tree: Tree, id: int) -> OpenNodes:
        """With one less."""
        return self._changed(tree, id, -1)

    def __contains__(self, id: int) -> bool:
        """Whether anything at or below a node may be extended."""
        return self.counts.get(id, 0) > 0

    def _changed(self, tree: Tree, id: int, change: int) -> OpenNodes:
        counts = self.counts.mutate()
        for node in tree.path(id):
            counts[node.id] = counts.get(node.id, 0) + change
        return OpenNodes(counts.finish())
