"""BestFirst: expand the most promising trajectory next, wherever in the tree it is.

Source: best-first search, Hart, Nilsson and Raphael 1968; over a model's steps with a value
function, Koh et al. 2024 (arXiv 2407.01476), section 3.3.
Differs: equal values go to the deeper trajectory, so that without any signal one is followed to its
end; the search ends with the first whole solutions that come first, not after a fixed number of
expansions.
Cost: at most `max_expansions` steps, and as many scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ttc.ports import Scope
from ttc.strategies.tree.frontier import Frontier, FrontierState
from ttc.strategies.tree.nodes import TreeNode
from ttc.strategies.tree.search import TreeSearch

__all__ = ["BestFirst"]
_UNKNOWN = float("inf")


@dataclass(frozen=True, kw_only=True)
class ByValue(Frontier):
    """The greatest value first; an unknown one comes last."""

    def cost(self, state: FrontierState, node: TreeNode) -> tuple[float, float]:
        """Minus the value; the way costs nothing."""
        return (_UNKNOWN if node.value is None else -node.value), 0.0


@dataclass(frozen=True)
class BestFirst(TreeSearch):
    """Expands the trajectory with the greatest score; ends with whole solutions that come first."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("width", "num_answers", "max_expansions", "num_expanding")

    width: int = field(default=4, kw_only=True)
    """Children of a trajectory that is expanded."""
    num_answers: int = field(default=1, kw_only=True)
    """Whole solutions after which the search ends."""
    max_expansions: int = field(default=256, kw_only=True)
    """The most steps in all."""
    num_expanding: int = field(default=1, kw_only=True)
    """Trajectories that are expanded at once; more of them use more of a machine, and look less far
    ahead."""

    @property
    def most_expansions(self) -> int:
        """As told."""
        return self.max_expansions

    @property
    def most_given(self) -> int:
        """The answers."""
        return self.num_answers

    def policy(self, scope: Scope) -> Frontier:
        """What decides."""
        return ByValue(
            width=self.width,
            num_answers=self.num_answers,
            max_expansions=self.max_expansions,
            num_expanding=self.num_expanding,
        )
