"""`ttc graph`: a strategy, checked and drawn."""

from __future__ import annotations

from typing import Annotated

import typer

from ttc.cli.strategies import STRATEGY_HELP, strategy_text
from ttc.cli.terminal import Fault, counted, say, show, table
from ttc.drawing import written
from ttc.graph import Cost, Flow, Node, compile_graph
from ttc.text_form import parse

__all__ = ["graph"]

_FORMATS = ("text", "mermaid", "dot")


def graph(
    spec: Annotated[str, typer.Argument(help=STRATEGY_HELP, show_default=False)],
    format: Annotated[
        str, typer.Option(help="How to print it.", metavar="|".join(_FORMATS))
    ] = "text",
) -> None:
    """Check a strategy and print its graph."""
    if format not in _FORMATS:
        raise Fault(f"--format: {format!r} is none of {', '.join(_FORMATS)}")
    strategy = parse(strategy_text(spec))
    if format == "mermaid":
        say(strategy.mermaid().rstrip("\n"))
    elif format == "dot":
        say(strategy.dot().rstrip("\n"))
    else:
        rows = [
            (
                placed.path,
                _described(placed.node),
                _flow(placed.given),
                _flow(placed.node.flow(placed.given)),
            )
            for placed in strategy.walk()
        ]
        show(table(("path", "node", "takes", "gives"), rows))
        say("")
        say(_worst_case(compile_graph(strategy).bound(Flow())))


def _flow(flow: Flow) -> str:
    return f"{'any number' if flow.count is None else flow.count} {flow.kind}"


def _described(node: Node) -> str:
    """A node with the parameters that are not its defaults; what is inside has rows of its own."""
    return node.name if node.children() else written(node)


def _worst_case(cost: Cost) -> str:
    parts = [_at_most(cost.calls, "call"), _at_most(cost.tokens, "output token")]
    if cost.verifier_calls != 0:
        parts.append(_at_most(cost.verifier_calls, "verifier call"))
    return f"worst case: {', '.join(parts)}; prompts are not counted"


def _at_most(amount: int | None, what: str) -> str:
    return f"any number of {what}s" if amount is None else counted(amount, what)
