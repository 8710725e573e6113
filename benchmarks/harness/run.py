"""Running an evaluation: many problems in flight on one engine, each kept once it is graded.

A kill at any moment loses nothing: a problem that had begun goes on from its journal, one that was
done is not run again, and no result depends on who was in flight with it. Whatever is in flight is
bounded, and nothing else is kept, so memory does not grow with the number of problems.

Differs: a run on a pool has no journal, since it repeats by itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ttc.benchmarks.harness.card import CardFile
from ttc.benchmarks.harness.config import Cell, Config
from ttc.benchmarks.harness.grading import Grades, jailed
from ttc.benchmarks.harness.results import (
    Key,
    Result,
    ResultFile,
    journal_of,
    read_results,
)
from ttc.benchmarks.harness.samples import SampleFile
from ttc.benchmarks.pools import samples_of
from ttc.benchmarks.tasks import Item, Task
from ttc.clock import SystemClock
from ttc.engine.replay import ReplayEngine
from ttc.errors import EngineError, JournalMismatch, NodeError, RecordError
from ttc.graph import Node
from ttc.journal import derive_seed
from ttc.loop import on_the_loop
from ttc.pools import Pool
from ttc.ports import Clock, Engine
from ttc.prices import Prices
from ttc.registry import load_engine
from ttc.sandbox.zygote import SandboxChoice
from ttc.solve import asolve
from ttc.text_form import parse
from ttc.types import Outcome, Problem
from ttc.unscored import told_once

__all__ = ["Done", "Evaluation", "Job", "Options", "Shard"]

Load = Callable[[str], AbstractContextManager[Engine]]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A part of the problems: those whose place leaves `place` when divided by `count`."""

    place: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.place < self.count:
            raise ValueError(f"a shard is one of 1 to {self.count}, not {self.place + 1}")

    @classmethod
    def of(cls, text: str) -> Shard:
        """The shard that `2/4` names.

        Raises:
            ValueError: it is none.
        """
        place, _, count = text.partition("/")
        if not (place.isdecimal() and count.isdecimal()):
            raise ValueError(f"a shard is written as 1/4, not {text!r}")
        return cls(place=int(place) - 1, count=int(count))

    @property
    def file(self) -> str:
        """The name of its file of results."""
        if self.count == 1:
            return "results.jsonl"
        return f"results-{self.place + 1}-of-{self.count}.jsonl"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What changes no result."""

    concurrency: int = 64
    """Problems in flight at once."""
    shard: Shard = field(default_factory=Shard)
    keep_journals: bool = False
    """Whether journals stay when their problems are done."""
    sandbox: SandboxChoice = "auto"
    load: Load = lambda model: nullcontext(load_engine(model))
    clock: Clock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError(f"concurrency is at least 1, not {self.concurrency}")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One problem of one cell, once."""

    cell: Cell
    item: Item
    repeat: int

    @property
    def key(self) -> Key:
        """What its result is of."""
        return Key(self.cell.key, self.item.problem.id, self.repeat)


class Done(NamedTuple):
    """A job that is done."""

    job: Job
    value: float
    """1 where it is right."""
    tokens: int
    is_new: bool
    """Whether it was done now."""


