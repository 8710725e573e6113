"""Best: the candidate with the highest score, or one that is drawn by its score.

Source: best-of-N as in Cobbe et al. 2021 (arXiv 2110.14168), section 4: argmax_i r_i. The soft form
draws i with a probability proportional to exp(r_i / T): Verdun et al. 2025 (arXiv 2505.03156).
Cost: nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, inf
from statistics import pstdev
from typing import ClassVar

from ttc.errors import VerifierError
from ttc.graph import Flow, Node, Port
from ttc.ports import Bid, Scope, Stream
from ttc.strategies.vote import which_score
from ttc.types import Candidate

__all__ = ["Best", "best_of", "gain"]


@dataclass(frozen=True, kw_only=True)
class Best(Node):
    """Picks the highest score; ties go to the earliest launched.

    Only candidates with an answer are eligible, and a candidate without a score never wins. A score
    that is a probability, as a calibrated one, becomes its confidence.
    """

    remote: ClassVar[bool] = True
    gives: ClassVar[Port] = Port("finished", "one")
    selects: ClassVar[bool] = True
    offers: ClassVar[bool] = True

    by: str | None = None
    """Which score decides, where candidates carry several."""
    then: str | None = None
    """Which score decides among those that are alike by the first, or that it tells nothing of."""
    enough: float | None = None
    """A score at which nothing better is waited for. `None` reads every candidate."""
    soft: float | None = None
    """T of exp(score / T), by which the winner is drawn, with the run's seed. `None` takes the
    highest score; so does T near 0, and a large one draws evenly. It keeps a verifier that errs
    from choosing its own mistakes alone."""

    def faults(self, given: Flow) -> list[str]:
        """A score that does not exist or is ambiguous, or that can never be enough."""
        score, fault = which_score(self.by, given)
        if score is None:
            return [fault]
        if self.soft is not None and not 0 < self.soft < inf:
            return [f"soft is above 0 and finite, or None, not {self.soft!r}"]
        if fault := self._fault_of_then(given):
            return [fault]
        bounds = given.scores[score]
        if self.enough is not None and bounds is not None and self.enough > bounds[1]:
            return [f"enough={self.enough} is more than the score {score!r} can be: {bounds[1]}"]
        return []

    def _fault_of_then(self, given: Flow) -> str:
        if self.then is None:
            return ""
        if self.by is None or self.then == self.by:
            return f"then={self.then!r} is a second score; name another one as the first with by="
        if self.soft is not None:
            return f"soft={self.soft} draws by one score; leave out then={self.then!r}"
        return which_score(self.then, given)[1]

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads until a score is enough, or everything, and yields the best."""
        seen: list[Candidate] = []
        values: list[float] = []
        tokens = 0
        async for candidate in candidates:
            seen.append(candidate)
            tokens += candidate.usage.tokens
            score = candidate.scores.get(self._name(seen)) if _is_eligible(candidate) else None
            if score is not None and score.value is not None:
                values.append(score.value)
                if self.enough is not None and score.value >= self.enough:
                    scope.decide("enough", num_samples=len(seen))
                    candidates.stop()
            is_over = self.enough is not None and max(values, default=-inf) >= self.enough
            is_over = is_over or len(seen) == candidates.at_most
            top = score.range[1] if score is not None and score.range else None
            scope.offer(partial(_bid, values, len(seen), tokens, top, is_over=is_over))
        eligible = [candidate for candidate in seen if _is_eligible(candidate)]
        if not eligible:
            scope.decide("no_valid_answer", num_samples=len(seen))
            return
        name = self._name(eligible)
        try:
            yield _sure(self.pick(eligible, name, scope), name)
        except VerifierError:
            scope.decide("no_finite_score", num_samples=len(seen), score=name)

    def pick(self, eligible: Sequence[Candidate], name: str, scope: Scope) -> Candidate:
        """The best by a score, or one that is drawn.

        Raises:
            VerifierError: no candidate has a finite score of that name.
        """
        best = best_of(eligible, name, self.then)
        if self.soft is None:
            return best
        top = _value(best, name) or 0.0
        values = [_value(candidate, name) for candidate in eligible]
        weights = [0.0 if value is None else exp((value - top) / self.soft) for value in values]
        return scope.random("soft").choices(eligible, weights)[0]

    def _name(self, seen: Sequence[Candidate]) -> str:
        """The score that decides."""
        return self.by or next((name for c in seen for name in c.scores), "")


def gain(values: Sequence[float], num_samples: int, top: float | None) -> float:
    """What one more sample is worth: the chance that it is a new record, times what is missing.

    Of n + 1 independent scores the last is the highest with chance 1 / (n + 1). What is missing is
    the way to the top of the range; without a range, the deviation of the scores so far.
    """
    if not values:
        return 1.0 / (num_samples + 2)
    missing = top - max(values) if top is not None else pstdev(values)
    return max(0.0, missing) / (num_samples + 1)


def _bid(
    values: Sequence[float], num_samples: int, tokens: int, top: float | None, *, is_over: bool
) -> Bid:
    worth = 0.0 if is_over else gain(values, num_samples, top)
    return worth, tokens / num_samples, None


def _is_eligible(candidate: Candidate) -> bool:
    return candidate.status in ("finished", "truncated") and candidate.key is not None


def _sure(candidate: Candidate, name: str) -> Candidate:
    """The candidate with its score as its confidence, where that is a probability."""
    score = candidate.scores.get(name)
    if score is None or not score.is_probability:
        return candidate
    return replace(candidate, confidence=score.value)


def best_of(candidates: Sequence[Candidate], name: str, then: str | None = None) -> Candidate:
    """The candidate with the highest score of a name; ties go to the first.

    Args:
        candidates: at least one.
        name: the score that decides.
        then: the score that decides among those alike, and where the first is unknown.

    Raises:
        VerifierError: no candidate has a finite score of either name.
    """
    names = [name] if then is None else [name, then]
    told = [[_value(candidate, each) for each in names] for candidate in candidates]
    keys = [[-inf if value is None else value for value in values] for values in told]
    best = max(range(len(candidates)), key=keys.__getitem__)
    if all(value is None for value in told[best]):
        called = " and no ".join(map(repr, names))
        raise VerifierError(f"no finite score {called} among {len(candidates)} candidates")
    return candidates[best]


def _value(candidate: Candidate, name: str) -> float | None:
    score = candidate.scores.get(name)
    return score.value if score is not None else None
