"""Setting an evaluation up: from what a command says to what is written down and run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from ttc.benchmarks.data import Asking, task_named
from ttc.benchmarks.harness.config import (
    Arm,
    Comparison,
    Config,
    TaskFacts,
    budget_name,
    default_comparisons,
)
from ttc.benchmarks.harness.grading import gradable
from ttc.benchmarks.harness.sweeps import arms_of
from ttc.benchmarks.pools import check_asked, usual_number
from ttc.benchmarks.tasks import Task
from ttc.errors import RecordError
from ttc.function_node import FunctionNode
from ttc.graph import Node, roles_of
from ttc.journal import derive_seed
from ttc.pools import Pool, read
from ttc.text_form import parse
from ttc.types import Budget

__all__ = ["Asked", "SetUp", "parts", "set_up"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What somebody wants to know."""

    tasks: tuple[str, ...]
    strategies: tuple[str, ...]
    budgets: tuple[Budget, ...]
    models: tuple[str, ...]
    roles: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    repeats: int = 1
    comparisons: tuple[str, ...] | None = None
    """As `vote > greedy`, at the last budget, or `vote > greedy @ tokens=1000`; `None` compares
    every strategy with the first, as far as that is allowed."""
    asking: Asking = field(default_factory=Asking)
    pool: Path | None = None


@dataclass(frozen=True, kw_only=True)
class SetUp:
    """What can be run."""

    config: Config
    tasks: Mapping[str, Task]
    pool: Pool | None
    left_out: Mapping[str, tuple[str, ...]]
    """By task, what of it is left out, and why, in words."""


def set_up(asked: Asked) -> SetUp:
    """Loads tasks, checks strategies, and writes down what is compared.

    Raises:
        RecordError: a task cannot be had, or a pool holds none of its problems, or others by
            the same ids.
        GraphError: a strategy cannot be read.
        ValueError: a comparison names what there is not, or there are too many; or no strategy
            asks a role that has a model.
    """
    arms = arms_of(asked.strategies)
    _check_roles(asked.roles, [parse(arm.strategy) for arm in arms])
    pool = None if asked.pool is None else read(asked.pool)
    tasks: dict[str, Task] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    numbers: dict[str, int] = {}
    for spec in dict.fromkeys(asked.tasks):
        task, told = _gradable(task_named(spec, asked.asking), spec)
        if pool is not None:
            task, number, more = _drawn(_held(task, pool, spec), pool, len(task.items))
            numbers |= dict.fromkeys((problem.id for problem in task.problems), number)
            told += more
        if task.name in tasks:
            raise ValueError(f"two tasks are called {task.name!r}; give one file another name")
        tasks[task.name], left_out[task.name] = task, told
    if pool is not None:
        pool = Pool(c for id, number in numbers.items() for c in pool.of(id)[:number])
    budgets = {budget_name(limits): limits for limits in map(_limits, asked.budgets)}
    models = (asked.pool.name,) if asked.pool is not None else tuple(dict.fromkeys(asked.models))
    comparisons = _comparisons(asked, list(tasks), models, arms, list(budgets))
    config = Config(
        tasks=tuple(_facts(task) for task in tasks.values()),
        arms=arms,
        budgets=budgets,
        models=models,
        roles=dict(asked.roles),
        seed=asked.seed,
        repeats=asked.repeats,
        comparisons=comparisons,
        asking=_asking(asked.asking),
        pool=None if asked.pool is None or pool is None else _pool_name(asked.pool, pool),
    )
    return SetUp(config=config, tasks=tasks, pool=pool, left_out=left_out)


def _check_roles(given: Mapping[str, str], strategies: Sequence[Node]) -> None:
    """Refuses a model of a role that nothing asks: it would be loaded for nothing.

    Raises:
        ValueError: with the roles that there are.
    """
    nodes = [placed.node for strategy in strategies for placed in strategy.walk()]
    if not all(map(_tells_roles, nodes)):
        return
    known = frozenset[str]().union(*map(roles_of, strategies)) - {"policy"}
    for role in given:
        if role not in known:
            there = f"they ask {', '.join(sorted(known))}" if known else "all ask the policy alone"
            raise ValueError(f"no strategy asks the role {role!r}; {there}")


def _tells_roles(node: Node) -> bool:
    """Whether it asks no other roles than it says: of what others make, what says nothing may."""
    is_own = type(node).__module__.startswith("ttc.") and not isinstance(node, FunctionNode)
    return is_own or type(node).roles is not Node.roles


def _held(task: Task, pool: Pool, spec: str) -> Task:
    """The problems that a pool holds completions of."""
    held = {problem.id: problem for problem in pool.problems}
    items = tuple(item for item in task.items if item.problem.id in held)
    if not items:
        told = f"as {next(iter(held))!r}" if held else "and it holds nothing"
        raise RecordError(
            f"the pool holds no problem of {spec}; they are matched by their ids, here as "
            f"{task.items[0].problem.id!r}, in the pool {told}"
        )
    for item in items:
        check_asked(item.problem, held[item.problem.id], spec)
    return task.only(items)


