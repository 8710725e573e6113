"""BeamSearch: step by step, keep the trajectories that score best and extend each several ways.

Source: Snell et al. 2024 (arXiv 2408.03314), section 5.2, beam search and lookahead search against
a process reward model; a score at every g-th step only, Chen et al. 2025, VG-Search (arXiv
2505.11730).
Differs: a solution that has come to its end leaves the pool and takes no beam's place; equal steps
are one beam; nothing is filled up with copies, so each solution is given once.
Cost: N = num_beams x beam_width steps for each of at most `max_steps` layers, and a score of each
at every `granularity`-th; a lookahead of k steps costs k more for each score.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from ttc.graph import Flow, is_count
from ttc.ports import Scope, Verifier
from ttc.strategies.tree.layers import Layers, LayerState, best_of
from ttc.strategies.tree.lookahead import Lookahead
from ttc.strategies.tree.search import TreeSearch

__all__ = ["BeamSearch", "Beams"]


@dataclass(frozen=True, kw_only=True)
class Beams(Layers):
    """Keeps the best nodes of a layer and extends each of them."""

    num_beams: int
    beam_width: int
    granularity: int = 1

    def first(self) -> int:
        """As many steps as in every other layer."""
        return self.num_beams * self.beam_width

    def is_scored(self, depth: int) -> bool:
        """At every so many steps."""
        return depth % self.granularity == 0

    def spread(self, state: LayerState) -> LayerState:
        """Between two scores every node goes on once; after one, the best go on several ways."""
        if not self.is_scored(state.depth):
            return replace(state, queue=state.layer)
        tree = state.tree
        kept = best_of(tree, state.layer, self.num_beams)
        if len(tree.given) >= self.first():
            return replace(state, tree=tree.close(), queue=())
        tree = tree.drop(*(id for id in state.layer if id not in kept))
        queue = tuple(id for id in kept for _ in range(self.beam_width))
        return replace(state, tree=tree, queue=queue)


@dataclass(frozen=True)
class BeamSearch(TreeSearch):
    """Keeps `num_beams` trajectories and extends each in `beam_width` ways, step by step."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("num_beams", "beam_width", "granularity")

    num_beams: int = field(default=4, kw_only=True)
    """Trajectories that are kept after each layer."""
    beam_width: int = field(default=4, kw_only=True)
    """Steps that each of them is extended by."""
    granularity: int = field(default=1, kw_only=True)
    """Steps from one score to the next: 1 is beam search, `max_steps` best-of-N."""
    lookahead_steps: int = field(default=0, kw_only=True)
    """Greedy steps that are drawn only to score what a trajectory leads to."""

    @property
    def judge(self) -> Verifier:
        """The verifier, behind a lookahead if there is one."""
        if not is_count(self.lookahead_steps):
            return self.verifier
        return Lookahead(
            verifier=self.verifier, steps=self.steps, count=self.lookahead_steps, role=self.role
        )

    @property
    def most_expansions(self) -> int:
        """Every layer in full."""
        return self.num_beams * self.beam_width * self.max_steps

    @property
    def most_given(self) -> int:
        """It ends once there are N, and the last layer may bring N more."""
        return 2 * self.num_beams * self.beam_width - 1

    def faults(self, given: Flow) -> list[str]:
        """A lookahead is a number of steps."""
        faults = super().faults(given)
        if self.lookahead_steps != 0 and not is_count(self.lookahead_steps):
            faults.append(
                f"lookahead_steps is a whole number of at least 0, not {self.lookahead_steps!r}"
            )
        return faults

    def policy(self, scope: Scope) -> Beams:
        """What decides."""
        return Beams(
            num_beams=self.num_beams, beam_width=self.beam_width, granularity=self.granularity
        )
