"""Strategies on a command line: a text, or the file of a saved graph."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ARM_HELP", "STRATEGY_HELP", "arm_text", "strategy_text"]

STRATEGY_HELP = "A strategy in its text form, or the file of a saved one."

ARM_HELP = "May be repeated; n={2,4} is a sweep, and SPEC may be the file of a saved strategy."

_FILE = re.compile(r"(?:([A-Za-z][\w .+/@-]*?)\s*:\s+)?(\S.*\.(?:json|ya?ml))")


def arm_text(given: str) -> str:
    """`[NAME: ]SPEC`, where a file is written out; one that is given no name has that of the file.

    Raises:
        GraphError: the file holds no strategy.
    """
    match = _FILE.fullmatch(given.strip())
    if match is None:
        return given
    path = match[2]
    name = match[1] or re.sub(r"[^\w.+-]", "-", Path(path).stem)
    return f"{name if name[0].isalpha() else f'file {name}'}: {strategy_text(path)}"


def strategy_text(given: str) -> str:
    """The text of a strategy; that of a file is JSON, which everything takes that takes a text.

    Raises:
        GraphError: the file holds no strategy.
    """
    if not given.endswith((".json", ".yaml", ".yml")):
        return given
    from ttc.graph_files import load, to_json

    return to_json(load(Path(given)))
