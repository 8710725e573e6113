"""TailEntropy: how sure the model was at the end of its text.

Source: tail-entropy selection of its_hub (Red Hat AI Innovation, 2025): the mean entropy of the
last w tokens, w the root of the mean length over the mean entropy, between 64 and 2,048; of 16 or
more texts, the twentieth with odd lengths is left out; choose the lowest, or weigh by exp(-H).
Differs: odd lengths are those farthest from the median, at least one text of 16.
Cost: no engine calls, one verifier call for each candidate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal

from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score
from ttc.uncertainty import length_outliers, mean, tail_window
from ttc.verifiers.confidence import NEED, measured, unknown

__all__ = ["TailEntropy"]


@dataclass(frozen=True, kw_only=True)
class TailEntropy:
    """exp(-H) of the mean entropy H of the last tokens: the surer, the higher."""

    remote: ClassVar[bool] = True
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "all"
    requires: ClassVar[frozenset[str]] = frozenset({NEED["entropies"]})
    roles: ClassVar[frozenset[str]] = frozenset()

    window: int | None = None
    """Tokens of the tail. `None`: by the lengths and entropies of all candidates."""
    name: str = "tail_entropy"

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is at least 1, or None, not {self.window}")

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; one of an odd length is unknown."""
        traces = [measured(candidate, "entropies") for candidate in candidates]
        known = [trace for trace in traces if not isinstance(trace, str)]
        lengths = [len(trace) for trace in known]
        odd = {id(known[place]) for place in length_outliers(lengths)}
        window = self.window or self._window(known)
        return tuple(
            unknown(trace)
            if isinstance(trace, str)
            else unknown(f"its length, {len(trace)}, is an outlier")
            if id(trace) in odd
            else Score.of(min(math.exp(-mean(trace[-window:])), 1.0))
            for trace in traces
        )

    def _window(self, traces: Sequence[Sequence[float]]) -> int:
        if not traces:
            return 1
        everything = list(chain.from_iterable(traces))
        return tail_window([len(trace) for trace in traces], mean(everything))
