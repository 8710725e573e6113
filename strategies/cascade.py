"""Cascade: cheap graphs first, dearer ones only where the cheap answer is not sure enough.

Source: the family of FrugalGPT (Chen et al. 2023, arXiv 2305.05176) and AutoMix (arXiv 2310.12963).
Cost: the rungs up to the first accepted one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import ClassVar

from ttc.flow import not_one, one_of
from ttc.graph import Cost, Flow, Node, Port, label
from ttc.lengths import largest
from ttc.ports import Scope, Stream
from ttc.streams import iterate
from ttc.types import Candidate

__all__ = ["Cascade", "Confidence", "Scored", "confidence"]

Accept = Callable[[Candidate], bool]


@dataclass(frozen=True)
class Confidence:
    """Accepts a candidate whose selector was at least this sure. Unknown is not sure."""

    remote: ClassVar[bool] = True

    at_least: float

    def __call__(self, candidate: Candidate) -> bool:
        """Whether the candidate is accepted."""
        return candidate.confidence is not None and candidate.confidence >= self.at_least


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Accepts a candidate with a score of at least so much; unknown is not enough.

    So a single sample can be routed by what a verifier says of it: its mean log probability, the
    margin between the two likeliest tokens, a self-verification, or a sum of them.
    """

    remote: ClassVar[bool] = True

    by: str
    """The name of the score."""
    at_least: float

    def __call__(self, candidate: Candidate) -> bool:
        """Whether the candidate is accepted."""
        score = candidate.scores.get(self.by)
        return score is not None and score.value is not None and score.value >= self.at_least


def confidence(at_least: float) -> Confidence:
    """A rule for `Cascade(accept=)`: the selector was at least this sure."""
    given: object = at_least
    if not (isinstance(given, int | float) and 0 <= given <= 1):
        raise ValueError(f"a confidence lies in [0, 1], not {at_least!r}")
    return Confidence(at_least)


@dataclass(frozen=True, init=False)
class Cascade(Node):
    """Runs its rungs in order, each on the same input, until one's candidate is accepted.

    If none is accepted, the last candidate that any rung gave is the result.
    """

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("open", "many")
    gives: ClassVar[Port] = Port("finished", "one")

    rungs: tuple[Node, ...]
    accept: Accept

    def __init__(self, *rungs: Node, accept: Accept) -> None:
        """A cascade of `rungs`, each of which gives one finished candidate.

        Raises:
            TypeError: a rung is no graph.
        """
        for rung in rungs:
            if not isinstance(rung, Node):
                raise TypeError(f"a rung is a graph, not {rung!r}")
        object.__setattr__(self, "rungs", rungs)
        object.__setattr__(self, "accept", accept)

    def children(self) -> tuple[Node, ...]:
        """Its rungs."""
        return self.rungs

    def rebuilt(self, children: tuple[Node, ...]) -> Cascade:
        """The same cascade of other rungs."""
        return Cascade(*children, accept=self.accept)

    def faults(self, given: Flow) -> list[str]:
        """No rung, a rung that does not give one finished candidate, a rule that is none."""
        faults = [] if self.rungs else ["has no rungs"]
        if not callable(self.accept):
            faults.append(f"accept={self.accept!r} is no rule; pass confidence(0.9), say")
        for index, rung in enumerate(self.rungs):
            flow = rung.flow(given)
            faults += not_one(flow, f"rung {index}")
            by = getattr(self.accept, "by", None)
            if by is not None and by not in flow.scores and index + 1 < len(self.rungs):
                known = ", ".join(sorted(flow.scores)) or "none"
                faults.append(f"rung {index} gives no score called {by!r}; there is {known}")
        return faults

    def flow(self, given: Flow) -> Flow:
        """One candidate; only scores that every rung gives are sure."""
        return one_of([rung.flow(given) for rung in self.rungs])

    def bound(self, given: Flow) -> Cost:
        """The sum over all rungs."""
        return sum((rung.bound(given) for rung in self.rungs), Cost())

    def longest(self, given: Flow) -> int | None:
        """The most that any rung shows."""
        return largest(*(rung.longest(given) for rung in self.rungs))

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Climbs until a candidate is accepted."""
        given = [candidate async for candidate in candidates]
        flow = Flow(kind=self.takes.kind, count=len(given))
        chosen: Candidate | None = None
        for index, rung in enumerate(self.rungs):
            stream = scope.run(rung, iterate(*given), name=label(index, rung), given=flow)
            accepted = False
            async for candidate in stream:
                chosen, accepted = candidate, self.accept(candidate)
            if accepted:
                if index + 1 < len(self.rungs):
                    scope.decide("accepted", rung=index)
                break
        if chosen is not None:
            yield chosen
