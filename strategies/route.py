"""Route: a cheap look at the problem decides which one of several graphs it gets.

The look is a graph of its own, whose selector says how sure it is: a vote of four, say. Below the
first threshold the problem goes to the first graph after it, below the second to the second, and so
on; where the look is at least as sure as the last one asks for, its own candidate is the result.
`ttc plan` chooses thresholds and graphs on one part of the problems, and reports them on another.

Source: the compute-optimal choice by difficulty of Snell et al. 2024, arXiv 2408.03314, section 3.
Differs: difficulty is how far the look's samples agree, which needs no reward model and no answer.
Cost: the look, and at most one of the graphs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ttc.flow import not_one, one_of
from ttc.graph import Cost, Flow, Node, Port, label
from ttc.lengths import largest
from ttc.ports import Scope, Stream
from ttc.streams import iterate
from ttc.types import Candidate

__all__ = ["Route"]


@dataclass(frozen=True, init=False)
class Route(Node):
    """Looks at the problem by a cheap graph, and runs the one that its difficulty asks for."""

    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "one")

    remote: ClassVar[bool] = True

    graphs: tuple[Node, ...]
    """The look, which gives a candidate with a confidence; then those for the hardest first."""
    below: tuple[float, ...]
    """For each graph after the look, the confidence of the look below which it is taken."""

    def __init__(self, *graphs: Node, below: Sequence[float]) -> None:
        """A route from a look, the first of `graphs`, to one of the others.

        Raises:
            TypeError: a part is no graph, or a threshold is no number.
        """
        for part in graphs:
            if not isinstance(part, Node):
                raise TypeError(f"a route leads to a graph, not to {part!r}")
        if not all(isinstance(value, int | float) for value in below):
            raise TypeError(f"below is a list of numbers, as (0.5, 0.9), not {below!r}")
        object.__setattr__(self, "graphs", graphs)
        object.__setattr__(self, "below", tuple(below))

    def children(self) -> tuple[Node, ...]:
        """The look, and where it leads to."""
        return self.graphs

    def rebuilt(self, children: tuple[Node, ...]) -> Route:
        """The same route over other graphs."""
        return Route(*children, below=self.below)

    def faults(self, given: Flow) -> list[str]:
        """No graph, thresholds that do not fit, a graph that gives not one finished candidate."""
        faults = []
        if len(self.graphs) < 2 or len(self.graphs) != len(self.below) + 1:
            faults.append(
                f"has {len(self.graphs)} graphs and {len(self.below)} thresholds; give a look, and "
                "each graph after it the confidence below which it is taken"
            )
        if list(self.below) != sorted(set(self.below)) or any(not 0 < b <= 1 for b in self.below):
            faults.append(f"below={self.below} rises from above 0 to at most 1, each once")
        for index, part in enumerate(self.graphs):
            faults += not_one(part.flow(given), f"part {index}")
        return faults

    def flow(self, given: Flow) -> Flow:
        """One candidate; only scores that every part gives are sure."""
        return one_of([graph.flow(given) for graph in self.graphs])

    def bound(self, given: Flow) -> Cost:
        """The look and, line by line, the dearest of the graphs."""
        look, *others = (graph.bound(given) for graph in self.graphs)
        return look + _dearest(others)

    def longest(self, given: Flow) -> int | None:
        """The most that any graph shows."""
        return largest(*(graph.longest(given) for graph in self.graphs))

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Looks, and runs one graph at most. A look that tells nothing is as unsure as can be."""
        given = [candidate async for candidate in candidates]
        flow = Flow(kind=self.takes.kind, count=len(given))
        chosen: Candidate | None = None
        first = self.graphs[0]
        async for candidate in scope.run(first, iterate(*given), name=label(0, first), given=flow):
            chosen = candidate
        sure = None if chosen is None else chosen.confidence
        place = 1 + sum(threshold <= (sure or 0.0) for threshold in self.below)
        scope.decide("routed", end=False, confidence=sure, graph=place % len(self.graphs))
        if place < len(self.graphs):
            graph = self.graphs[place]
            stream = scope.run(graph, iterate(*given), name=label(place, graph), given=flow)
            async for candidate in stream:
                chosen = candidate
        if chosen is not None:
            yield chosen


def _dearest(costs: list[Cost]) -> Cost:
    """Line by line the most; a line is unbounded where it is in any."""
    if not costs:
        return Cost()
    lines = {name: [getattr(cost, name) for cost in costs] for name in vars(costs[0])}
    return Cost(**{name: None if None in line else max(line) for name, line in lines.items()})
