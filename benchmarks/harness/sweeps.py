"""Sweeps: strategies by name, and one text that stands for several.

    vote: sample(n={4,8,16}, temperature=0.8) >> vote()

is three strategies, `vote n=4` to `vote n=16`. Several braces give every combination.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product

from ttc.benchmarks.harness.config import Arm
from ttc.errors import GraphError
from ttc.text_form import parse

__all__ = ["arms_of"]

_NAME = re.compile(r"\s*([A-Za-z][\w .+/@-]*?)\s*:\s*(?=[A-Za-z({])")
_BRACES = re.compile(r"(?:(\w+)\s*=\s*)?\{([^{}\":]+)\}")


def arms_of(texts: Sequence[str]) -> tuple[Arm, ...]:
    """The strategies that texts name, each checked.

    Raises:
        GraphError: one cannot be read or run, or two share a name.
    """
    arms = [arm for text in texts for arm in _expanded(text)]
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1:
            raise GraphError([f"two strategies are called {name!r}; name them, as `vote: ...`"])
    for arm in arms:
        parse(arm.strategy)
    return tuple(arms)


def _expanded(text: str) -> Iterator[Arm]:
    match = _NAME.match(text)
    name, strategy = (match[1], text[match.end() :]) if match else ("", text)
    strategy = strategy.strip()
    braces = list(_BRACES.finditer(strategy))
    values = [[value.strip() for value in brace[2].split(",")] for brace in braces]
    for chosen in product(*values):
        made, end, told = "", 0, []
        for brace, value in zip(braces, chosen, strict=True):
            keyword = f"{brace[1]}=" if brace[1] else ""
            made += strategy[end : brace.start()] + keyword + value
            told.append(f"{keyword}{value}")
            end = brace.end()
        made += strategy[end:]
        yield Arm(name=" ".join([name, *told]) if name else made, strategy=made)