def _gradable(task: Task, spec: str) -> tuple[Task, tuple[str, ...]]:
    """The problems that somebody can grade."""
    found, missing = gradable(task)
    if not found.items:
        raise RecordError(f"{spec} has no problem with a right answer, so nothing can be graded")
    return found, _left_out(missing, "which nobody can grade")


def _drawn(held: Task, pool: Pool, asked: int) -> tuple[Task, int, tuple[str, ...]]:
    """The problems of a task that a pool holds wholly, and how many completions of each."""
    most = usual_number(pool, held)
    whole = held.only(tuple(i for i in held.items if len(pool.of(i.problem.id)) >= most))
    told = _left_out(asked - len(held.items), "of which the pool holds nothing")
    fewer = f"of which the pool holds fewer than {most} completions: those still to come are longer"
    told += _left_out(len(held.items) - len(whole.items), fewer)
    more = sum(len(pool.of(item.problem.id)) > most for item in whole.items)
    if more:
        told += (f"{more:,} of its problems have more than {most} completions: the first are used",)
    return whole, most, told


def _left_out(count: int, why: str) -> tuple[str, ...]:
    return (f"{count:,} problem{'s' * (count != 1)} left out, {why}",) if count else ()


def parts(made: SetUp, share: float) -> tuple[SetUp, SetUp]:
    """A part to choose on and a part to report on, which share no problem.

    Args:
        made: what is divided, by its seed.
        share: of the problems of each task, for the first part.

    Raises:
        ValueError: the share is none, or a task has too few problems for two parts.
    """
    if not 0 < share < 1:
        raise ValueError(
            f"the share of the problems to choose on lies between 0 and 1, not {share}"
        )
    halves: tuple[dict[str, Task], dict[str, Task]] = ({}, {})
    for name, task in made.tasks.items():
        items = list(task.items)
        Random(derive_seed(made.config.seed, f"parts {name}", 0)).shuffle(items)
        count = round(share * len(items))
        if not 0 < count < len(items):
            raise ValueError(f"{name} has too few problems for two parts: {len(items)}")
        order = {item.problem.id: place for place, item in enumerate(task.items)}
        for half, chosen in zip(halves, (items[:count], items[count:]), strict=True):
            ranked = sorted(chosen, key=lambda item: order[item.problem.id])
            half[name] = task.only(tuple(ranked))
    first, second = (_of(made, half) for half in halves)
    return first, second


def _of(made: SetUp, tasks: Mapping[str, Task]) -> SetUp:
    """The same of other problems."""
    config = replace(made.config, tasks=tuple(map(_facts, tasks.values())))
    return replace(made, config=config, tasks=tasks)


def _pool_name(path: Path, pool: Pool) -> str:
    """A pool by its name and what is in it: one that has grown is another one."""
    hashed = hashlib.blake2b(digest_size=6)
    for completion in pool:
        told = completion.key, completion.text, completion.finish_reason, completion.scores
        hashed.update(repr(told).encode())
    return f"{path.name}, {len(pool):,} completions, digest {hashed.hexdigest()}"


def _limits(budget: Budget) -> dict[str, float]:
    return {name: value for name, value in vars(budget).items() if value is not None}


def _asking(asking: Asking) -> dict[str, Any]:
    values = vars(replace(asking, folders=()))
    return {name: value for name, value in values.items() if name != "folders"}


def _facts(task: Task) -> TaskFacts:
    first = task.problems[0]
    example = first.prompt if first.prompt is not None else first.messages[-1].content
    return TaskFacts(
        name=task.name,
        source=task.source,
        digest=task.digest,
        rows=task.rows,
        num_problems=len(task.items),
        num_publicly_tested=task.num_publicly_tested,
        grader=repr(task.grader),
        example=example,
    )


def _comparisons(
    asked: Asked,
    tasks: Sequence[str],
    models: Sequence[str],
    arms: Sequence[Arm],
    budgets: Sequence[str],
) -> tuple[Comparison, ...]:
    if asked.comparisons is None:
        return default_comparisons(tasks, models, arms, budgets)
    found = []
    for task in tasks:
        for text in asked.comparisons:
            first, second, budget = _compared(text, arms, budgets)
            found += [
                Comparison(task=task, model=model, budget=budget, first=first, second=second)
                for model in models
            ]
    return tuple(found)


def _compared(text: str, arms: Sequence[Arm], budgets: Sequence[str]) -> tuple[str, str, str]:
    sides, _, budget = (part.strip() for part in text.partition("@"))
    first, sign, second = (part.strip() for part in sides.partition(" > "))
    names = [arm.name for arm in arms]
    budget = budget or budgets[-1]
    if not sign or first not in names or second not in names or first == second:
        raise ValueError(
            f"a comparison is written as `A > B`, of two strategies of {', '.join(names)}, not "
            f"{text!r}"
        )
    if budget not in budgets:
        raise ValueError(f"{text!r} names no budget of {', '.join(budgets)}")
    return first, second, budget
