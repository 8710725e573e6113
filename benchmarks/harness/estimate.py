"""What an evaluation would take, before it runs: tokens, hours, and what it could show."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from ttc.benchmarks.harness.config import Config
from ttc.benchmarks.harness.results import Result
from ttc.benchmarks.tasks import Task
from ttc.journal import derive_seed
from ttc.loop import on_the_loop
from ttc.ports import Engine, Request
from ttc.text_form import parse
from ttc.types import Problem, Sampling

__all__ = ["SHARES", "CellEstimate", "detectable", "estimates", "measured_rate"]

SHARES = (0.1, 0.2, 0.4)
"""The shares of problems on which two strategies come to different grades: few, usual, many."""
_PROBES, _PROBE_TOKENS = 16, 32


@dataclass(frozen=True, kw_only=True)
class CellEstimate:
    """What one cell would take."""

    task: str
    model: str
    arm: str
    budget: str
    runs: int
    most_tokens: float | None
    """Of all its runs, at the worst; `None` where nothing bounds them."""

    def hours(self, rate: float) -> float | None:
        """How long it would take at the worst.

        Args:
            rate: tokens a second, with as many problems in flight as in the evaluation.
        """
        return None if self.most_tokens is None else self.most_tokens / rate / 3600


def estimates(
    config: Config,
    tasks: Mapping[str, Task],
    *,
    engine: Engine | None = None,
    done: Iterable[Result] = (),
) -> list[CellEstimate]:
    """What every cell would take that is not done yet.

    Args:
        config: what is run.
        tasks: its tasks by name.
        engine: counts the tokens of prompts, where no budget limits tokens.
        done: results that are there.
    """
    finished: dict[str, int] = {}
    for result in done:
        if result.error is None:
            finished[result.cell] = finished.get(result.cell, 0) + 1
    found = []
    for cell in config.cells:
        runs = len(tasks[cell.task].items) * config.repeats - finished.get(cell.key, 0)
        most: float | None = config.budget(cell.budget).tokens
        if engine is not None:
            longest = max(tasks[cell.task].problems, key=_length)
            bound = parse(config.strategy(cell.arm)).worst_case(longest, engine).tokens
            most = bound if most is None or (bound is not None and bound < most) else most
        found.append(
            CellEstimate(
                task=cell.task,
                model=cell.model,
                arm=cell.arm,
                budget=cell.budget,
                runs=runs,
                most_tokens=None if most is None else most * runs,
            )
        )
    return found


def _length(problem: Problem) -> int:
    told = [problem.prompt or "", *(message.content for message in problem.messages)]
    return sum(map(len, told))


def detectable(num_problems: int, share: float) -> float | None:
    """The smallest difference that a comparison would show: two-sided 5 %, with a power of 80 %.

    `None` where it would have to be larger than that share, which no difference can be.

    Args:
        num_problems: how many problems both strategies run on.
        share: on how many of them they come to different grades.
    """
    quantiles = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    least = quantiles * math.sqrt(share / num_problems)
    return least if least <= share else None


def measured_rate(engine: Engine, tasks: Sequence[Task]) -> float:
    """Tokens a second that an engine generates, by a few short calls side by side."""
    return on_the_loop(_probed(engine, tasks))


async def _probed(engine: Engine, tasks: Sequence[Task]) -> float:
    problems = [problem for task in tasks for problem in task.problems][:_PROBES]
    requests = [
        Request(
            branch=engine.root(problem, "policy"),
            max_tokens=_PROBE_TOKENS,
            sampling=Sampling(temperature=1.0),
            seed=derive_seed(0, "probe", place),
            until=(),
            call=f"probe#{place}",
        )
        for place, problem in enumerate(problems)
    ]
    began = time.monotonic()
    futures = [engine.submit(request).future for request in requests]
    branches = await asyncio.gather(*map(asyncio.wrap_future, futures))
    tokens = sum(branch.length or 0 for branch in branches)
    return tokens / max(time.monotonic() - began, 1e-9)
