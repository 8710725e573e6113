"""Graphs drawn: a networkx graph of the compiled form, and Mermaid and DOT text of that."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from ttc.graph import Chain, Node, compile_graph, join, label

__all__ = ["dot", "drawing_values", "mermaid", "network", "written"]


def network(graph: Node) -> Any:
    """The compiled form as a `networkx.DiGraph`: nodes by path, edges where one reads another.

    Each node has a `label`; a pool and a cascade stand before their parts, and what follows reads
    the last nodes of those.
    """
    import networkx

    drawn, network = _Drawn(compile_graph(graph)), networkx.DiGraph()
    for path, label_ in drawn.nodes.items():
        network.add_node(path, label=label_)
    network.add_edges_from(drawn.edges)
    return network


def drawing_values(graph: Node) -> dict[str, Any]:
    """The compiled form as JSON: the label of each path, and pairs of paths."""
    drawn = _Drawn(compile_graph(graph))
    nodes = {path: re.sub(r" at 0x[0-9a-f]+", "", told) for path, told in drawn.nodes.items()}
    return {"nodes": nodes, "edges": [list(edge) for edge in drawn.edges]}


def mermaid(graph: Node) -> str:
    """The graph as Mermaid text."""
    drawn = network(graph)
    ids = {path: f"n{index}" for index, path in enumerate(drawn)}
    lines = ["flowchart LR"]
    lines += [
        f'    {ids[path]}["{_escape(data["label"])}"]' for path, data in drawn.nodes(data=True)
    ]
    lines += [f"    {ids[a]} --> {ids[b]}" for a, b in drawn.edges]
    return "\n".join(lines) + "\n"


def dot(graph: Node) -> str:
    """The graph as Graphviz DOT text."""
    drawn = network(graph)
    lines = ["digraph strategy {", "    rankdir=LR;", "    node [shape=box];"]
    lines += [
        f'    "{_escape(path)}" [label="{_escape(data["label"])}"];'
        for path, data in drawn.nodes(data=True)
    ]
    lines += [f'    "{_escape(a)}" -> "{_escape(b)}";' for a, b in drawn.edges]
    return "\n".join([*lines, "}"]) + "\n"


class _Drawn:
    """What is drawn of a graph: nodes by path with their labels, and who reads whom."""

    def __init__(self, graph: Node) -> None:
        self.nodes: dict[str, str] = {"prompt": "prompt"}
        self.edges: list[tuple[str, str]] = []
        self._add(graph, "", ["prompt"])

    def _add(self, graph: Node, path: str, sources: list[str]) -> list[str]:
        """Draws what is inside a graph; returns the paths that what follows reads."""
        ends: list[str] = []
        for index, child in enumerate(graph.children()):
            here = join(path, label(index, child))
            tails = sources
            if child.name:
                self.nodes[here] = _describe(here, child)
                self.edges += [(source, here) for source in sources]
                tails = [here]
            if child.children():
                tails = self._add(child, here, tails)
            if isinstance(graph, Chain):
                sources = tails
            else:
                ends += tails
        return sources if isinstance(graph, Chain) else ends


def written(value: Any) -> str:
    """A node, or a part of one, with the parameters that are not its defaults."""
    if isinstance(value, type) or not is_dataclass(value):
        return repr(value)
    told = [
        f"{f.name}={written(getattr(value, f.name))}"
        for f in fields(value)
        if f.repr and getattr(value, f.name) != _default(f)
    ]
    return f"{type(value).__name__}({', '.join(told)})"


def _default(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


def _describe(path: str, node: Node) -> str:
    parameters = "" if node.children() else written(node).partition("(")[2][:-1]
    return f"{path} ({parameters})" if parameters else path


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")
