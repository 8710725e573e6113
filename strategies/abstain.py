"""Abstain: gives no answer rather than one that a rule does not accept.

Source: the reject option, Chow 1970, "On optimum recognition error and reject tradeoff".
Cost: nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import ClassVar

from ttc.graph import Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.types import Candidate

__all__ = ["Abstain"]


@dataclass(frozen=True)
class Abstain(Node):
    """Passes a candidate that is accepted; else the outcome has no answer, and says why."""

    remote: ClassVar[bool] = True
    takes: ClassVar[Port] = Port("finished", "one")
    gives: ClassVar[Port] = Port("finished", "one")

    unless: Callable[[Candidate], bool]
    """What is accepted: `confidence(0.9)`, or a rule with a guarantee, as `conformal(...)`."""

    def faults(self, given: Flow) -> list[str]:
        """A rule that is none, and a rule by a score that does not exist."""
        if not callable(self.unless):
            return [f"unless={self.unless!r} is no rule; pass confidence(0.9), say"]
        by = getattr(self.unless, "by", None)
        if by is not None and by not in given.scores:
            known = ", ".join(sorted(given.scores)) or "none"
            return [f"no score is called {by!r}; there is {known}"]
        return []

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads the candidate, and lets it through or not."""
        async for candidate in candidates:
            if candidate.key is None or self.unless(candidate):
                yield candidate
            else:
                scope.decide("abstained", answer=candidate.answer)
