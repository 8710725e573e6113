"""Searches without an engine: policies that are asked and told by hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ttc.strategies.tree import Expansion, Policy, Result
from ttc.strategies.tree.policy import Status

Node = tuple[int, float | None]
"""A node that was told, by its parent and its score."""
Values = Callable[[Expansion, float], float | None]
"""The score of a new node, by what was asked for and the score of its parent."""


def grown(policy: Policy[Any], *nodes: Node, running: Sequence[int] = ()) -> Any:
    """The state after these nodes, told as open; and with running ones below these parents."""
    state = policy.init()
    for parent, value in nodes:
        state = replace(state, tree=state.tree.expand(parent)[0])
        state = tell(policy, state, value)
    for parent in running:
        state = replace(state, tree=state.tree.expand(parent)[0])
    return state


def tell(
    policy: Policy[Any],
    state: Any,
    value: float | None,
    *,
    status: Status = "open",
    id: int | None = None,
    tokens: int = 10,
    duplicate_of: int | None = None,
) -> Any:
    """The state after the latest ask, or the one of a number, was told a score."""
    result = Result(
        id=state.tree.num_asks if id is None else id,
        status=status,
        value=value,
        tokens=tokens,
        duplicate_of=duplicate_of,
    )
    return policy.tell(state, result)


def wandering(expansion: Expansion, above: float) -> float:
    """Scores that stay near their parent's, a function of the node's number alone."""
    return min(1.0, max(0.0, above + Random(expansion.id).gauss(0.0, 0.15)))


def searched(
    policy: Policy[Any],
    num_asks: int,
    *,
    window: int = 1,
    values: Values = wandering,
    depth: int = 8,
    state: Any = None,
) -> tuple[Any, list[Expansion]]:
    """Asks and tells in turn, each tell `window` asks behind; nodes at `depth` are finished."""
    state = policy.init() if state is None else state
    seed = state.tree.num_asks
    asks: list[Expansion] = []
    pending: deque[Expansion] = deque()
    while len(asks) < num_asks:
        state, expansion = policy.ask(state, seed)
        seed += 1
        if isinstance(expansion, Expansion):
            asks.append(expansion)
            pending.append(expansion)
        elif not pending:
            break
        if expansion is None or len(pending) == window:
            oldest = pending.popleft()
            score = values(oldest, state.tree[oldest.parent].value or 0.5)
            status: Status = "finished" if oldest.depth == depth else "open"
            state = tell(policy, state, score, status=status, id=oldest.id)
    return state, asks
