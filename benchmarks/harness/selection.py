"""Selection: what k samples of a problem come to by each way to choose one, without bias.

No strategy is run for it: estimators average over all subsets of the samples that there are, and
their intervals are those of a bootstrap over problems. What a perfect choice would reach, pass@k,
is a bound and stands apart; how far a selector stays below it is its regret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ttc.benchmarks.harness.measures import natural
from ttc.benchmarks.harness.samples import Samples
from ttc.benchmarks.metrics import (
    Interval,
    best_of_k,
    bootstrap,
    maj_at_k,
    pass_at_k,
    weighted_at_k,
)
from ttc.errors import RecordError
from ttc.journal import derive_seed

__all__ = ["AtK", "Selection", "at_k", "best_at", "majority_at", "pass_at", "selection"]

PASS, VOTE, WEIGHTED, BEST = "pass@k", "maj@k", "weighted by ", "best-of-k by "


@dataclass(frozen=True, kw_only=True)
class AtK:
    """What one way to choose comes to, of k samples of each problem."""

    selector: str
    k: int
    value: float
    interval: Interval
    regret: float
    """How much a perfect choice among the same samples would gain."""
    is_bound: bool
    """Whether right answers choose: then it is no result."""
    values: tuple[float, ...] = field(repr=False)
    """By problem."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """All that the samples of one place come to."""

    task: str
    model: str
    source: str
    """Where the samples are from: a pool, or a strategy under a budget."""
    num_problems: int
    num_samples: int
    """Of each problem, of those with the fewest."""
    points: tuple[AtK, ...]

    @property
    def results(self) -> list[AtK]:
        """The selectors that could have been used."""
        return [point for point in self.points if not point.is_bound]

    @property
    def bounds(self) -> list[AtK]:
        """What a perfect choice reaches."""
        return [point for point in self.points if point.is_bound]


def selection(samples: Iterable[Samples], seed: int, *, model: str, source: str) -> list[Selection]:
    """What samples come to, one for each task, with k in powers of two.

    Args:
        samples: of problems of any tasks, in any order.
        seed: of the bootstrap, and of subsets that are drawn.
        model: whose they are.
        source: where they are from.
    """
    tasks: dict[str, list[Samples]] = {}
    for problem in sorted(samples, key=lambda one: (one.task, natural(one.problem))):
        tasks.setdefault(problem.task, []).append(problem)
    found = []
    for task, problems in tasks.items():
        least = min(len(problem.right) for problem in problems)
        ks = [2**power for power in range(least.bit_length()) if 2**power <= least]
        if least > 1:
            made = Selection(
                task=task,
                model=model,
                source=source,
                num_problems=len(problems),
                num_samples=least,
                points=tuple(at_k(problems, ks, seed)),
            )
            found.append(made)
    return found


def at_k(problems: Sequence[Samples], ks: Sequence[int], seed: int) -> list[AtK]:
    """Every selector at every k that there are enough samples for.

    A vote has to have twice as many. A score that a problem has of none of its samples chooses
    nothing, and one that may be below 0 weighs nothing.
    """
    least = min(len(problem.right) for problem in problems)
    bounds = {k: [pass_at(problem, k) for problem in problems] for k in ks if k <= least}
    named = [(PASS, k, values) for k, values in bounds.items()]
    halves = [k for k in bounds if 2 * k <= least]
    if any(place is not None for problem in problems for place in problem.classes):
        named += [(VOTE, k, [majority_at(p, k) for p in problems]) for k in halves]
    for score in _scores(problems):
        if _weighs(problems, score):
            named += [
                (WEIGHTED + score, k, [_weighted_at(p, k, score, seed) for p in problems])
                for k in halves
            ]
        named += [(BEST + score, k, [best_at(p, k, score) for p in problems]) for k in bounds]
    return [
        AtK(
            selector=name,
            k=k,
            value=fmean(values),
            interval=bootstrap(values, seed=seed),
            regret=fmean(bounds[k]) - fmean(values),
            is_bound=name == PASS,
            values=tuple(values),
        )
        for name, k, values in named
    ]


def pass_at(problem: Samples, k: int) -> float:
    """Whether one of k is right."""
    return pass_at_k(sum(problem.right), len(problem.right), k)


def majority_at(problem: Samples, k: int) -> float:
    """Whether a vote of k is right."""
    return maj_at_k(problem.classes, problem.right, k)


def best_at(problem: Samples, k: int, score: str) -> float:
    """Whether the best of k by a score is right; an unknown one is chosen last.

    Raises:
        RecordError: no sample has the score.
    """
    scores = problem.scores.get(score, ())
    known = [value for value in scores if value is not None]
    if not known:
        raise RecordError(f"no completion of {problem.problem!r} has a {score!r}")
    below = min(known) - 1.0
    values = [below if value is None else value for value in scores]
    return best_of_k(values, problem.right, k)


def _weighted_at(problem: Samples, k: int, score: str, seed: int) -> float:
    own = derive_seed(seed, f"subsets {problem.problem}", k)
    return weighted_at_k(problem.classes, problem.scores[score], problem.right, k, seed=own)


def _scores(problems: Sequence[Samples]) -> list[str]:
    """The scores that every problem has of some of its samples."""
    names = sorted({name for problem in problems for name in problem.scores})
    return [name for name in names if all(_knows(p.scores, name) for p in problems)]


def _knows(scores: Mapping[str, Sequence[float | None]], name: str) -> bool:
    return any(value is not None for value in scores.get(name, ()))


def _weighs(problems: Sequence[Samples], score: str) -> bool:
    values = [value for p in problems for value in p.scores[score] if value is not None]
    return min(values) >= 0
