"""NamedGraph: a name and parameters that stand for a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator

from ttc.graph import Node, compile_graph
from ttc.ports import Scope, Stream
from ttc.types import Candidate

__all__ = ["NamedGraph"]


class NamedGraph(Node):
    """A node that is written out before anything is checked or run."""

    @abstractmethod
    def expand(self) -> Node:
        """The graph that it stands for."""

    def run(self, candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        """Runs the graph that it stands for."""
        return compile_graph(self).run(candidates, scope)
