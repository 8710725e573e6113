"""Combination: verifiers made of others.

A combination asks its parts through its scope, in written order, so that grants never depend on how
fast one is; it costs what they cost. What needs bounds refuses an unbounded part when it is made.
A part that is unknown leaves the whole unknown: nothing is filled in for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ttc.errors import GraphError
from ttc.ports import Scope, Verifier
from ttc.types import Candidate, Problem, Score

__all__ = ["Combined", "FirstDecided", "Gate", "Product", "Rank", "WeightedSum", "bounds_of"]

Range = tuple[float, float]


@dataclass(frozen=True, init=False)
class Combined(ABC):
    """A verifier that makes one score of the scores of its parts."""

    parts: tuple[Verifier, ...]
    name: str

    def _set(self, parts: Sequence[object], **values: object) -> None:
        """Sets the fields, once.

        Raises:
            GraphError: with every fault of the parts.
        """
        faults = [f"{part!r} is no verifier" for part in parts if not isinstance(part, Verifier)]
        names = [part.name for part in parts if isinstance(part, Verifier)]
        faults += [
            f"two parts are called {name!r}; give one of them another name="
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
        if not parts:
            faults.append("it is made of at least one verifier")
        if faults:
            raise GraphError([f"{values['name']}: {fault}" for fault in faults])
        object.__setattr__(self, "parts", tuple(parts))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    @abstractmethod
    def range(self) -> Range | None:
        """The bounds of its scores."""

    @property
    def needs(self) -> Literal["each", "all"]:
        """All candidates, where a part needs them."""
        return "all" if any(part.needs == "all" for part in self.parts) else "each"

    @property
    def requires(self) -> frozenset[str]:
        """What any part requires."""
        return frozenset().union(*(part.requires for part in self.parts))

    @property
    def roles(self) -> frozenset[str]:
        """The roles that any part asks."""
        return frozenset().union(*(part.roles for part in self.parts))

    @abstractmethod
    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""

    async def _asked(
        self, candidates: Sequence[Candidate], scope: Scope
    ) -> list[tuple[Score, ...]]:
        """For each candidate, the scores of all parts."""
        columns = [await scope.verify(part, candidates) for part in self.parts]
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, init=False)
class FirstDecided(Combined):
    """Asks one verifier after the other, the cheap first, until one is decided.

    One decides with a score of at most `low` or at least `high`. The next is asked about those that
    are left alone. Where none decides, the latest known score stands.

    Source: verification in stages, as the cascade of FrugalGPT, Chen et al. 2023, arXiv 2305.05176.
    Cost: of each part, a verifier call for each candidate that no earlier one decided.
    """

    remote: ClassVar[bool] = True

    low: float
    high: float

    def __init__(
        self, *parts: Verifier, low: float = 0.0, high: float = 1.0, name: str = "first_decided"
    ) -> None:
        """Verifiers in the order in which they are asked."""
        self._set(parts, name=name, low=low, high=high)
        if not low < high:
            raise ValueError(f"low ({low}) lies below high ({high})")
        bounds_of(name, parts)

    @property
    def range(self) -> Range:
        """The widest of its parts' bounds."""
        bounds = bounds_of(self.name, self.parts)
        return min(low for low, _ in bounds), max(high for _, high in bounds)

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate, and by whom it was given."""
        best: list[Score] = [Score(value=None)] * len(candidates)
        left = list(range(len(candidates)))
        for part in self.parts:
            if not left:
                break
            asked = list(range(len(candidates))) if part.needs == "all" else left
            scores = await scope.verify(part, [candidates[place] for place in asked])
            told = dict(zip(asked, scores, strict=True))
            for place in left:
                if told[place].value is not None:
                    best[place] = told[place]
            left = [place for place in left if not self._decides(told[place].value)]
        return tuple(
            Score(value=score.value, range=self.range, evidence=_evidence(score)) for score in best
        )

    def _decides(self, value: float | None) -> bool:
        return value is not None and not self.low < value < self.high


@dataclass(frozen=True, init=False)
class WeightedSum(Combined):
    """The weighted mean of several scores; weights are normalised to a sum of 1.

    Source: linear combination of scores, as in Stone 1961, "The opinion pool".
    Cost: what its parts cost.
    """

    remote: ClassVar[bool] = True

    weights: tuple[float, ...]

    def __init__(
        self,
        *parts: Verifier,
        weights: Sequence[float] | None = None,
        name: str = "weighted_sum",
    ) -> None:
        """Verifiers with their weights; equal ones by default."""
        given = tuple(weights) if weights is not None else (1.0,) * len(parts)
        self._set(parts, name=name, weights=given)
        bounds_of(name, parts)
        if len(given) != len(parts) or not all(0 <= w < math.inf for w in given) or not sum(given):
            raise ValueError(
                f"weights are one for each of the {len(parts)} parts, none below 0 and one above "
                f"it, not {given}"
            )

    @property
    def range(self) -> Range:
        """The weighted means of the bounds."""
        low, high = zip(*bounds_of(self.name, self.parts), strict=True)
        return self._mean(low), self._mean(high)

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The weighted mean for each candidate, unknown where a part is."""
        return tuple(
            _made(scores, self._mean, self.range) for scores in await self._asked(candidates, scope)
        )

    def _mean(self, values: Sequence[float]) -> float:
        weighed = math.fsum(w * value for w, value in zip(self.weights, values, strict=True))
        return weighed / math.fsum(self.weights)


