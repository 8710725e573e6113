"""GroupConfidence: how sure the model was in its least sure passages.

Source: DeepConf, Fu et al. 2025, arXiv 2508.15260, section 3: token confidence over the 20 greatest
log probabilities, its means over a sliding window, and the lowest, the bottom tenth or the last.
Differs: the window, 2,048 tokens in the paper, is an eighth of the median length of the first
candidates, between 32 and 2,048, so that shorter texts have groups, too.
Cost: no engine calls, one verifier call for each candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score
from ttc.uncertainty import bottom_mean, group_means, group_window, mean, token_confidences
from ttc.verifiers.confidence import NEED, measured, unknown

__all__ = ["GroupConfidence"]

Take = Literal["bottom", "lowest", "tail", "mean"]
_TAKES = ("bottom", "lowest", "tail", "mean")


@dataclass(frozen=True, kw_only=True)
class GroupConfidence:
    """The confidence of a text's groups of tokens, in nats; higher is surer. It has no bounds."""

    remote: ClassVar[bool] = True
    range: ClassVar[tuple[float, float] | None] = None
    requires: ClassVar[frozenset[str]] = frozenset({NEED["top_logprobs"]})
    roles: ClassVar[frozenset[str]] = frozenset()

    take: Take = "bottom"
    """The mean of the lowest `share` of the groups; the `lowest` one; the last one, the `tail`; or
    the `mean` over all tokens."""
    window: int | None = None
    """Tokens of a group. `None`: by the lengths of the first `warm_up` candidates."""
    warm_up: int = 16
    share: float = 0.1
    name: str = "group_confidence"

    def __post_init__(self) -> None:
        if self.take not in _TAKES:
            raise ValueError(f"take is one of {', '.join(_TAKES)}, not {self.take!r}")
        if (self.window is not None and self.window < 1) or self.warm_up < 1:
            raise ValueError(f"window ({self.window}) and warm_up ({self.warm_up}) are at least 1")
        if not 0 < self.share <= 1:
            raise ValueError(f"share lies in (0, 1], not {self.share}")

    @property
    def needs(self) -> Literal["each", "all"]:
        """All, where their lengths decide the window."""
        return "all" if self.window is None else "each"

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate, in the order of their launch."""
        traces = [measured(candidate, "top_logprobs") for candidate in candidates]
        known = [trace for trace in traces if not isinstance(trace, str)]
        if not known:
            return tuple(unknown(str(trace)) for trace in traces)
        window = self.window or group_window([len(trace) for trace in known[: self.warm_up]])
        return tuple(
            unknown(trace)
            if isinstance(trace, str)
            else Score.of(self._value(token_confidences(trace), window), range=None)
            for trace in traces
        )

    def _value(self, confidences: Sequence[float], window: int) -> float:
        if self.take == "mean":
            return mean(confidences)
        if self.take == "tail":
            return mean(confidences[-window:])
        groups = group_means(confidences, window)
        return min(groups) if self.take == "lowest" else bottom_mean(groups, self.share)
