"""Semantic entropy: how far the model's samples agree in what they mean, whatever they say.

Source: Kuhn, Gal and Farquhar 2023, arXiv 2302.09664: texts are grouped by meaning, a group has the
probability of its texts, and the entropy is over groups. The form that counts texts is the discrete
one of Farquhar et al. 2024, Nature 630.
Differs: two texts mean the same where their answers do, so no model of entailment is asked.
Cost: no engine calls, one verifier call for each candidate.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score
from ttc.uncertainty import entropy_of, mean
from ttc.verifiers.confidence import NEED, measured, unknown

__all__ = ["AnswerProbability", "SemanticEntropy"]

Weigh = Literal["count", "probability"]
_WEIGHS = ("count", "probability")


@dataclass(frozen=True, kw_only=True)
class _OfClasses:
    """What compares the classes of equal answers, each with its weight."""

    remote: ClassVar[bool] = True
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "all"
    roles: ClassVar[frozenset[str]] = frozenset()

    weigh: Weigh
    """By what a class weighs: its samples, or their length-normalised probabilities."""

    def __post_init__(self) -> None:
        if self.weigh not in _WEIGHS:
            raise ValueError(f"weigh is one of {', '.join(_WEIGHS)}, not {self.weigh!r}")

    @property
    def requires(self) -> frozenset[str]:
        """Log probabilities, where they weigh."""
        return frozenset({NEED["logprobs"]}) if self.weigh == "probability" else frozenset()


@dataclass(frozen=True, kw_only=True)
class SemanticEntropy(_OfClasses):
    """`1 - H / ln n` of n samples: 1 where all agree, 0 where all differ. All get the same score.

    It says whether to trust the choice among them, not which to choose; a single sample says
    nothing, and is unscored.
    """

    weigh: Weigh = "count"
    name: str = "semantic_entropy"

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate that has an answer."""
        classes, reasons = _classes(candidates, self.weigh)
        count = sum(reason is None for reason in reasons)
        total = math.fsum(classes.values())
        if count < 2 or not 0 < total < math.inf:
            return tuple(unknown(reason or "nothing to compare it with") for reason in reasons)
        entropy = entropy_of(classes.values())
        certainty = min(1.0, max(0.0, 1 - entropy / math.log(count)))
        evidence = {"entropy": entropy, "classes": len(classes), "samples": count}
        return tuple(
            Score(value=certainty, evidence=evidence) if reason is None else unknown(reason)
            for reason in reasons
        )


@dataclass(frozen=True, kw_only=True)
class AnswerProbability(_OfClasses):
    """The probability mass of a candidate's answer among the samples: its class's share.

    By counts it is the share of votes; by probabilities the p(c | x) of the paper.
    """

    weigh: Weigh = "probability"
    name: str = "answer_probability"

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate that has an answer."""
        classes, reasons = _classes(candidates, self.weigh)
        total = math.fsum(classes.values())
        if not 0 < total < math.inf:
            return tuple(unknown(reason or "no sample weighs anything") for reason in reasons)
        return tuple(
            unknown(reason) if reason else Score(value=min(1.0, classes[candidate.key] / total))
            for candidate, reason in zip(candidates, reasons, strict=True)
        )


def _classes(
    candidates: Sequence[Candidate], weigh: Weigh
) -> tuple[dict[Hashable, float], list[str | None]]:
    """The weights of answers, and for each candidate why it has no part, if it has none."""
    classes: dict[Hashable, float] = {}
    reasons: list[str | None] = []
    for candidate in candidates:
        weight = _weight(candidate, weigh)
        if isinstance(weight, str):
            reasons.append(weight)
        else:
            reasons.append(None)
            classes[candidate.key] = classes.get(candidate.key, 0.0) + weight
    return classes, reasons


def _weight(candidate: Candidate, weigh: Weigh) -> float | str:
    if candidate.key is None or candidate.status not in ("finished", "truncated"):
        return "it has no answer"
    if weigh == "count":
        return 1.0
    logprobs = measured(candidate, "logprobs")
    if isinstance(logprobs, str):
        return logprobs
    probability = math.exp(mean(logprobs))
    return probability if math.isfinite(probability) else "its log probabilities are no numbers"
