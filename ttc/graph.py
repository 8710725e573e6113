"""Graphs: nodes, how they compose, how they are named, checked and bounded.

A node turns a stream of candidates into a stream of candidates. `a >> b` lets b read a; `a | b`
opens both at once on the same input and alternates their outputs. A graph of nodes is a node.

Nothing is checked while an expression is being written. `validate` looks at the whole of it, and
reports every fault at once, by path; whatever runs, draws or prices a graph calls it first.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple

from ttc.demands import engine_faults
from ttc.errors import GraphError
from ttc.flow import Cost, Flow, Port, sure_scores
from ttc.lengths import largest, lengths_of, plus
from ttc.options import kind_faults
from ttc.ports import Engine, Scope, Stream, Verifier
from ttc.types import Candidate, Problem

__all__ = [
    "Chain",
    "Cost",
    "Flow",
    "Node",
    "Placed",
    "Pool",
    "Port",
    "is_count",
    "roles_of",
]


class Node(ABC):
    """One stream of candidates to another. Built-in nodes are frozen dataclasses."""

    takes: ClassVar[Port] = Port("finished", "many")
    gives: ClassVar[Port] = Port("finished", "many")
    selects: ClassVar[bool] = False
    """Whether it chooses among candidates; what it read becomes the outcome's candidates."""
    offers: ClassVar[bool] = False
    """Whether it calls `scope.offer` once for every candidate that it takes."""
    passes_each: ClassVar[bool] = False
    """Whether it gives one candidate for each call, in launch order, as soon as it has ended."""
    remote: ClassVar[bool] = False
    """Whether a stranger may name it: its parameters are ranged numbers, enums or names, and a
    text, path, pattern or callable only by default. A class says so for itself alone."""
    executes: ClassVar[bool] = False
    """Whether it runs code that a model wrote."""
    never_answers: ClassVar[bool] = False
    """Whether what it generates only plans or judges, so that it cannot become the answer."""

    @property
    def name(self) -> str:
        """What its path calls it: the class name in snake_case."""
        return snake_case(type(self).__name__)

    @property
    def roles(self) -> frozenset[str]:
        """The model roles that it asks."""
        return frozenset()

    @property
    def requires(self) -> frozenset[str]:
        """Capabilities that the engines of its roles must have."""
        return frozenset()

    def demands(self, given: Flow) -> Mapping[str, frozenset[str]]:
        """What it needs of the engine of each role.

        Where it asks none, what it requires is required of those that made its candidates.
        """
        roles = self.roles or (given.roles if self.requires else frozenset())
        return dict.fromkeys(roles, self.requires)

    @abstractmethod
    def run(self, candidates: Stream[Candidate], scope: Scope) -> AsyncGenerator[Candidate, None]:
        """Reads candidates and yields candidates; reaches everything else through its scope."""

    def expand(self) -> Node:
        """The graph that it stands for; a plain node stands for itself."""
        return self

    def children(self) -> tuple[Node, ...]:
        """The graphs inside it, in written order."""
        return ()

    def rebuilt(self, children: tuple[Node, ...]) -> Node:
        """The same node around other children."""
        return self

    def faults(self, given: Flow) -> list[str]:
        """What is wrong with its parameters, or with what it is given."""
        return []

    def flow(self, given: Flow) -> Flow:
        """What it gives when it is given `given`."""
        count = 1 if self.gives.number == "one" else given.count
        return replace(given, kind=self.gives.kind, count=count)

    def longest(self, given: Flow) -> int | None:
        """The most bytes that what it gives shows; unknown by default where models may write."""
        return None if self.roles and not self.selects else given.text

    def bound(self, given: Flow) -> Cost:
        """The most that it can spend on `given` beside the problem's prompt; unknown is `None`."""
        return Cost()

    def __rshift__(self, other: object) -> Chain:
        return Chain((*_links(self), *_links(_node(other))))

    def __or__(self, other: object) -> Pool:
        return Pool((*_arms(self), *_arms(_node(other))))

    def validate(self, engines: Mapping[str, Engine] | None = None) -> None:
        """Checks the whole graph as a strategy.

        Args:
            engines: the engine of each role; without them roles and capabilities are not checked.

        Raises:
            GraphError: with every fault, by path.
        """
        if named := _named_faults(self):
            raise GraphError(named)
        compiled = compile_graph(self)
        try:
            faults = _faults(compiled, engines) or _strategy_faults(compiled)
        except Exception:  # what a node reckons with may be of a kind that it cannot reckon with
            if not (faults := _kind_faults(compiled, "")):
                raise
        if faults:
            raise GraphError(faults)

    def walk(self) -> Iterator[Placed]:
        """Every node in it, at its path and with what it is given, in written order."""
        return _walk(compile_graph(self), "", Flow())

    def worst_case(self, problem: str | Problem, engine: Engine) -> Cost:
        """The most that it can spend on a problem, in closed form.

        Raises:
            GraphError: the graph is not a strategy.
        """
        self.validate()
        if isinstance(problem, str):
            problem = Problem.ask(problem)
        prompts = {
            role: engine.root(problem, role) for placed in self.walk() for role in placed.node.roles
        }
        own = Cost(tokens=sum(prompt.num_tokens for prompt in prompts.values()))
        given = Flow(text=0, lengths=lengths_of(problem, dict.fromkeys(prompts, engine)))
        return own + compile_graph(self).bound(given)

    def save(self, path: str | Path) -> None:
        """Writes it to a file, as JSON or YAML by the file's name; see `ttc.graph_files`.

        Raises:
            GraphError: a part of it is not registered, or it cannot run; nothing was written.
        """
        from ttc.graph_files import save

        save(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Node:
        """The graph that a file holds, checked as a strategy.

        Raises:
            GraphError: there is no such file, or it holds none.
        """
        from ttc.graph_files import load

        return load(Path(path))

    def mermaid(self) -> str:
        """The graph as Mermaid text."""
        from ttc.drawing import mermaid

        return mermaid(self)

    def dot(self) -> str:
        """The graph as Graphviz DOT text."""
        from ttc.drawing import dot

        return dot(self)


class Placed(NamedTuple):
    """A node at its place in a graph."""

    path: str
    node: Node
    given: Flow


@dataclass(frozen=True)
class Chain(Node):
    """`a >> b`: each part reads the one before it."""

    remote: ClassVar[bool] = True

    parts: tuple[Node, ...]

    @property
    def name(self) -> str:
        """A chain adds no step of its own to a path but its place."""
        return ""

    def children(self) -> tuple[Node, ...]:
        """Its parts."""
        return self.parts

    def rebuilt(self, children: tuple[Node, ...]) -> Chain:
        """A chain of other parts; chains among them are written out."""
        return Chain(tuple(link for child in children for link in _links(child)))

    def flow(self, given: Flow) -> Flow:
        """What its last part gives."""
        for part in self.parts:
            given = part.flow(given)
        return given

    def bound(self, given: Flow) -> Cost:
        """The sum over its parts."""
        total = Cost()
        for part in self.parts:
            total += part.bound(given)
            given = after(part, given)
        return total

    def longest(self, given: Flow) -> int | None:
        """What its last part shows."""
        for part in self.parts:
            given = after(part, given)
        return given.text

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Opens its parts, each on the one before."""
        given = Flow(count=candidates.at_most)
        stream = candidates
        for index, part in enumerate(self.parts):
            beside = self._used_beside(index, part.flow(given))
            stream = scope.run(part, stream, name=label(index, part), given=given, beside=beside)
            given = part.flow(given)
        async for candidate in stream:
            yield candidate

    def _used_beside(self, index: int, given: Flow) -> frozenset[str]:
        """What those use who work while a part still runs: all up to the next selector."""
        uses: frozenset[str] = frozenset()
        for part in self.parts[index + 1 :]:
            uses |= part.bound(given).uses
            if part.gives.number == "one":
                break
            given = part.flow(given)
        return uses


@dataclass(frozen=True)
class Pool(Node):
    """`a | b`: all open at once on the same input; outputs alternate in written order.

    The input is read whole before they open, and what remains of the logical budget is divided
    among them then, so that none's result depends on how fast another one is.
    """

    remote: ClassVar[bool] = True

    parts: tuple[Node, ...]

    def children(self) -> tuple[Node, ...]:
        """Its parts."""
        return self.parts

    def rebuilt(self, children: tuple[Node, ...]) -> Pool:
        """A pool of other parts."""
        return Pool(children)

    def flow(self, given: Flow) -> Flow:
        """The outputs of all parts together; only scores that each part gives are sure."""
        flows = [part.flow(given) for part in self.parts]
        count = plus(*(flow.count for flow in flows))
        roles = frozenset().union(*(flow.roles for flow in flows))
        return Flow(kind=flows[0].kind, count=count, scores=sure_scores(flows), roles=roles)

    def faults(self, given: Flow) -> list[str]:
        """Parts that give different kinds cannot be mixed."""
        kinds = {part.flow(given).kind for part in self.parts}
        if len(kinds) == 1:
            return []
        return ["its parts give open and finished candidates; let all give one kind"]

    def bound(self, given: Flow) -> Cost:
        """The sum over its parts."""
        return sum((part.bound(given) for part in self.parts), Cost())

    def longest(self, given: Flow) -> int | None:
        """The most that any part shows."""
        return largest(*(part.longest(given) for part in self.parts))

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads the input, divides the budget, opens the parts and takes from them in turns."""
        given = [candidate async for candidate in candidates]
        graphs = {label(index, part): part for index, part in enumerate(self.parts)}
        streams = await scope.run_together(graphs, given)
        pulls = {stream: scope.spawn(_pull(stream)) for stream in streams}
        while pulls:
            for stream, pull in list(pulls.items()):
                taken = await pull
                if taken is None:
                    del pulls[stream]
                else:
                    pulls[stream] = scope.spawn(_pull(stream))
                    yield taken


def label(index: int, part: Node) -> str:
    """A part's step in a path: its place and its name, `0.sample`."""
    return f"{index}.{part.name}" if part.name else str(index)


def after(part: Node, given: Flow) -> Flow:
    """What a node gives, with what is known of lengths."""
    return replace(part.flow(given), text=part.longest(given), lengths=given.lengths)


@cache
def snake_case(name: str) -> str:
    """A class's name as paths and texts have it: `BestOfN` is `best_of_n`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def is_count(value: object) -> bool:
    """Whether a parameter is a whole number of at least 1; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def join(path: str, step: str) -> str:
    """The path of a step below `path`."""
    return f"{path}/{step}" if path else step


def roles_of(graph: Node) -> frozenset[str]:
    """The model roles that a graph and everything in it ask."""
    return frozenset[str]().union(*(placed.node.roles for placed in graph.walk()))


def compile_graph(graph: Node) -> Chain:
    """A graph as one chain, with named graphs written out at every depth."""
    written = written_out(graph)
    return written if isinstance(written, Chain) else Chain((written,))


def written_out(graph: Node) -> Node:
    """A graph without names for graphs, at any depth."""
    expanded = graph.expand()
    if expanded is not graph:
        return written_out(expanded)
    children = graph.children()
    return graph.rebuilt(tuple(map(written_out, children))) if children else graph


def _links(graph: Node) -> tuple[Node, ...]:
    return graph.parts if isinstance(graph, Chain) else (graph,)


def _arms(graph: Node) -> tuple[Node, ...]:
    return graph.parts if isinstance(graph, Pool) else (graph,)


def _node(value: object) -> Node:
    """A node, or a verifier lifted to one."""
    if isinstance(value, Node):
        return value
    if isinstance(value, Verifier):
        from ttc.registry import node_class

        lifted = node_class("verify")(value)
        assert isinstance(lifted, Node)
        return lifted
    if isinstance(value, type) and issubclass(value, Node):
        raise TypeError(f"{value.__name__} is a class; make a node of it: {value.__name__}(...)")
    hint = "; @ttc.node makes a node of an async generator" if callable(value) else ""
    raise TypeError(f"a graph is made of nodes and verifiers, not of {value!r}{hint}")


def _walk(graph: Node, path: str, given: Flow) -> Iterator[Placed]:
    for index, child in enumerate(graph.children()):
        here = join(path, label(index, child))
        if child.name:
            yield Placed(here, child, given)
        yield from _walk(child, here, given)
        if isinstance(graph, Chain):
            given = child.flow(given)


def _faults(chain: Chain, engines: Mapping[str, Engine] | None) -> list[str]:
    faults = []
    for placed in chain.walk():
        own = placed.node.faults(placed.given)
        kinds = kind_faults(placed.node).items()
        others = [told for name, told in kinds if not any(name in fault for fault in own)]
        every = (*_port_faults(placed), *own, *others, *engine_faults(placed, engines))
        faults += [f"{placed.path}: {fault}" for fault in every]
    return faults


def _named_faults(graph: Node) -> list[str]:
    """Options of names for graphs, which are gone once these are written out."""
    is_name = type(graph).expand is not Node.expand
    own = [f"{graph.name}: {told}" for told in kind_faults(graph).values()] if is_name else []
    return own + [fault for child in graph.children() for fault in _named_faults(child)]


def _kind_faults(graph: Node, path: str) -> list[str]:
    """Options of another kind than they are declared, of all nodes inside a graph."""
    faults = []
    for index, child in enumerate(graph.children()):
        here = join(path, label(index, child))
        faults += [f"{here}: {fault}" for fault in kind_faults(child).values()]
        faults += _kind_faults(child, here)
    return faults


def _port_faults(placed: Placed) -> list[str]:
    graph, given = placed.node, placed.given
    if isinstance(graph, Pool):
        return []  # its parts say what they take
    if graph.takes.kind != given.kind:
        fix = "put sample(...) before it" if given.kind == "open" else "let it stand first"
        return [f"takes {graph.takes.kind} candidates and is given {given.kind} ones; {fix}"]
    if graph.takes.number == "one" and given.count != 1:
        return ["takes one candidate and is given several; put a selector before it"]
    return []


def _strategy_faults(chain: Chain) -> list[str]:
    given = chain.flow(Flow())
    place = label(len(chain.parts) - 1, chain.parts[-1]) if chain.parts else "the empty graph"
    if given.kind == "open":
        return [f"{place}: a strategy gives a finished candidate, and this gives an open one"]
    if given.count == 1:
        return []
    binding = (
        "; `>>` binds tighter than `|`: write (a | b) >> vote()"
        if isinstance(chain.parts[-1], Pool)
        else "; end it with a selector, as vote()"
    )
    return [f"{place}: a strategy gives one candidate, and this gives many{binding}"]


async def _pull(stream: Stream[Candidate]) -> Candidate | None:
    try:
        return await anext(stream)
    except StopAsyncIteration:
        return None
