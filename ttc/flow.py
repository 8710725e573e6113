"""What runs along the edges of a graph, and what it can cost: as far as it is known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ttc.lengths import Lengths, plus, times
from ttc.ports import Verifier, parts_of

__all__ = [
    "Bounded",
    "Cost",
    "Flow",
    "Port",
    "Range",
    "not_one",
    "one_of",
    "sure_scores",
    "verifier_cost",
]

Range = tuple[float, float] | None


class Port(NamedTuple):
    """What a node takes or gives."""

    kind: Literal["open", "finished"]
    number: Literal["one", "many"]


@dataclass(frozen=True, kw_only=True)
class Flow:
    """What runs along an edge, as far as it is known before anything runs."""

    kind: Literal["open", "finished"] = "open"
    count: int | None = 1
    """The most candidates; `None` where nothing bounds them."""
    scores: Mapping[str, Range] = field(default_factory=dict)
    """The scores that each candidate carries, by name, with their ranges."""
    roles: frozenset[str] = frozenset({"policy"})
    """The roles of the models whose tokens they hold."""
    text: int | None = None
    """The most bytes that a candidate shows of what was written, as `bound` needs it."""
    lengths: Lengths = field(default_factory=Lengths)
    """What is known of the problem and of the models."""

    def grown(self, role: str, num_tokens: int, appended: str = "") -> int | None:
        """The bytes that a candidate shows after so many tokens of a role, and a given text."""
        return plus(self.text, self.lengths.written(role, num_tokens), len(appended.encode()))


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The most that a graph can spend. `None`: nothing bounds it."""

    tokens: int | None = 0
    calls: int | None = 0
    verifier_calls: int | None = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            tokens=plus(self.tokens, other.tokens),
            calls=plus(self.calls, other.calls),
            verifier_calls=plus(self.verifier_calls, other.verifier_calls),
        )

    def __mul__(self, count: int | None) -> Cost:
        """So much, so many times."""
        return Cost(
            tokens=times(self.tokens, count),
            calls=times(self.calls, count),
            verifier_calls=times(self.verifier_calls, count),
        )

    @property
    def uses(self) -> frozenset[str]:
        """The resources that it can spend at all."""
        return frozenset(r for r in ("tokens", "calls", "verifier_calls") if getattr(self, r) != 0)


@runtime_checkable
class Bounded(Protocol):
    """A verifier that knows what it can spend on asking engines and other verifiers."""

    def bound(self, given: Flow) -> Cost:
        """The most that it asks for, when it scores all of `given` at once."""


def verifier_cost(verifier: Verifier, given: Flow) -> Cost:
    """The most that a verifier can spend on candidates that it scores at once.

    One that asks engines, and does not say how much, is not bounded.
    """
    parts = parts_of(verifier)
    own = Cost() if parts else Cost(verifier_calls=1) * given.count
    if isinstance(verifier, Bounded):
        return own + verifier.bound(given)
    if verifier.roles and not parts:
        return own + Cost(tokens=None, calls=None)
    return sum((verifier_cost(part, given) for part in parts), own)


def sure_scores(flows: Sequence[Flow]) -> Mapping[str, Range]:
    """The scores that a candidate carries whichever of some flows it comes from."""
    if not flows:
        return {}
    return {
        name: bounds
        for name, bounds in flows[0].scores.items()
        if all(flow.scores.get(name, ...) == bounds for flow in flows)
    }


def not_one(flow: Flow, name: str) -> list[str]:
    """The fault of a graph, by its name, whose flow is not one finished candidate."""
    if flow.kind == "finished" and flow.count == 1:
        return []
    return [f"{name} must give one finished candidate; end it with a selector"]


def one_of(flows: Sequence[Flow]) -> Flow:
    """One candidate of whichever flow; only scores that each of them carries are sure."""
    roles = frozenset().union(*(flow.roles for flow in flows))
    return Flow(kind="finished", count=1, scores=sure_scores(flows), roles=roles)
