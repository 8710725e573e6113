"""What a search decides: pure policies that ask for expansions and are told what became of them.

A policy knows no engine, no clock and no concurrency: `ask` names the next expansion, `tell` takes
in a result, and both give a new frozen state. The driver (`ttc.strategies.tree.driver`) serves them
all: it tells results in the order of the asks, and cancels what a policy drops.

    state = policy.init()
    state, expansion = policy.ask(state, seed)
    state = policy.tell(state, Result(id=expansion.id, status="open", value=0.7))
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from ttc.strategies.tree.nodes import Tree

__all__ = ["Comparison", "Expansion", "Policy", "Result", "SearchState", "Status"]

Status = Literal["open", "finished", "truncated", "failed", "cancelled"]
"""How an expansion ended: `open` can be extended further, `truncated` ran into a limit of length,
`cancelled` was dropped by the policy before its result was told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """Work for the engine: extend the trajectory of `parent`, which makes a new node."""

    id: int
    """The number of the ask, from 1, and of the node that it makes. Seeds come from it."""
    parent: int
    """The node to extend; 0 is the root, the prompt."""
    depth: int
    """The depth of the new node; the root's is 0."""
    action: str = "step"
    """What to do with the parent, where a strategy knows several things to do."""
    is_scored: bool = True
    """Whether the verifier is asked about what comes of it; it always is about a whole solution."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Work for a verifier that scores candidates beside each other; it makes no node."""

    id: int
    """The number of the ask; no node has it."""
    nodes: tuple[int, ...]
    """The nodes to score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What became of an ask."""

    id: int
    """Of the expansion, and of the node that it made; or of the comparison."""
    status: Status
    value: float | None = None
    """The verifier's score of the trajectory up to here. `None` is unknown: it is not backed up."""
    tokens: int = 0
    """The output tokens of the new part of the trajectory."""
    key: Hashable = None
    """What equal answers share, where the trajectory has one."""
    duplicate_of: int | None = None
    """A sibling, told before, with the same tokens. The new node is no candidate of its own."""
    values: Mapping[int, float | None] = field(default_factory=dict)
    """What a comparison says of each of its nodes."""


class SearchState(Protocol):
    """The frozen, picklable state of a search."""

    @property
    def tree(self) -> Tree:
        """The nodes, and which of them were dropped."""


S = TypeVar("S", bound=SearchState)


class Policy(Protocol[S]):
    """Decides what to expand. A frozen value without a state of its own."""

    def init(self) -> S:
        """The state before the first ask: a root that can be extended."""

    def ask(self, state: S, seed: int) -> tuple[S, Expansion | Comparison | None]:
        """The next piece of work. `None`: nothing before another tell; asked again after it.

        A search in which nothing is in flight and nothing is asked for has ended. Whatever is
        random is a function of `seed`, which differs from ask to ask.
        """

    def tell(self, state: S, result: Result) -> S:
        """Takes in a result: each ask has exactly one, in the order of the asks."""
