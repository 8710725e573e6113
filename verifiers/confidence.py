"""Confidence: scores out of what the model's own distributions said at each token.

The engine measures while it samples, so a score costs no further pass. It is over everything that
was generated for a candidate, call by call: text that was given, as a prompt or a cue, does not
count. A candidate is unscored where a part of it was not measured, since a mean over the rest would
be another quantity; where it has no text; and where its call failed or was cancelled.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ttc.ports import Scope
from ttc.types import Candidate, Problem, Score
from ttc.uncertainty import mean

__all__ = [
    "Entropy",
    "Margin",
    "MeanLogprob",
    "Perplexity",
    "SelfCertainty",
    "SequenceLogprob",
    "SequenceProbability",
    "Surprisal",
    "TokenScore",
    "measured",
    "unknown",
]

Measure = Literal["logprobs", "entropies", "self_certainties", "top_logprobs"]
NEED: dict[Measure, str] = {
    "logprobs": "logprobs",
    "entropies": "entropy",
    "self_certainties": "entropy",
    "top_logprobs": "logprobs>=20",
}
"""What an engine must be able to do, so that branches carry a measure."""


def measured(candidate: Candidate, measure: Measure) -> list[Any] | str:
    """What was measured at every token that was generated for a candidate, or why that is unknown.

    Returns:
        One value for each token, at least one; or a sentence.
    """
    if candidate.status in ("failed", "cancelled"):
        return f"it is {candidate.status}"
    if not candidate.text.strip():
        return "it has no text"
    values: list[Any] = []
    for segment in candidate.branch.lineage():
        if segment.call is None:
            continue
        own = getattr(segment, measure)
        if own is None:
            return f"the tokens of {segment.call} carry no {measure}; its engine was not asked"
        values += own
    return values or "nothing of it was generated"


def unknown(reason: str) -> Score:
    """A score that is unknown, and why."""
    return Score(value=None, evidence={"unknown": reason})


@dataclass(frozen=True, kw_only=True)
class TokenScore(ABC):
    """A score of each candidate by itself, out of one measure of its tokens."""

    measure: ClassVar[Measure] = "logprobs"
    range: ClassVar[tuple[float, float] | None] = None
    needs: ClassVar[Literal["each", "all"]] = "each"
    roles: ClassVar[frozenset[str]] = frozenset()

    name: str
    """The key of its scores."""

    @property
    def requires(self) -> frozenset[str]:
        """What makes engines measure it."""
        return frozenset({NEED[self.measure]})

    @abstractmethod
    def value(self, tokens: Sequence[Any]) -> float:
        """The score of one text.

        Args:
            tokens: the measure at each of its tokens, at least one.
        """

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate; the problem plays no part."""
        return tuple(map(self._score, candidates))

    def _score(self, candidate: Candidate) -> Score:
        tokens = measured(candidate, self.measure)
        if isinstance(tokens, str):
            return unknown(tokens)
        return Score.of(self.value(tokens), range=self.range)


@dataclass(frozen=True, kw_only=True)
class SequenceLogprob(TokenScore):
    """The log probability of the whole text: the sum over its tokens. It favours short texts.

    Source: the plain likelihood, as in Cobbe et al. 2021, arXiv 2110.14168, section 4.
    """

    remote: ClassVar[bool] = True

    name: str = "sequence_logprob"

    def value(self, tokens: Sequence[float]) -> float:
        """The sum."""
        return math.fsum(tokens)


@dataclass(frozen=True, kw_only=True)
class MeanLogprob(TokenScore):
    """The mean log probability of a token.

    Source: the length-normalised likelihood of Wang et al. 2022, arXiv 2203.11171, equation 1,
    before its exponential.
    """

    remote: ClassVar[bool] = True

    name: str = "mean_logprob"

    def value(self, tokens: Sequence[float]) -> float:
        """The mean."""
        return mean(tokens)