class Evaluation:
    """An evaluation in a folder, that goes on where it was."""

    def __init__(
        self,
        config: Config,
        tasks: Mapping[str, Task],
        folder: Path,
        *,
        options: Options | None = None,
        pool: Pool | None = None,
        told: Callable[[Done], None] = lambda done: None,
    ) -> None:
        """An evaluation of tasks.

        Args:
            config: what it is.
            tasks: its tasks by name.
            folder: where everything of it is kept.
            options: what changes no result.
            pool: what is drawn from, in the place of models.
            told: is told of every job that is done, or had been done before.
        """
        self._config, self._tasks, self._folder = config, tasks, folder
        self._options, self._told = options or Options(), told
        self._pool = None if pool is None else _Orders(pool, config.seed)
        sandbox = self._options.sandbox
        self._grades = {name: Grades(jailed(task, sandbox)) for name, task in tasks.items()}
        # A journal that is kept tells a strategy as it was written; others need not read it anew.
        self._strategies: dict[str, Node | str] = {
            arm.name: arm.strategy if self._options.keep_journals else parse(arm.strategy)
            for arm in config.arms
        }
        self._prices = Prices.of_the_user()
        self._engines: dict[str, Engine] = {}

    def jobs(self) -> Iterator[Job]:
        """Everything that there is to do, in order; of a shard its part."""
        shard = self._options.shard
        for model in self._config.models:
            cells = [cell for cell in self._config.cells if cell.model == model]
            for repeat in range(self._config.repeats):
                for cell in cells:
                    for place, item in enumerate(self._tasks[cell.task].items):
                        if place % shard.count == shard.place:
                            yield Job(cell=cell, item=item, repeat=repeat)

    def run(self) -> None:
        """Does what is not done yet.

        Raises:
            RecordError: the folder is of another evaluation, is in use, or cannot be written.
            EngineError: a model cannot be had, or computes otherwise than the results that are
                there.
        """
        self._config.begin(self._folder)
        with ResultFile(self._folder / self._options.shard.file) as file:
            there = {
                result.key: (result.value, int(result.usage.get("tokens") or 0))
                for result in read_results(self._folder)
                if result.error is None
            }
            file.done.update(there)  # those of shards are among them
            for model in self._config.models:
                for job in self.jobs():
                    if job.cell.model == model and job.key in there:
                        self._forget(job)
                        self._told(Done(job, *there[job.key], is_new=False))
                left = (job for job in self.jobs() if job.cell.model == model)
                missing = (job for job in left if job.key not in file.done)
                first = next(missing, None)
                if first is not None:
                    self._run_model(model, chain([first], missing), file)
            if self._pool is not None:
                self._grade_pool(self._pool.whole)

    def _grade_pool(self, pool: Pool) -> None:
        """Keeps the grades of all completions, whatever strategies drew of them."""
        shard = self._options.shard
        with SampleFile(self._folder / shard.file.replace("results", "samples")) as file:
            for name, task in self._tasks.items():
                mine = [p.id for p in task.problems[shard.place :: shard.count]]
                grades = self._grades[name]
                file.fill(name, mine, partial(samples_of, pool, task, grades=grades))

    def _run_model(self, model: str, jobs: Iterator[Job], file: ResultFile) -> None:
        names = {"policy": model, **self._config.roles}
        opened = []
        try:
            for role, name in names.items():
                context = self._engine_of(role, name)
                self._engines[role] = context.__enter__()
                opened.append(context)
            CardFile(self._folder).begin(model, self._engines, self._tasks, self._options)
            on_the_loop(self._run_all(jobs, file))
        finally:
            for context in reversed(opened):
                context.__exit__(None, None, None)
            self._engines.clear()

    def _engine_of(self, role: str, name: str) -> AbstractContextManager[Engine]:
        """A pool holds what the policy has written; every other role has a model."""
        if self._pool is not None and role == "policy":
            return nullcontext(self._pool.engine(0))
        return self._options.load(name)

    async def _run_all(self, jobs: Iterator[Job], file: ResultFile) -> None:
        async def work() -> None:
            for job in jobs:  # shared: each job is taken by one worker, in order
                result = await self._done(job)
                file.add(result)
                self._forget(job)
                tokens = int(result.usage.get("tokens") or 0)
                self._told(Done(job, result.value, tokens, is_new=True))

        try:
            with told_once():
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._in_flight()):
                        group.create_task(work())
        except BaseExceptionGroup as faults:
            raise faults.exceptions[0] from None

    def _in_flight(self) -> int:
        """One at a time where seconds are limited: others in flight would take them away."""
        limits = self._config.budgets.values()
        if any("seconds" in budget for budget in limits):
            return 1
        return self._options.concurrency

    async def _done(self, job: Job) -> Result:
        grades = self._grades[job.cell.task]
        engines, problem = dict(self._engines), job.item.problem
        if self._pool is not None:
            engines["policy"] = self._pool.engine(job.repeat)
            problem = self._pool.problem(problem)
        fault: Exception | None = None
        outcome: Outcome | None = None
        try:
            outcome = await asolve(
                problem,
                self._strategies[job.cell.arm],
                models=engines,
                budget=self._config.budget(job.cell.budget),
                seed=self._seed(job.repeat),
                prices=self._prices,
                clock=self._options.clock,
                sandbox=self._options.sandbox,
                journal=None if self._pool else journal_of(self._folder, job.key),
            )
        except NodeError as error:
            fault, outcome = error, error.outcome
        except JournalMismatch:
            raise
        except (EngineError, RecordError) as error:
            fault = error
        return await asyncio.to_thread(self._graded, job, outcome, fault, grades)

    def _graded(
        self, job: Job, outcome: Outcome | None, fault: Exception | None, grades: Grades
    ) -> Result:
        name, texts = job.item.problem.id, self._pool is None
        spent = {} if outcome is None else _spent(outcome)
        if fault is not None or outcome is None:
            return Result(
                **job.key._asdict(),
                grade=0.0,
                answer=None,
                text=None,
                confidence=None,
                stopped_by="error",
                error=f"{type(fault).__name__}: {fault}",
                **spent,
            )
        chosen = outcome.candidate
        return Result(
            **job.key._asdict(),
            grade=0.0 if chosen is None else grades.of(name, chosen),
            answer=outcome.answer,
            text=outcome.text if texts else None,
            confidence=_known(outcome.confidence),
            stopped_by=outcome.stopped_by,
            oracle=outcome.oracle,
            timing_dependent=outcome.timing_dependent,
            overhead_s=outcome.seconds_by.get("orchestration"),
            candidates=grades.graded(name, outcome.candidates, texts=texts),
            **spent,
        )

    def _seed(self, repeat: int) -> int:
        seed = self._config.seed
        return derive_seed(seed, "repeat", repeat) if repeat and self._pool is None else seed

    def _forget(self, job: Job) -> None:
        """Removes the journal of a job that is done."""
        if self._pool is None and not self._options.keep_journals:
            journal_of(self._folder, job.key).unlink(missing_ok=True)


