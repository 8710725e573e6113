"""The tree of a search: a persistent map of frozen nodes with their counts.

Every change gives a new tree that shares what did not change with the old one, so a state is kept,
pickled or gone back to at no cost. It knows no policy and no text.

Cost: an ask and a tell each touch the path to the root, where results are backed up, and else one
node; about 0.5 kB for each node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from immutables import Map

from ttc.strategies.tree.policy import Comparison, Expansion, Result, Status

__all__ = ["Tree", "TreeNode"]


class TreeNode(NamedTuple):
    """A trajectory's prefix, and what is known of the subtree below it."""

    id: int
    parent: int | None
    """`None` for the root."""
    depth: int
    action: str = "step"
    """How it was made."""
    status: Status | Literal["running", "dropped"] = "running"
    """`running` until its result is told; `dropped` once the policy wants no more of it."""
    value: float | None = None
    """Its own score."""
    tokens: int = 0
    """Output tokens from the root to here."""
    children: tuple[int, ...] = ()
    """In the order of the asks, in whatever state they are."""
    multiplicity: int = 1
    """How many equal expansions it stands for."""
    num_visits: int = 0
    """Results told in its subtree, its own included; cancelled ones do not count."""
    num_in_flight: int = 0
    """Asks in its subtree that have not been told, its own included."""
    num_values: int = 0
    """Known scores in its subtree, its own included."""
    value_sum: float = 0.0
    """Their sum."""
    value_max: float | None = None
    """The largest of them; `None` without any."""

    @property
    def mean_value(self) -> float | None:
        """The mean of the known scores in its subtree."""
        return self.value_sum / self.num_values if self.num_values else None


