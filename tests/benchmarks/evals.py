"""A small evaluation on a fake engine, for the tests of the harness."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from zlib import crc32

from ttc.benchmarks.harness.config import Arm, Config, TaskFacts, default_comparisons
from ttc.benchmarks.harness.run import Evaluation, Options
from ttc.benchmarks.tasks import ExactAnswer, Item, Reference, Task
from ttc.ports import Request
from ttc.testing import FakeEngine
from ttc.types import Problem

GREEDY = Arm(name="greedy", strategy="greedy(max_tokens=8)")
VOTE = Arm(name="vote", strategy="sample(n=3, max_tokens=8) >> vote()")


def sums(count: int = 2) -> Task:
    """What is i + 1?"""
    items = tuple(
        Item(Problem.ask(f"What is {i} + 1?", id=f"p{i}"), Reference(answer=str(i + 1)))
        for i in range(count)
    )
    return Task(name="sums", items=items, grader=ExactAnswer(), source="a test")


def facts_of(task: Task) -> TaskFacts:
    """What a configuration holds of a task."""
    return TaskFacts(
        name=task.name,
        source=task.source,
        digest=task.digest,
        num_problems=len(task.items),
        num_publicly_tested=0,
        grader="exact",
        example=str(task.problems[0].messages[0].content),
    )


def config_of(*tasks: Task, **changes: Any) -> Config:
    """Greedy against a vote, at one budget."""
    arms, budgets = changes.pop("arms", (GREEDY, VOTE)), {"tokens=60": {"tokens": 60}}
    budgets = changes.pop("budgets", budgets)
    names = [task.name for task in tasks]
    values: dict[str, Any] = {
        "tasks": tuple(map(facts_of, tasks)),
        "arms": arms,
        "budgets": budgets,
        "models": ("fake",),
        "roles": {},
        "seed": 7,
        "repeats": 1,
        "comparisons": default_comparisons(names, ["fake"], arms, list(budgets)),
        "asking": {},
    }
    return Config(**{**values, **changes})


def adder(request: Request) -> str:
    """Right two times of three, by seed and problem."""
    text = request.branch.text
    first = int(text.partition("What is ")[2].partition(" ")[0]) if "What is " in text else 0
    return f"The answer is {first + 1 + (crc32(f'{request.seed} {first}'.encode()) % 3 == 0)}."


def evaluation(
    folder: Path,
    *tasks: Task,
    engine: FakeEngine | None = None,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Evaluation:
    """An evaluation of tasks on a fake engine."""
    fake = engine or FakeEngine(adder)
    told = options.pop("told", lambda done: None)
    pool = options.pop("pool", None)
    return Evaluation(
        config_of(*tasks, **(changes or {})),
        {task.name: task for task in tasks},
        folder,
        options=Options(load=lambda _: nullcontext(fake), **options),
        pool=pool,
        told=told,
    )
