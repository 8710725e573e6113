"""Grading: after the outcome, every candidate by its reference, each different answer once.

A grader alone sees references. What a model wrote is data to it: it is never evaluated here, and
programs run in the sandbox.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from ttc.benchmarks.data.own_scorer import OwnScorer
from ttc.benchmarks.harness.results import Graded
from ttc.benchmarks.hidden_tests import HiddenTests
from ttc.benchmarks.tasks import Item, Reference, Task
from ttc.sandbox.zygote import SandboxChoice
from ttc.types import AnswerFormat, Branch, Candidate

__all__ = ["Grades", "gradable", "jailed"]

_MOST = 200_000
_NOBODY = Candidate(branch=Branch(text="", token_ids=()), status="finished")


class Grades:
    """Grades of a task's candidates, kept by what was answered. Any thread may ask."""

    def __init__(self, task: Task) -> None:
        """Grades of nothing yet."""
        self._task = task
        self._references = task.references
        self._formats = {p.id: p.answer_format for p in task.problems}
        self._known: dict[tuple[str, str | None], float | None] = {}
        self._guard = Lock()

    def format_of(self, problem: str) -> AnswerFormat:
        """How the answers of a problem are read."""
        return self._formats[problem]

    def of(self, problem: str, candidate: Candidate) -> float | None:
        """1 is right, 0 is wrong, `None` is undecided."""
        reference = self._references[problem]
        said = candidate.text if self._formats[problem] == "code" else candidate.answer
        if said is None or not said.strip():
            return 0.0
        if candidate.status in ("failed", "cancelled"):
            return 0.0
        key = (problem, said)
        with self._guard:
            if key in self._known:
                return self._known[key]
        grade = self._task.grader(reference, candidate).value
        with self._guard:
            if len(self._known) >= _MOST:  # memory stays flat: the oldest are forgotten
                for old in list(self._known)[: _MOST // 10]:
                    del self._known[old]
            self._known[key] = grade
        return grade

    def graded(
        self, problem: str, candidates: Sequence[Candidate], *, texts: bool
    ) -> tuple[Graded, ...]:
        """All candidates, graded; those that failed are among them, and are wrong."""
        return tuple(
            Graded(
                answer=candidate.answer,
                grade=self.of(problem, candidate),
                tokens=_generated(candidate),
                status=candidate.status,
                scores={name: score.value for name, score in candidate.scores.items()},
                text=candidate.text if texts else None,
            )
            for candidate in candidates
        )


def jailed(task: Task, sandbox: SandboxChoice) -> Task:
    """The task with a grader that runs programs as safely as is asked for."""
    if isinstance(task.grader, HiddenTests | OwnScorer):
        return replace(task, grader=replace(task.grader, sandbox=sandbox))
    return task


def gradable(task: Task) -> tuple[Task, int]:
    """The task without problems whose reference grades nobody, and how many those were."""
    items = tuple(item for item in task.items if _is_gradable(item, task))
    return task.only(items), len(task.items) - len(items)


def _is_gradable(item: Item, task: Task) -> bool:
    probe = replace(_NOBODY, answer=None)
    score = task.grader(item.reference, probe)
    return score.value is not None and item.reference != Reference()


def _generated(candidate: Candidate) -> int:
    """The tokens since the prompt."""
    branch: Branch | None = candidate.branch
    total = 0
    while branch is not None and branch.parent is not None:
        total += branch.length or 0
        branch = branch.parent
    return total
