"""MonteCarloTreeSearch: walk to where scores are high or little is known, and follow it to an end.

Source: UCT, Kocsis and Szepesvári 2006; over a model's steps, Hao et al. 2023, RAP (arXiv
2305.14992); PUCT with a process reward model, OpenR (arXiv 2410.09671); WU-UCT, Liu et al. 2018
(arXiv 1810.11755). The policy is `monte_carlo`.
Differs: see the policy.
Cost: `max_expansions` steps, and as many scores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, get_args

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.strategies.tree.monte_carlo import Backup, MonteCarloPolicy
from ttc.strategies.tree.selection import Select
from ttc.strategies.tree.several_models import SeveralModels, named_actions

__all__ = ["MonteCarloTreeSearch"]


@dataclass(frozen=True)
class MonteCarloTreeSearch(SeveralModels):
    """Gives every trajectory that came to its end, in the order of the search."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("max_expansions",)

    max_expansions: int = field(default=128, kw_only=True)
    """Steps in all."""
    select: Select = field(default="uct", kw_only=True)
    """`uct`, `puct` or `wu_uct`."""
    exploration_weight: float | None = field(default=None, kw_only=True)
    """What little knowledge weighs against the score; `None` is the rule's own weight."""
    backup: Backup = field(default="mean", kw_only=True)
    """Which of the scores below a step stands for it: `mean` or `max`."""
    widening_factor: float = field(default=1.0, kw_only=True)
    """k: a step visited N times has at most k * N^alpha children."""
    widening_exponent: float = field(default=1 / 3, kw_only=True)
    """alpha; with 0 every step has k children."""
    simulate: bool = field(default=True, kw_only=True)
    """Whether a new step is followed to the trajectory's end before the next walk."""
    virtual_loss: float = field(default=0.0, kw_only=True)
    """How many visits of score 0 stand for a step in flight; `wu_uct` counts those otherwise."""
    root_noise: float = field(default=0.0, kw_only=True)
    """The share of Dirichlet noise in the root's priors; only `puct` has priors."""
    window: int = field(default=8, kw_only=True)

    @property
    def most_expansions(self) -> int:
        """As told."""
        return self.max_expansions

    def faults(self, given: Flow) -> list[str]:
        """Rules that there are, numbers in range, and nothing that its rule would ignore."""
        faults = super().faults(given)
        for name, value, known in (
            ("select", self.select, get_args(Select)),
            ("backup", self.backup, get_args(Backup)),
        ):
            if value not in known:
                faults.append(f"{name} is one of {', '.join(known)}, not {value!r}")
        weight = 0.0 if self.exploration_weight is None else self.exploration_weight
        for name, number, low, high in (
            ("exploration_weight", weight, 0.0, math.inf),
            ("widening_factor", self.widening_factor, 1.0, math.inf),
            ("widening_exponent", self.widening_exponent, 0.0, 1.0),
            ("virtual_loss", self.virtual_loss, 0.0, math.inf),
            ("root_noise", self.root_noise, 0.0, 1.0),
        ):
            if not (math.isfinite(number) and low <= number <= high):
                faults.append(f"{name} lies between {low:g} and {high:g}, not at {number!r}")
        if self.virtual_loss and self.select == "wu_uct":
            faults.append("wu_uct counts what is in flight; leave out virtual_loss")
        if self.root_noise and self.select != "puct":
            faults.append(f"{self.select} has no priors, so root_noise would be ignored")
        return faults

    def policy(self, scope: Scope) -> MonteCarloPolicy:
        """What decides."""
        return MonteCarloPolicy(
            select=self.select,
            exploration_weight=self.exploration_weight,
            backup=self.backup,
            widening_factor=self.widening_factor,
            widening_exponent=self.widening_exponent,
            virtual_loss=self.virtual_loss,
            root_noise=self.root_noise,
            simulate=self.simulate,
            max_expansions=self.max_expansions,
            actions=named_actions(self.actions, self.role),
            price_weight=self.price_weight,
        )
