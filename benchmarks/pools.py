"""What the completions of a pool come to, by exact estimators: no strategy has to be run for it.

A completion that failed is wrong and stays in the denominator; what is reached without such
failures stands beside it, so that neither hides the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ttc.answers import answer_key, extract_answer
from ttc.benchmarks.harness.grading import Grades
from ttc.benchmarks.metrics import best_of_k, coverage, maj_at_k, pass_at_k
from ttc.benchmarks.tasks import Task
from ttc.errors import RecordError
from ttc.pools import Completion, Pool
from ttc.types import Branch, Candidate

__all__ = ["Estimate", "Graded", "estimates", "graded"]


@dataclass(frozen=True, kw_only=True)
class Graded:
    """A completion, read and graded."""

    completion: Completion
    key: object
    """What its answer shares with equal ones; `None` where it has none, or failed."""
    is_right: bool


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The mean of an estimator over the problems of a pool."""

    name: str
    value: float
    num_problems: int
    values: tuple[float, ...] = field(default=(), repr=False)
    """By problem, where the mean is over problems."""


def graded(pool: Pool, task: Task) -> dict[str, list[Graded]]:
    """Every completion of the task's problems, graded.

    A failed one has no answer: what it had written is not graded.

    Raises:
        RecordError: the pool and the task have no problem in common.
    """
    references, grades = task.references, Grades(task)
    formats = {problem.id: problem.answer_format for problem in task.problems}
    found = {
        problem.id: [
            _graded(completion, grades, formats[problem.id]) for completion in pool.of(problem.id)
        ]
        for problem in pool.problems
        if problem.id in references
    }
    if not found:
        raise RecordError(
            f"the pool holds no problem of the task {task.name!r}; they are matched by their ids"
        )
    return found


def estimates(
    pool: Pool, task: Task, ks: Sequence[int], *, score: str | None = None
) -> list[Estimate]:
    """Accuracy, coverage, and what k completions come to: pass@k, maj@k, and best-of-k by a score.

    An estimator that needs more completions than a problem has is left out.

    Args:
        pool: the completions.
        task: the references and the grader.
        ks: how many completions.
        score: the column that best-of-k chooses by.
    """
    problems = list(graded(pool, task).values())
    every = [one for problem in problems for one in problem]
    whole = [one for one in every if not one.completion.failed]
    count = len(problems)
    rows = [
        Estimate(name="accuracy, failed ones wrong", value=_share(every), num_problems=count),
        Estimate(name="accuracy of the completed", value=_share(whole), num_problems=count),
        Estimate(
            name="coverage",
            value=coverage([[one.is_right for one in problem] for problem in problems]),
            num_problems=count,
        ),
    ]
    least = min(map(len, problems))
    for k in ks:
        if k <= least:
            rows.append(_mean(f"pass@{k}", [_pass_at(problem, k) for problem in problems]))
        if 2 * k <= least:
            values = [_maj_at(problem, k) for problem in problems]
            rows.append(_mean(f"maj@{k}", values))
        if k <= least and score is not None:
            values = [_best_of(problem, k, score) for problem in problems]
            rows.append(_mean(f"best-of-{k} by {score}", values))
    return rows


def _mean(name: str, values: Sequence[float]) -> Estimate:
    return Estimate(name=name, value=fmean(values), num_problems=len(values), values=tuple(values))


def _share(completions: Sequence[Graded]) -> float:
    return fmean(one.is_right for one in completions) if completions else 0.0


def _pass_at(problem: Sequence[Graded], k: int) -> float:
    return pass_at_k(sum(one.is_right for one in problem), len(problem), k)


def _maj_at(problem: Sequence[Graded], k: int) -> float:
    keys = [one.key for one in problem]
    return maj_at_k(keys, [one.is_right for one in problem], k)


def _best_of(problem: Sequence[Graded], k: int, score: str) -> float:
    scores = [one.completion.scores.get(score) for one in problem]
    known = [value for value in scores if value is not None]
    if not known:
        raise RecordError(f"no completion of {problem[0].completion.problem!r} has a {score!r}")
    below = min(known) - 1.0  # an unknown score is chosen last
    values = [below if value is None else value for value in scores]
    return best_of_k(values, [one.is_right for one in problem], k)


def _graded(completion: Completion, grades: Grades, answer_format: str) -> Graded:
    if completion.failed:
        return Graded(completion=completion, key=None, is_right=False)
    answer = extract_answer(
        completion.text,
        answer_format,  # type: ignore[arg-type]
        finish_reason=completion.finish_reason or "stop",
    )
    candidate = Candidate(
        branch=Branch(text=completion.text, token_ids=None),
        text=completion.text,
        answer=answer,
        key=answer_key(answer),
        status="finished",
    )
    grade = grades.of(completion.problem, candidate)
    return Graded(completion=completion, key=candidate.key, is_right=grade == 1.0)
