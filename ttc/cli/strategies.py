"""Strategies on a command line: a text, or the file of a saved graph."""

from __future__ import annotations

from pathlib import Path

__all__ = ["STRATEGY_HELP", "strategy_text"]

STRATEGY_HELP = "A strategy in its text form, or the file of a saved one."


def strategy_text(given: str) -> str:
    """The text of a strategy; that of a file is JSON, which everything takes that takes a text.

    Raises:
        GraphError: the file holds no strategy.
    """
    if not given.endswith((".json", ".yaml", ".yml")):
        return given
    from ttc.graph_files import load, to_json

    return to_json(load(Path(given)))
