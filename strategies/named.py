"""NamedGraph: a name and parameters that stand for a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator

from ttc.graph import Cost, Flow, Node, compile_graph
from ttc.ports import Scope, Stream
from ttc.types import Candidate

__all__ = ["NamedGraph"]


class NamedGraph(Node):
    """A node that is written out before anything is checked or run."""

    @abstractmethod
    def expand(self) -> Node:
        """The graph that it stands for."""

    def flow(self, given: Flow) -> Flow:
        """What the graph gives."""
        return compile_graph(self).flow(given)

    def bound(self, given: Flow) -> Cost:
        """The most that the graph can spend."""
        return compile_graph(self).bound(given)

    def longest(self, given: Flow) -> int | None:
        """What the graph shows."""
        return compile_graph(self).longest(given)

    def run(self, candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        """Runs the graph that it stands for."""
        return compile_graph(self).run(candidates, scope)