@dataclass(frozen=True, kw_only=True)
class SequenceProbability(TokenScore):
    """The length-normalised probability of what the model wrote: exp of its mean log probability.

    Source: Wang et al. 2022, arXiv 2203.11171, equation 1, which weighs votes by it.
    """

    remote: ClassVar[bool] = True
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    name: str = "sequence_probability"

    def value(self, tokens: Sequence[float]) -> float:
        """Its exponential; in this order NaN stays NaN, which is unknown."""
        return min(math.exp(mean(tokens)), 1.0)


@dataclass(frozen=True, kw_only=True)
class Perplexity(TokenScore):
    """The perplexity, as its negative, since a higher score is better: `-exp(-mean ln p)`.

    Source: Jelinek et al. 1977, "Perplexity: a measure of the difficulty of speech recognition".
    """

    remote: ClassVar[bool] = True

    name: str = "perplexity"

    def value(self, tokens: Sequence[float]) -> float:
        """The negative; what overflows is unknown."""
        exponent = -mean(tokens)
        return -math.exp(exponent) if exponent < 700 else -math.inf


@dataclass(frozen=True, kw_only=True)
class Surprisal(TokenScore):
    """The mean surprisal of a token, `-mean ln p`: higher where the model thought it less likely.

    Alone it prefers nonsense. Among candidates that a check has passed it finds the unusual ones,
    which are often the best where quality matters beyond being right: `Gate(check, Surprisal())`.

    Source: surprisal-guided selection, arXiv 2602.07670.
    """

    remote: ClassVar[bool] = True

    name: str = "surprisal"

    def value(self, tokens: Sequence[float]) -> float:
        """The mean's negative."""
        return -mean(tokens)


@dataclass(frozen=True, kw_only=True)
class Entropy(TokenScore):
    """The mean entropy of the distributions that tokens were drawn from, as its negative, in nats.

    Source: predictive entropy, as in Malinin and Gales 2021, arXiv 2002.07650, token by token.
    """

    remote: ClassVar[bool] = True
    measure: ClassVar[Measure] = "entropies"

    name: str = "entropy"

    def value(self, tokens: Sequence[float]) -> float:
        """The mean's negative."""
        return -mean(tokens)


@dataclass(frozen=True, kw_only=True)
class Margin(TokenScore):
    """The mean distance between the probabilities of the two likeliest tokens, from 0 to 1.

    Source: margin sampling, Scheffer et al. 2001, "Active hidden Markov models for information
    extraction", token by token.
    """

    remote: ClassVar[bool] = True
    measure: ClassVar[Measure] = "top_logprobs"
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    name: str = "margin"

    @property
    def requires(self) -> frozenset[str]:
        """The two greatest log probabilities of each token."""
        return frozenset({"logprobs>=2"})

    def value(self, tokens: Sequence[Any]) -> float:
        """The mean, less what rounding adds; a distribution of one token has no second one."""
        first, second = ([math.exp(p) for row in tokens for p in row[n : n + 1]] for n in (0, 1))
        margin = (math.fsum(first) - math.fsum(second)) / len(tokens)
        return min(1.0, margin) if margin < 2 else margin


@dataclass(frozen=True, kw_only=True)
class SelfCertainty(TokenScore):
    """The mean divergence of the uniform distribution from the model's, in nats; from 0 upwards.

    At one token it is `logsumexp(z) - mean(z) - ln V` of the raw logits z of V real tokens, which
    is `-(1/V) sum_v ln(V p_v)`. Its Borda vote is `Rank(SelfCertainty(), power=p) >> Vote(weighted=
    True)`.

    Source: Kang et al. 2025, arXiv 2502.18581, equations 3 and 5.
    """

    remote: ClassVar[bool] = True
    measure: ClassVar[Measure] = "self_certainties"

    name: str = "self_certainty"

    def value(self, tokens: Sequence[float]) -> float:
        """The mean."""
        return mean(tokens)