def _spent(outcome: Outcome) -> dict[str, Any]:
    """What was spent, of a run that a fault cut short as well."""
    usage = {line: value for line, value in vars(outcome.usage).items() if value != 0}
    roles = {role: part.tokens for role, part in outcome.usage_by_role.items() if part.tokens}
    return {"usage": usage, "roles": roles}


def _known(confidence: float | None) -> float | None:
    """A confidence; one that is not finite tells nothing."""
    return confidence if confidence is not None and math.isfinite(confidence) else None


class _Orders:
    """A pool, with the completions of each problem in another order for each repeat."""

    def __init__(self, pool: Pool, seed: int) -> None:
        self.whole, self._seed = pool, seed
        self._problems = {problem.id: problem for problem in pool.problems}
        self._made: tuple[int, Engine] | None = None

    def problem(self, asked: Problem) -> Problem:
        """A problem of a task, asked as the pool asked it."""
        found = self._problems[asked.id]
        return replace(asked, messages=found.messages, prompt=found.prompt)

    def engine(self, repeat: int) -> Engine:
        """What draws in the order of a repeat; the first one is that of the file."""
        if self._made is None or self._made[0] != repeat:
            pool = self.whole if repeat == 0 else self._shuffled(repeat)
            self._made = repeat, ReplayEngine(pool)
        return self._made[1]

    def _shuffled(self, repeat: int) -> Pool:
        made = []
        for problem in self.whole.problems:
            completions = list(self.whole.of(problem.id))
            Random(derive_seed(self._seed, f"order {problem.id}", repeat)).shuffle(completions)
            made += [replace(c, index=place) for place, c in enumerate(completions)]
        return Pool(made)
