"""TreeOfThoughts: propose thoughts, let a model judge states, and go on with the best.

Source: Yao et al. 2023 (arXiv 2305.10601), algorithms 1 (breadth first) and 2 (depth first); a
state is judged by a value prompt alone or by a vote among states, section 3.
Differs: states are judged by any verifier: `ThoughtValue` is the value prompt, `ThoughtVote` the
vote, and a verifier that scores candidates beside each other sees a whole layer, or all children of
a state. Depth first gives the first `num_answers` solutions.
Cost: breadth first at most breadth x width steps for each of at most `max_steps` layers, depth
first at most `max_expansions`; a judgement of each state.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, get_args

from ttc.graph import Cost, Flow
from ttc.ports import Scope
from ttc.strategies.tree.layers import Layers, LayerState, best_of
from ttc.strategies.tree.nodes import Tree
from ttc.strategies.tree.policy import Comparison, Expansion, Result
from ttc.strategies.tree.search import TreeSearch

__all__ = ["BreadthFirst", "DepthFirst", "DepthState", "TreeOfThoughts"]

TreeOrder = Literal["breadth_first", "depth_first"]


@dataclass(frozen=True, kw_only=True)
class BreadthFirst(Layers):
    """Keeps the best states of a layer and extends each of them."""

    breadth: int
    width: int
    num_answers: int = 1

    def first(self) -> int:
        """The root's own thoughts."""
        return self.width

    def spread(self, state: LayerState) -> LayerState:
        """The best states stay, unless there are solutions enough."""
        tree = state.tree
        ended = [id for id in state.layer if tree[id].status != "open"]
        tree = tree.give(*ended)
        if sum(tree[id].status == "finished" for id in tree.given) >= self.num_answers:
            return replace(state, tree=tree.close())
        kept = best_of(tree, (id for id in state.layer if id not in ended), self.breadth)
        tree = tree.drop(*(id for id in state.layer if id not in (*kept, *ended)))
        queue = tuple(id for id in kept for _ in range(self.width))
        return replace(state, tree=tree, queue=queue)


@dataclass(frozen=True, kw_only=True)
class DepthState:
    """The state of a depth-first search."""

    tree: Tree
    stack: tuple[int, ...] = (0,)
    """States that wait, the next one last."""
    queue: tuple[int, ...] = ()
    """Parents of the thoughts that are asked for next."""
    children: tuple[int, ...] = ()
    """The children of the state that is being extended, as far as they can go on."""


@dataclass(frozen=True, kw_only=True)
class DepthFirst:
    """Extends the best child first, and prunes what is judged hopeless."""

    width: int
    num_answers: int
    max_expansions: int
    prune_below: float = 0.0
    compares: bool = False

    def init(self) -> DepthState:
        """The root on the stack."""
        return DepthState(tree=Tree.planted(backs_up=False))

    def ask(self, state: DepthState, seed: int) -> tuple[DepthState, Expansion | Comparison | None]:
        """Another thought of the state on top; once all have been told, the best of them."""
        if not state.queue:
            if state.tree.num_in_flight:
                return state, None
            if self.compares and len(state.children) > 1:
                tree, comparison = state.tree.compare(*state.children)
                return replace(state, tree=tree), comparison
            state = self._deeper(state)
        if not state.queue:
            return state, None
        tree, expansion = state.tree.expand(state.queue[0])
        return replace(state, tree=tree, queue=state.queue[1:]), expansion

    def tell(self, state: DepthState, result: Result) -> DepthState:
        """Takes in a thought, or a judgement of all children."""
        tree = state.tree.record(result, gives=False)
        if result.id in tree.nodes and tree[result.id].status == "finished":
            tree = tree.give(result.id)
            if len(tree.given) >= self.num_answers:
                return DepthState(tree=tree.close(), stack=())
        state = replace(state, tree=tree)
        if result.id not in tree.nodes:
            return self._deeper(state)
        if tree[result.id].status == "open":
            state = replace(state, children=(*state.children, result.id))
        return state

    def _deeper(self, state: DepthState) -> DepthState:
        """Puts the children on the stack, the best on top, and extends what is there then."""
        tree = state.tree
        ranked = best_of(tree, state.children, len(state.children))
        hopeless = [id for id in ranked if (tree[id].value or 0.0) < self.prune_below]
        hopeless = [id for id in hopeless if tree[id].value is not None]
        tree = tree.drop(*hopeless)
        stack = [*state.stack, *(id for id in reversed(ranked) if id not in hopeless)]
        room = self.max_expansions - tree.num_asks
        if not stack or room <= 0:
            return replace(state, tree=tree, stack=(), children=())
        count = min(self.width, room)
        queue = (stack.pop(),) * count
        return replace(state, tree=tree, stack=tuple(stack), queue=queue, children=())


@dataclass(frozen=True)
class TreeOfThoughts(TreeSearch):
    """Extends the states that a verifier finds most promising, in breadth or in depth first."""

    remote: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("width", "breadth", "num_answers", "max_expansions")

    search: TreeOrder = field(default="breadth_first", kw_only=True)
    width: int = field(default=4, kw_only=True)
    """Thoughts that a state is extended by."""
    breadth: int = field(default=4, kw_only=True)
    """States that are kept in a layer, breadth first."""
    prune_below: float = field(default=0.0, kw_only=True)
    """The value below which a state is given up, depth first."""
    num_answers: int = field(default=1, kw_only=True)
    """Solutions after which the search ends; breadth first, with their layer."""
    max_expansions: int = field(default=256, kw_only=True)
    """The most thoughts in all, depth first."""

    @property
    def most_expansions(self) -> int:
        """Every layer in full, or as told."""
        if self.search == "depth_first":
            return self.max_expansions
        return self.width * (1 + self.breadth * (self.max_steps - 1))

    @property
    def most_given(self) -> int:
        """The answers; breadth first, those of their layer beside them."""
        beside = self.width * self.breadth if self.search == "breadth_first" else 1
        return self.num_answers - 1 + beside

    def faults(self, given: Flow) -> list[str]:
        """An order that there is."""
        faults = super().faults(given)
        if self.search not in get_args(TreeOrder):
            faults.append(f"search is breadth_first or depth_first, not {self.search!r}")
        return faults

    def score_cost(self, scored: Flow) -> Cost:
        """Of each state alone, or of those of a layer or a parent beside each other."""
        if self.verifier.needs == "each":
            return super().score_cost(scored)
        in_layers = self.search == "breadth_first"
        beside = self.width * self.breadth if in_layers else self.width
        stages = self.max_steps if in_layers else self.max_expansions
        cost = super().score_cost(replace(scored, count=beside)) * stages
        return replace(cost, verifier_calls=super().score_cost(scored).verifier_calls)

    def policy(self, scope: Scope) -> BreadthFirst | DepthFirst:
        """What decides."""
        compares = self.verifier.needs == "all"
        if self.search == "breadth_first":
            return BreadthFirst(
                breadth=self.breadth,
                width=self.width,
                num_answers=self.num_answers,
                compares=compares,
            )
        return DepthFirst(
            width=self.width,
            num_answers=self.num_answers,
            max_expansions=self.max_expansions,
            prune_below=self.prune_below,
            compares=compares,
        )
