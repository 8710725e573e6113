"""BudgetGuidedMCTS: explore while much of the token budget is left, and deepen at its end.

Source: BG-MCTS, Miyamoto et al. 2026, arXiv 2602.09574. The policy is `budget_guided`.
Differs: see the policy.
Cost: at most `max_expansions` steps and as many scores; it fits itself to the token budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from ttc.graph import Flow, is_count
from ttc.ports import Scope
from ttc.strategies.tree.budget_guided import BudgetGuidedPolicy
from ttc.strategies.tree.search import TreeSearch
from ttc.strategies.tree.several_models import range_faults

__all__ = ["BudgetGuidedMCTS"]


@dataclass(frozen=True)
class BudgetGuidedMCTS(TreeSearch):
    """Gives every trajectory that came to its end, in the order of the search."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("max_expansions",)

    token_budget: int | None = field(default=None, kw_only=True)
    """The tokens of its steps. `None` is the token limit that it runs under."""
    max_expansions: int = field(default=1024, kw_only=True)
    """The most steps in all."""
    exploration_weight: float = field(default=math.sqrt(2), kw_only=True)
    """c: what few visits weigh, at the start of the budget."""
    depth_weight: float = field(default=1.0, kw_only=True)
    """kappa: what depth weighs, at its end."""
    width_weight: float = field(default=1.0, kw_only=True)
    """lambda: what the variance of the children's scores weighs for a new one, at the start."""
    window: int = field(default=8, kw_only=True)

    @property
    def most_expansions(self) -> int:
        """As told."""
        return self.max_expansions

    def faults(self, given: Flow) -> list[str]:
        """Numbers out of range, and scores that are not between 0 and 1."""
        faults = super().faults(given) + range_faults(self.verifier)
        if self.token_budget is not None and not is_count(self.token_budget):
            faults.append(
                f"token_budget is a whole number of at least 1, not {self.token_budget!r}"
            )
        for name in ("exploration_weight", "depth_weight", "width_weight"):
            number = getattr(self, name)
            if not (math.isfinite(number) and number >= 0):
                faults.append(f"{name} is a number of at least 0, not {number!r}")
        return faults

    def policy(self, scope: Scope) -> BudgetGuidedPolicy:
        """What decides.

        Raises:
            ValueError: it goes by a budget, and there is none.
        """
        budget = scope.remaining.tokens if self.token_budget is None else self.token_budget
        if budget is None:
            raise ValueError(
                "it spends a token budget, and the run has none; set Budget(tokens=…) or "
                "token_budget="
            )
        return BudgetGuidedPolicy(
            token_budget=max(1, budget),
            max_expansions=self.max_expansions,
            exploration_weight=self.exploration_weight,
            depth_weight=self.depth_weight,
            width_weight=self.width_weight,
        )
