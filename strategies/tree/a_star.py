"""AStar: A*-decoding, which follows the trajectory that has lost the least by its verifier.

Source: Chatziveroglou 2025 (arXiv 2505.13672): h(s) = 1 - r(s); a step costs max(0, h(s') - h(s)),
so only a falling score costs; the least g + h is expanded next, and the first whole solution that
comes first is the answer.
Differs: the prompt has the score 0, so a first step costs nothing; a trajectory whose score is
unknown has that of its parent; equal costs go to the deeper one.
Cost: at most `max_expansions` steps, and as many scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Flow
from ttc.ports import Scope
from ttc.strategies.tree.best_first import BestFirst
from ttc.strategies.tree.frontier import Frontier, FrontierState
from ttc.strategies.tree.nodes import TreeNode

__all__ = ["AStar", "ByLoss"]


@dataclass(frozen=True, kw_only=True)
class ByLoss(Frontier):
    """The least loss on the way plus what is missing now."""

    def cost(self, state: FrontierState, node: TreeNode) -> tuple[float, float]:
        """G + h, and g."""
        above = state.tree[node.parent or 0]
        missing = _missing(state, node)
        paid = state.paid[above.id] + max(0.0, missing - _missing(state, above))
        return paid + missing, paid


def _missing(state: FrontierState, node: TreeNode) -> float:
    """h: what is missing to 1 of the nearest score on the way; the prompt itself has 0."""
    known = (at.value for at in state.tree.path(node.id) if at.value is not None)
    return 1.0 - next(known, 0.0)


@dataclass(frozen=True)
class AStar(BestFirst):
    """Expands the trajectory that has lost the least; ends with whole solutions that come first."""

    remote: ClassVar[bool] = True

    def faults(self, given: Flow) -> list[str]:
        """Costs need scores from 0 to 1."""
        faults = super().faults(given)
        if self.verifier.range != (0.0, 1.0):
            faults.append(
                f"the score {self.verifier.name!r} has the range {self.verifier.range}, and a loss "
                "needs one from 0 to 1; choose a transform of it that has, or best_first()"
            )
        return faults

    def policy(self, scope: Scope) -> Frontier:
        """What decides."""
        return ByLoss(
            width=self.width,
            num_answers=self.num_answers,
            max_expansions=self.max_expansions,
            num_expanding=self.num_expanding,
        )
