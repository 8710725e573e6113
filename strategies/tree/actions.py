"""What a search may do to a node, each with a price, and what it has learned of each in the tree.

Several models in one tree are several actions: one is chosen each time that a node is extended,
by its scores anywhere in the tree less `price_weight` times its price. So the dearer of two is
used where its mean score is higher by more than `price_weight` times the difference in price.

Source: actions that share one tree, Inoue et al. 2025, arXiv 2503.04412, section on several models
(there without prices); the price as the multiplier of a budget, Everett 1963, "Generalized Lagrange
multiplier method".
Differs: what an action is worth is learned over the whole tree, and not for each node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ttc.strategies.tree.scores import Scores

__all__ = ["Action", "Tally", "action_faults", "asked", "told"]


@dataclass(frozen=True, slots=True)
class Action:
    """One way to extend a node."""

    remote: ClassVar[bool] = True

    name: str = "step"
    """What the driver knows it by: the role of a model, where models are the actions."""
    price: float = 0.0
    """What one use of it costs, in any unit that is the same for all actions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """What was seen of an action."""

    num_asks: int = 0
    """How often it was chosen."""
    scores: Scores = field(default_factory=Scores)
    """Of the nodes that it made."""


def asked(tallies: Sequence[Tally], index: int) -> tuple[Tally, ...]:
    """The tallies after one action was chosen once more."""
    tally = replace(tallies[index], num_asks=tallies[index].num_asks + 1)
    return (*tallies[:index], tally, *tallies[index + 1 :])


def told(tallies: Sequence[Tally], index: int, score: float | None) -> tuple[Tally, ...]:
    """The tallies after a node that the action made was scored; an unknown score changes none."""
    if score is None:
        return tuple(tallies)
    tally = replace(tallies[index], scores=tallies[index].scores.add(score))
    return (*tallies[:index], tally, *tallies[index + 1 :])


def action_faults(actions: object, price_weight: float) -> list[str]:
    """What is wrong with the actions of a search."""
    if not isinstance(actions, tuple) or not actions:
        return [f"actions is a tuple of at least one Action, not {actions!r}"]
    strange = [action for action in actions if not isinstance(action, Action)]
    if strange:
        return [f"{strange[0]!r} is no Action"]
    faults = [
        f"the price of action {action.name!r} is a number of at least 0, not {action.price!r}"
        for action in actions
        if not (math.isfinite(action.price) and action.price >= 0)
    ]
    names = [action.name for action in actions]
    twice = sorted({name for name in names if names.count(name) > 1})
    faults += [f"two actions are called {name!r}" for name in twice]
    if not (math.isfinite(price_weight) and price_weight >= 0):
        faults.append(f"price_weight is a number of at least 0, not {price_weight!r}")
    elif not faults:
        differ = len({action.price for action in actions}) > 1
        if differ and not price_weight:
            faults.append("prices differ, and price_weight=0 makes them count for nothing")
        if price_weight and not differ:
            faults.append(f"price_weight={price_weight!r} weighs prices that do not differ")
    return faults