@dataclass(frozen=True, init=False)
class Product(Combined):
    """The product of several scores, as if they were chances of independent conditions.

    Source: the product rule for combining classifiers, Kittler et al. 1998.
    Cost: what its parts cost.
    """

    remote: ClassVar[bool] = True

    def __init__(self, *parts: Verifier, name: str = "product") -> None:
        """Verifiers whose scores are never below 0."""
        self._set(parts, name=name)
        negative = [
            f"{name}: {part.name} may score below 0, to {low}, so that a product has no order"
            for part, (low, _) in zip(parts, bounds_of(name, parts), strict=True)
            if low < 0
        ]
        if negative:
            raise GraphError(negative)

    @property
    def range(self) -> Range:
        """The products of the bounds."""
        low, high = zip(*bounds_of(self.name, self.parts), strict=True)
        return math.prod(low), math.prod(high)

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The product for each candidate, unknown where a part is."""
        return tuple(
            _made(scores, math.prod, self.range) for scores in await self._asked(candidates, scope)
        )


@dataclass(frozen=True, init=False)
class Rank(Combined):
    """A score's rank among all candidates: ((n - j + 1) / n)^power for the j-th best of n.

    It gives bounds to what has none. Equal scores share the mean of their ranks; the unknown stay
    unknown and do not count. `Rank(SelfCertainty(), power=p) >> Vote(weighted=True)` is the Borda
    vote of Kang et al.

    Source: Borda 1781; with a power, Kang et al. 2025, arXiv 2502.18581, section 3.
    Cost: what its part costs.
    """

    remote: ClassVar[bool] = True

    power: float

    def __init__(self, verifier: Verifier, *, power: float = 1.0, name: str | None = None) -> None:
        """A verifier, and how much more the first ranks weigh."""
        self._set((verifier,), name=name or f"rank_{getattr(verifier, 'name', '')}", power=power)
        if not 0 < power < math.inf:
            raise ValueError(f"power is above 0 and finite, not {power}")

    @property
    def verifier(self) -> Verifier:
        """What is ranked."""
        return self.parts[0]

    @property
    def range(self) -> Range:
        """Of a share of the candidates."""
        return 0.0, 1.0

    @property
    def needs(self) -> Literal["each", "all"]:
        """A rank is among all."""
        return "all"

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The rank of each candidate."""
        scores = await scope.verify(self.verifier, candidates)
        values = [score.value for score in scores if score.value is not None]
        ranked: list[Score] = []
        for score in scores:
            if score.value is None:
                ranked.append(Score(value=None, evidence=_evidence(score)))
                continue
            better = sum(value > score.value for value in values)
            equal = sum(value == score.value for value in values)
            place = better + (equal + 1) / 2
            share = (len(values) - place + 1) / len(values)
            ranked.append(Score(value=share**self.power, evidence=_evidence(score)))
        return tuple(ranked)


@dataclass(frozen=True, init=False)
class Gate(Combined):
    """Scores by one verifier those alone that another has passed; the others are unknown.

    `Gate(UnitTests(), Surprisal())` is surprisal-guided selection: of the programs that pass, the
    one that the model thought least likely.

    Source: selection among verified candidates, arXiv 2602.07670.
    Cost: the check's for each candidate, the other's for those that pass.
    """

    remote: ClassVar[bool] = True

    at_least: float

    def __init__(
        self,
        check: Verifier,
        by: Verifier,
        *,
        at_least: float | None = None,
        name: str = "gate",
    ) -> None:
        """What must be passed, with which score (its greatest by default), and what then decides.

        Raises:
            GraphError: the check has no bounds, and no `at_least` says when it is passed.
        """
        if at_least is None and isinstance(check, Verifier):
            ((_, at_least),) = bounds_of(name, (check,))
        self._set((check, by), name=name, at_least=at_least)

    @property
    def check(self) -> Verifier:
        """What must be passed."""
        return self.parts[0]

    @property
    def by(self) -> Verifier:
        """What then decides."""
        return self.parts[1]

    @property
    def range(self) -> Range | None:
        """That of the verifier that decides."""
        return self.by.range

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate that passes."""
        verdicts = await scope.verify(self.check, candidates)
        passed = [v.value is not None and v.value >= self.at_least for v in verdicts]
        chosen = [candidate for candidate, ok in zip(candidates, passed, strict=True) if ok]
        following = iter(await scope.verify(self.by, chosen) if chosen else ())
        return tuple(
            next(following)
            if ok
            else Score(value=None, range=self.range, evidence=_evidence(verdict))
            for ok, verdict in zip(passed, verdicts, strict=True)
        )


def bounds_of(name: str, parts: Sequence[Verifier]) -> list[Range]:
    """The bounds of verifiers that are combined under a name.

    Raises:
        GraphError: one has none; all of those are told.
    """
    faults = [
        f"{name}: the scores of {part.name} have no bounds; wrap it in Calibrated(...) or Rank(...)"
        for part in parts
        if part.range is None
    ]
    if faults:
        raise GraphError(faults)
    return [part.range for part in parts if part.range is not None]


def _made(
    scores: Sequence[Score], rule: Callable[[Sequence[float]], float], bounds: Range
) -> Score:
    """One score of several, kept from leaving its bounds by rounding."""
    evidence = {score.verifier: score.value for score in scores}
    values = [score.value for score in scores if score.value is not None]
    if len(values) < len(scores):
        return Score(value=None, range=bounds, evidence=evidence)
    value = min(max(rule(values), bounds[0]), bounds[1])
    return Score(value=value, range=bounds, evidence=evidence)


def _evidence(score: Score) -> dict[str, object]:
    """Who gave a score, what it was, and why it is unknown."""
    return {**score.evidence, score.verifier: score.value} if score.verifier else {}
