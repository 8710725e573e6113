"""Calibration: maps from raw scores to the chance that a candidate is right, and who uses them.

Fit a map on candidates whose truth is known, save it, and wrap the verifier:

    fit_isotonic(scores, labels).save("self_certainty")
    Sample(n=8) >> Calibrated(SelfCertainty()) >> Best()

A map rises (never falls) with the score, so it changes no order but among ties; it gives bounds and
a meaning. It holds for the model, the tasks and the sampling that it was fit on.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import ClassVar

from ttc.config import settings
from ttc.errors import GraphError
from ttc.ports import Scope, Verifier
from ttc.types import Candidate, Problem, Score
from ttc.verifiers.combination import Combined

__all__ = [
    "Calibrated",
    "Calibration",
    "Isotonic",
    "Platt",
    "fit_isotonic",
    "fit_platt",
    "load_calibration",
]

SCHEMA_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class Calibration(ABC):
    """A map from scores to probabilities."""

    @abstractmethod
    def __call__(self, score: float) -> float:
        """The probability of a score, in [0, 1]."""

    def save(self, where: str | Path) -> Path:
        """Writes it as JSON: to a path, or under a name in the folder of calibrations."""
        path = _path(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema_version": SCHEMA_VERSION, "kind": _kind(type(self)), **asdict(self)}
        path.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
        return path


@dataclass(frozen=True, kw_only=True)
class Isotonic(Calibration):
    """A rising line through points; level before the first and after the last.

    Source: Zadrozny and Elkan 2002, "Transforming classifier scores into accurate multiclass
    probability estimates".
    """

    remote: ClassVar[bool] = True

    scores: tuple[float, ...]
    """Where the points stand, from left to right."""
    probabilities: tuple[float, ...]
    """How high they are; none is lower than the one before."""

    def __post_init__(self) -> None:
        xs, ys = tuple(map(float, self.scores)), tuple(map(float, self.probabilities))
        object.__setattr__(self, "scores", xs)
        object.__setattr__(self, "probabilities", ys)
        if not xs or len(xs) != len(ys):
            raise ValueError(f"{len(xs)} scores and {len(ys)} probabilities are no points")
        if not all(map(math.isfinite, xs)) or any(a >= b for a, b in pairwise(xs)):
            raise ValueError("scores are finite, each greater than the one before")
        if not all(0 <= y <= 1 for y in ys) or any(a > b for a, b in pairwise(ys)):
            raise ValueError("probabilities lie in [0, 1], none less than the one before")

    def __call__(self, score: float) -> float:
        """By the line between the two points beside it."""
        xs, ys = self.scores, self.probabilities
        place = bisect_left(xs, score)
        if place == 0 or place == len(xs) or xs[place] == score:
            return ys[min(place, len(xs) - 1)]
        left, right = xs[place - 1], xs[place]
        share = (score - left) / (right - left)
        return min(ys[place], ys[place - 1] + share * (ys[place] - ys[place - 1]))


@dataclass(frozen=True, kw_only=True)
class Platt(Calibration):
    """The logistic curve `1 / (1 + exp(-(slope x score + offset)))`.

    Source: Platt 1999, "Probabilistic outputs for support vector machines".
    """

    remote: ClassVar[bool] = True

    slope: float
    offset: float

    def __post_init__(self) -> None:
        if not (0 <= self.slope < math.inf and math.isfinite(self.offset)):
            raise ValueError(
                f"slope is finite and not below 0, offset is finite; not {self.slope} and "
                f"{self.offset}. A score that is worse the higher it is needs another verifier"
            )

    def __call__(self, score: float) -> float:
        """The height of the curve."""
        return _logistic(self.slope * score + self.offset)


KINDS: Mapping[str, type[Calibration]] = {"isotonic": Isotonic, "platt": Platt}


def load_calibration(where: str | Path) -> Calibration:
    """Reads what `save` wrote.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the file holds no calibration.
    """
    path = _path(where)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, kind = content.pop("schema_version"), content.pop("kind")
        if version != SCHEMA_VERSION:
            raise ValueError(f"its schema_version is {version}, not {SCHEMA_VERSION}")
        return KINDS[kind](**content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} holds no calibration: {error}") from error


def fit_isotonic(scores: Sequence[float], labels: Sequence[bool]) -> Isotonic:
    """The rising map that is nearest to the labels in squares, by pooling adjacent violators.

    Source: Ayer et al. 1955; Barlow et al. 1972.

    Args:
        scores: finite scores of candidates.
        labels: which of them are right.
    """
    _check(scores, labels)
    pools: list[list[float]] = []  # right, all, first score, last score
    pairs = sorted(zip(scores, map(bool, labels), strict=True))
    for score, group in groupby(pairs, key=lambda pair: pair[0]):
        own = [label for _, label in group]
        pools.append([float(sum(own)), float(len(own)), score, score])
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            right, count, _, last = pools.pop()
            pools[-1][0] += right
            pools[-1][1] += count
            pools[-1][3] = last
    points: dict[float, float] = {}
    for right, count, first, last in pools:
        points[first] = points[last] = right / count
    return Isotonic(scores=tuple(points), probabilities=tuple(points.values()))


def fit_platt(scores: Sequence[float], labels: Sequence[bool]) -> Platt:
    """The logistic curve of the greatest likelihood, with targets drawn in from 0 and 1.

    Source: Platt 1999 for the targets (n+ + 1)/(n+ + 2) and 1/(n- + 2); Newton's method with
    halved steps after Lin, Lin and Weng 2007.
    """
    _check(scores, labels)
    positive = sum(map(bool, labels))
    negative = len(labels) - positive
    high, low = (positive + 1) / (positive + 2), 1 / (negative + 2)
    targets = [high if label else low for label in labels]
    centre = math.fsum(scores) / len(scores)
    spread = math.sqrt(math.fsum((s - centre) ** 2 for s in scores) / len(scores)) or 1.0
    xs = [(score - centre) / spread for score in scores]
    a, b = 0.0, math.log((positive + 1) / (negative + 1))
    for _ in range(100):
        step = _newton(xs, targets, a, b)
        loss, size = _loss(xs, targets, a, b), 1.0
        while size > 1e-10 and _loss(xs, targets, a + size * step[0], b + size * step[1]) > loss:
            size /= 2
        a, b = a + size * step[0], b + size * step[1]
        if max(map(abs, step)) < 1e-10:
            break
    if a < 0:  # nothing that rises fits better than a level line
        a, b = 0.0, math.log((positive + 1) / (negative + 1))
    return Platt(slope=a / spread, offset=b - a * centre / spread)


@dataclass(frozen=True, init=False)
class Calibrated(Combined):
    """A verifier's scores as chances to be right.

    Source: Zadrozny and Elkan 2002; Platt 1999.
    Cost: what its part costs.
    """

    remote: ClassVar[bool] = True

    by: Calibration

    def __init__(
        self, verifier: Verifier, by: Calibration | str | None = None, *, name: str | None = None
    ) -> None:
        """A verifier and its map.

        Args:
            verifier: what scores.
            by: the map, or the name under which one was saved; by default the verifier's own name.
            name: the key of the scores; `calibrated_` and the verifier's name by default.

        Raises:
            GraphError: nothing is saved under the name.
        """
        own = getattr(verifier, "name", "")
        self._set((verifier,), name=name or f"calibrated_{own}", by=_found(by or own))

    @property
    def verifier(self) -> Verifier:
        """What scores."""
        return self.parts[0]

    @property
    def range(self) -> tuple[float, float]:
        """Of a probability."""
        return 0.0, 1.0

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """The probability of each candidate; what was unknown stays unknown."""
        scores = await scope.verify(self.verifier, candidates)
        return tuple(
            replace(score, range=self.range)
            if score.value is None
            else Score(
                value=min(1.0, max(0.0, self.by(score.value))),
                is_probability=True,
                evidence={**score.evidence, score.verifier: score.value},
            )
            for score in scores
        )


def _found(by: object) -> Calibration:
    if isinstance(by, Calibration):
        return by
    if not isinstance(by, str) or not _NAME.fullmatch(by):
        raise GraphError([f"by={by!r} is neither a calibration nor the name of a saved one"])
    try:
        return load_calibration(by)
    except FileNotFoundError:
        raise GraphError(
            [
                f"no calibration is saved as {by!r}; fit one with "
                f"fit_isotonic(scores, labels).save({by!r})"
            ]
        ) from None
    except ValueError as error:
        raise GraphError([str(error)]) from error


def _path(where: str | Path) -> Path:
    """A path as it is; a name in the folder of calibrations, and nowhere else."""
    if isinstance(where, Path):
        return where
    if not _NAME.fullmatch(where):
        raise ValueError(
            f"a calibration's name is made of letters, digits and _.-, unlike {where!r}; "
            "pass a pathlib.Path to save it elsewhere"
        )
    return settings().home.value / "calibrations" / f"{where}.json"


def _kind(calibration: type[Calibration]) -> str:
    return next(kind for kind, known in KINDS.items() if known is calibration)


def _check(scores: Sequence[float], labels: Sequence[bool]) -> None:
    if len(scores) != len(labels) or not scores:
        raise ValueError(f"{len(scores)} scores and {len(labels)} labels cannot be fit")
    if not all(map(math.isfinite, scores)):
        raise ValueError("scores are finite; leave unknown ones out")


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _loss(xs: Sequence[float], targets: Sequence[float], a: float, b: float) -> float:
    """The cross entropy of the targets and the curve."""
    total = []
    for x, target in zip(xs, targets, strict=True):
        z = a * x + b
        total.append(max(z, 0.0) - target * z + math.log1p(math.exp(-abs(z))))
    return math.fsum(total)


def _newton(
    xs: Sequence[float], targets: Sequence[float], a: float, b: float
) -> tuple[float, float]:
    """The step that ends at the lowest point of the loss's parabola."""
    probabilities = [_logistic(a * x + b) for x in xs]
    gaps = [target - p for target, p in zip(targets, probabilities, strict=True)]
    weights = [p * (1 - p) for p in probabilities]
    slope = math.fsum(gap * x for gap, x in zip(gaps, xs, strict=True))
    offset = math.fsum(gaps)
    aa = math.fsum(w * x * x for w, x in zip(weights, xs, strict=True)) + 1e-12
    ab = math.fsum(w * x for w, x in zip(weights, xs, strict=True))
    bb = math.fsum(weights) + 1e-12
    determinant = aa * bb - ab * ab
    return (bb * slope - ab * offset) / determinant, (aa * offset - ab * slope) / determinant