@dataclass(frozen=True, kw_only=True)
class Tree:
    """All nodes of a search, by number."""

    nodes: Map[int, TreeNode]
    num_asks: int = 0
    """Asks until now; the next one has this number plus 1."""
    num_in_flight: int = 0
    """Asks without a result, comparisons included."""
    num_dropped: int = 0
    """Nodes that have been dropped."""
    tokens: int = 0
    """Output tokens of all results told."""
    dropped: Map[int, int] = field(default_factory=Map)
    """These nodes, by their place in the order in which they were dropped."""
    given: tuple[int, ...] = ()
    """What the search has found, in the order in which it is handed out."""
    backs_up: bool = True
    """Whether what is counted of a node holds for the subtree below it, and not for it alone."""

    @classmethod
    def planted(cls, *, backs_up: bool = True) -> Tree:
        """A tree of the root alone."""
        root = TreeNode(id=0, parent=None, depth=0, status="open")
        return cls(nodes=Map({0: root}), backs_up=backs_up)

    def __getitem__(self, id: int) -> TreeNode:
        return self.nodes[id]

    def __len__(self) -> int:
        return len(self.nodes)

    def path(self, id: int) -> Iterator[TreeNode]:
        """A node and its ancestors, the root last."""
        at: int | None = id
        while at is not None:
            node = self.nodes[at]
            yield node
            at = node.parent

    def children(self, id: int) -> list[TreeNode]:
        """The children of a node, in the order of the asks."""
        return [self.nodes[child] for child in self.nodes[id].children]

    def expand(
        self, parent: int, action: str = "step", *, is_scored: bool = True
    ) -> tuple[Tree, Expansion]:
        """Asks for a new child of `parent`, and counts it as in flight up to the root.

        Raises:
            ValueError: the parent cannot be extended.
        """
        above = self.nodes[parent]
        if above.status != "open":
            raise ValueError(f"node {parent} is {above.status}; only open nodes can be extended")
        id, depth = self.num_asks + 1, above.depth + 1
        with self.nodes.mutate() as nodes:
            nodes[id] = TreeNode(id=id, parent=parent, depth=depth, action=action, num_in_flight=1)
            nodes[parent] = above._replace(children=(*above.children, id))
            for node in self.path(parent) if self.backs_up else ():
                nodes[node.id] = nodes[node.id]._replace(num_in_flight=node.num_in_flight + 1)
            grown = nodes.finish()
        tree = replace(self, nodes=grown, num_asks=id, num_in_flight=self.num_in_flight + 1)
        asked = Expansion(id=id, parent=parent, depth=depth, action=action, is_scored=is_scored)
        return tree, asked

    def compare(self, *ids: int) -> tuple[Tree, Comparison]:
        """Asks for scores of nodes beside each other."""
        id = self.num_asks + 1
        tree = replace(self, num_asks=id, num_in_flight=self.num_in_flight + 1)
        return tree, Comparison(id=id, nodes=ids)

    def record(self, result: Result, *, gives: bool = True) -> Tree:
        """Takes in the result of an ask, and backs it up to the root.

        A value of `None` is not backed up, but the visit counts. A duplicate adds to the
        multiplicity of the node that it equals, and is dropped. A cancelled result changes nothing
        but what is in flight. A trajectory that has come to its end is found, and is handed out;
        without `gives` that is left to `give`.
        """
        tree = replace(
            self, num_in_flight=self.num_in_flight - 1, tokens=self.tokens + result.tokens
        )
        if result.id not in self.nodes:
            return tree._valued(result)
        with tree.nodes.mutate() as nodes:
            for node in tree.path(result.id):
                nodes[node.id] = _backed_up(node, result)
                if not self.backs_up:
                    break
            above = nodes[self.nodes[result.id].parent or 0]
            nodes[result.id] = _ended(nodes[result.id], above, result)
            twin = result.duplicate_of
            if twin is not None:
                nodes[twin] = nodes[twin]._replace(multiplicity=nodes[twin].multiplicity + 1)
            tree = replace(tree, nodes=nodes.finish())
        has_ended = tree[result.id].status in ("finished", "truncated")
        return tree.give(result.id) if gives and has_ended else tree

    def give(self, *ids: int) -> Tree:
        """Hands nodes out."""
        return replace(self, given=(*self.given, *ids))

    def close(self) -> Tree:
        """Gives up everything that could still go on: the search has ended."""
        going = [node for node in self.nodes.values() if node.status in ("open", "running")]
        return self._without({node.id: node for node in going})

    def drop(self, *ids: int) -> Tree:
        """Gives nodes up, and all below them: whatever of it is in flight is to be cancelled."""
        pending = [id for id in ids if self.nodes[id].status != "dropped"]
        dropped: dict[int, TreeNode] = {}
        while pending:
            node = self.nodes[pending.pop()]
            if node.status != "dropped" and node.id not in dropped:
                dropped[node.id] = node
                pending += node.children
        return self._without(dropped) if dropped else self

    def _without(self, nodes: Mapping[int, TreeNode]) -> Tree:
        gone = {id: node._replace(status="dropped") for id, node in nodes.items()}
        places = dict(enumerate(gone, self.num_dropped))
        return replace(
            self,
            nodes=self.nodes.update(gone),
            num_dropped=self.num_dropped + len(gone),
            dropped=self.dropped.update(places),
        )

    def _valued(self, result: Result) -> Tree:
        """With the values of a comparison, which replace those that its nodes had."""
        changed = {}
        for id, value in result.values.items():
            if value is not None:
                changed[id] = self.nodes[id]._replace(value=value)
        return replace(self, nodes=self.nodes.update(changed))


def _backed_up(node: TreeNode, result: Result) -> TreeNode:
    if result.status == "cancelled":
        return node._replace(num_in_flight=node.num_in_flight - 1)
    value = result.value
    if value is None:
        return node._replace(num_in_flight=node.num_in_flight - 1, num_visits=node.num_visits + 1)
    return node._replace(
        num_in_flight=node.num_in_flight - 1,
        num_visits=node.num_visits + 1,
        num_values=node.num_values + 1,
        value_sum=node.value_sum + value,
        value_max=value if node.value_max is None else max(node.value_max, value),
    )


def _ended(node: TreeNode, parent: TreeNode, result: Result) -> TreeNode:
    gone = node.status == "dropped" or result.duplicate_of is not None
    return node._replace(
        status="dropped" if gone else result.status,
        value=result.value,
        tokens=parent.tokens + result.tokens,
    )
