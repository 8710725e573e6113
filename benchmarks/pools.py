"""What the completions of a pool come to, by exact estimators: no strategy has to be run for it.

A completion that failed is wrong and stays in the denominator; what is reached without such
failures stands beside it, so that neither hides the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ttc.answers import answer_key, extract_answer
from ttc.benchmarks.harness.grading import Grades
from ttc.benchmarks.harness.samples import Samples, classes
from ttc.benchmarks.harness.selection import best_at, majority_at, pass_at
from ttc.benchmarks.metrics import coverage
from ttc.benchmarks.tasks import Task
from ttc.errors import RecordError
from ttc.pools import Completion, Pool
from ttc.types import Branch, Candidate, Problem

__all__ = [
    "Estimate",
    "Graded",
    "check_asked",
    "estimates",
    "graded",
    "samples_of",
    "usual_number",
]


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


def graded(pool: Pool, task: Task, grades: Grades | None = None) -> dict[str, list[Graded]]:
    """Every completion of the task's problems, graded.

    A failed one has no answer: what it had written is not graded.

    Args:
        pool: the completions.
        task: the references and the grader.
        grades: what is known already; nothing by default.

    Raises:
        RecordError: the pool and the task have no problem in common, or another by the same id.
    """
    known = grades or Grades(task)
    references = {problem.id: problem for problem in task.problems}
    for problem in pool.problems:
        if problem.id in references:
            check_asked(references[problem.id], problem, task.name)
    found = {
        problem.id: [_graded(completion, known) for completion in pool.of(problem.id)]
        for problem in pool.problems
        if problem.id in references
    }
    if not found:
        raise RecordError(
            f"the pool holds no problem of the task {task.name!r}; they are matched by their ids"
        )
    return found


def check_asked(problem: Problem, held: Problem, task: str) -> None:
    """That completions answer the problem whose id they have: seeds and prompts change questions.

    What was asked may be the question alone, or have more around it than the task has.

    Args:
        problem: as the task asks it.
        held: as the pool asked it.
        task: the task's name.

    Raises:
        RecordError: the one is not a part of the other.
    """
    asks, asked = _words(problem), _words(held)
    if asked and asks not in asked and asked not in asks:
        raise RecordError(
            f"the pool's problem {held.id} is another one than that of {task}: it was asked "
            f"{asked[-200:]!r}, and the task asks {asks[-200:]!r}; name the task with the seed, "
            "the range and the prompts with which the pool was drawn"
        )


def _words(problem: Problem) -> str:
    """What is asked, in one text."""
    if problem.prompt is not None:
        return problem.prompt.strip()
    return "\n".join(message.content for message in problem.messages).strip()


def usual_number(pool: Pool, task: Task) -> int:
    """How many completions a pool holds of most problems of a task; of two such numbers the larger.

    A problem with fewer is one that is still being drawn. What it has came first since it is short,
    so it is not like the others.
    """
    counts = Counter(len(pool.of(problem.id)) for problem in task.problems)
    return max(counts, key=lambda number: (counts[number], number))


def samples_of(pool: Pool, task: Task, problem: str, grades: Grades) -> Samples:
    """The completions of one problem as samples, with what the pool tells of their confidence."""
    found = [_graded(completion, grades) for completion in pool.of(problem)]
    return _samples(found, task.name, problem)


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
    found = graded(pool, task)
    problems = [_samples(mine, task.name, problem) for problem, mine in found.items()]
    every = [one for mine in found.values() for one in mine]
    whole = [one for one in every if not one.completion.failed]
    count = len(problems)
    rows = [
        Estimate(name="accuracy, failed ones wrong", value=_share(every), num_problems=count),
        Estimate(name="accuracy of the completed", value=_share(whole), num_problems=count),
        Estimate(
            name="coverage",
            value=coverage([problem.right for problem in problems]),
            num_problems=count,
        ),
    ]
    least = min(len(problem.right) for problem in problems)
    for k in ks:
        if k <= least:
            rows.append(_mean(f"pass@{k}", [pass_at(problem, k) for problem in problems]))
        if 2 * k <= least:
            rows.append(_mean(f"maj@{k}", [majority_at(problem, k) for problem in problems]))
        if k <= least and score is not None:
            values = [best_at(problem, k, score) for problem in problems]
            rows.append(_mean(f"best-of-{k} by {score}", values))
    return rows


def _mean(name: str, values: Sequence[float]) -> Estimate:
    return Estimate(name=name, value=fmean(values), num_problems=len(values), values=tuple(values))


def _share(completions: Sequence[Graded]) -> float:
    return fmean(one.is_right for one in completions) if completions else 0.0


def _samples(found: Sequence[Graded], task: str, problem: str) -> Samples:
    columns = [_confidences(one.completion) for one in found]
    names = sorted({name for column in columns for name in column})
    return Samples(
        task=task,
        problem=problem,
        classes=classes(one.key for one in found),
        right=tuple(one.is_right for one in found),
        scores={name: tuple(column.get(name) for column in columns) for name in names},
    )


def _confidences(completion: Completion) -> dict[str, float | None]:
    """The scores of a completion, and how sure its model was where the pool tells."""
    if completion.failed:
        return {}
    known: dict[str, float | None] = {}
    if completion.logprobs:
        known["sequence_probability"] = min(1.0, math.exp(fmean(completion.logprobs)))
    if completion.top_means:
        known["mean_confidence"] = -fmean(completion.top_means)
    if completion.self_certainty is not None:
        known["self_certainty"] = completion.self_certainty
    every = {**known, **completion.scores}
    return {name: v if v is not None and math.isfinite(v) else None for name, v in every.items()}


def _graded(completion: Completion, grades: Grades) -> Graded:
    if completion.failed:
        return Graded(completion=completion, key=None, is_right=False)
    answer = extract_answer(
        completion.text,
        grades.format_of(completion.problem),
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
