"""What a child's score gains by having been visited seldom: UCT, WU-UCT and PUCT.

Source: UCT, Kocsis and Szepesvári 2006, "Bandit based Monte-Carlo planning"; WU-UCT, Liu et al.
2018, arXiv 1810.11755; PUCT, Silver et al. 2017, arXiv 1712.01815, with the constants of AlphaZero,
which OpenR (arXiv 2410.09671) uses for reasoning too.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

__all__ = ["SELECT", "Select", "bonus", "default_weight"]

Select = Literal["uct", "puct", "wu_uct"]
SELECT: tuple[Select, ...] = get_args(Select)
PUCT_BASE = 19652

_SPREAD = 0.1
"""About how far scores of siblings lie apart."""
_WEIGHTS: dict[Select, float] = {"uct": math.sqrt(2) * _SPREAD, "puct": 1.25, "wu_uct": _SPREAD}


def default_weight(select: Select) -> float:
    """The exploration weight where none is given.

    The root of 2 in UCT's paper is for rewards that fill the range from 0 to 1, and it grows and
    shrinks with that range. A verifier's scores of siblings lie about a tenth apart, so it is that
    part of it; at the whole of it a search is hardly better than chance. With nothing in flight
    WU-UCT's weight is the same as UCT's. PUCT has AlphaZero's constant.
    """
    return _WEIGHTS[select]


def bonus(
    select: Select, weight: float, parent_visits: float, visits: float, prior: float
) -> float:
    """What is added to the value of a child.

    Args:
        select: the rule.
        weight: the exploration weight; for PUCT the constant beside its logarithm.
        parent_visits: of the parent; for WU-UCT those in flight included.
        visits: of the child, likewise; infinite gain where there are none, except with PUCT.
        prior: the share of the child among its siblings; only PUCT reads it.
    """
    if select == "puct":
        growth = math.log((parent_visits + PUCT_BASE + 1) / PUCT_BASE) + weight
        return prior * math.sqrt(parent_visits) / (1 + visits) * growth
    if not visits:
        return math.inf
    factor = 2.0 if select == "wu_uct" else 1.0
    return weight * math.sqrt(factor * math.log(max(parent_visits, 1.0)) / visits)
