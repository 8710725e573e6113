"""DiverseVerifierTreeSearch: independent greedy searches, so that the solutions differ.

Source: Beeching, Tunstall and Rush 2024, "Scaling test-time compute with open models", DVTS:
N / M subtrees, of which each draws M steps and keeps the single best.
Differs: each subtree gives its one solution, with no copies to fill up to N; the subtrees share no
clock, so none waits for another.
Cost: N = num_beams x beam_width steps for each of at most `max_steps` layers, and as many scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from immutables import Map

from ttc.ports import Scope
from ttc.strategies.tree.layers import best_of
from ttc.strategies.tree.nodes import Tree
from ttc.strategies.tree.policy import Expansion, Result
from ttc.strategies.tree.search import TreeSearch

__all__ = ["DiverseVerifierTreeSearch", "Subtrees", "SubtreesState"]


@dataclass(frozen=True, kw_only=True)
class _Subtree:
    """One greedy search."""

    parent: int = 0
    """The node that is being extended."""
    to_ask: int
    to_tell: int
    found: tuple[int, ...] = ()
    """What the steps that were told have made; two subtrees may share a node."""


@dataclass(frozen=True, kw_only=True)
class SubtreesState:
    """The state of the searches."""

    tree: Tree
    subtrees: tuple[_Subtree, ...]
    asked_by: Map[int, int] = field(default_factory=Map)
    """The subtree that each ask in flight belongs to."""


@dataclass(frozen=True, kw_only=True)
class Subtrees:
    """Extends each subtree's node several ways and goes on with the best."""

    num_beams: int
    beam_width: int

    def init(self) -> SubtreesState:
        """Every subtree at the root."""
        start = _Subtree(to_ask=self.beam_width, to_tell=self.beam_width)
        return SubtreesState(tree=Tree.planted(backs_up=False), subtrees=(start,) * self.num_beams)

    def ask(self, state: SubtreesState, seed: int) -> tuple[SubtreesState, Expansion | None]:
        """Another step of the subtree that has come the least far."""
        waiting = [place for place, subtree in enumerate(state.subtrees) if subtree.to_ask]
        if not waiting:
            return state, None
        place = min(waiting, key=lambda place: state.tree[state.subtrees[place].parent].depth)
        subtree = state.subtrees[place]
        tree, expansion = state.tree.expand(subtree.parent)
        state = replace(state, tree=tree, asked_by=state.asked_by.set(expansion.id, place))
        return _with(state, place, replace(subtree, to_ask=subtree.to_ask - 1)), expansion

    def tell(self, state: SubtreesState, result: Result) -> SubtreesState:
        """Takes in a step; the last one of a subtree decides how it goes on."""
        place = state.asked_by[result.id]
        tree = state.tree.record(result, gives=False)
        state = replace(state, tree=tree, asked_by=state.asked_by.delete(result.id))
        subtree = state.subtrees[place]
        node = tree[result.id if result.duplicate_of is None else result.duplicate_of]
        lives = node.status in ("open", "finished", "truncated")
        found = (*subtree.found, node.id) if lives else subtree.found
        subtree = replace(subtree, to_tell=subtree.to_tell - 1, found=found)
        state = _with(state, place, subtree)
        return state if subtree.to_tell else self._decided(state, place)

    def _decided(self, state: SubtreesState, place: int) -> SubtreesState:
        """Goes on with the best step, or ends; what no subtree wants is dropped."""
        found = state.subtrees[place].found
        tree, best = state.tree, best_of(state.tree, found, 1)
        following = _Subtree(parent=best[0] if best else 0, to_ask=0, to_tell=0)
        if best and tree[best[0]].status == "open":
            following = replace(following, to_ask=self.beam_width, to_tell=self.beam_width)
        elif best and best[0] not in tree.given:
            tree = tree.give(best[0])
        state = _with(replace(state, tree=tree), place, following)
        wanted = {id for subtree in state.subtrees for id in (subtree.parent, *subtree.found)}
        wanted.update(tree.given)
        return replace(state, tree=tree.drop(*(id for id in found if id not in wanted)))


def _with(state: SubtreesState, place: int, subtree: _Subtree) -> SubtreesState:
    subtrees = (*state.subtrees[:place], subtree, *state.subtrees[place + 1 :])
    return replace(state, subtrees=subtrees)


@dataclass(frozen=True)
class DiverseVerifierTreeSearch(TreeSearch):
    """`num_beams` searches side by side; each draws `beam_width` steps and keeps the best one."""

    remote: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("num_beams", "beam_width")

    num_beams: int = field(default=4, kw_only=True)
    """Searches, and so solutions."""
    beam_width: int = field(default=4, kw_only=True)
    """Steps that each of them draws before it keeps one."""

    @property
    def most_expansions(self) -> int:
        """Every layer of every search."""
        return self.num_beams * self.beam_width * self.max_steps

    @property
    def most_given(self) -> int:
        """One for each search."""
        return self.num_beams

    def policy(self, scope: Scope) -> Subtrees:
        """What decides."""
        return Subtrees(num_beams=self.num_beams, beam_width=self.beam_width)
