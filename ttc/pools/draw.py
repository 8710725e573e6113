"""Drawing: fills a pool with completions of problems, as many of each as are asked for.

Each completion has the seed that `Sample` would give it in a run of the same seed, so a pool holds
what runs would have drawn. What the file holds already is not drawn again. Whatever is in flight is
bounded, and a completion that is written is kept nowhere else, so memory does not grow with them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ttc.errors import EngineError, RecordError
from ttc.journal import derive_seed
from ttc.journal.values import message_values
from ttc.pools.pool import Completion, PoolFile
from ttc.ports import Engine, Request
from ttc.types import UNFILTERED, Branch, Message, Problem, Sampling

__all__ = ["Drawn", "Plan", "draw", "with_id"]

_PATH = "0.sample"
_IN_FLIGHT = 64


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is drawn of each problem."""

    n: int
    """Completions of each problem."""
    sampling: Sampling = UNFILTERED
    max_tokens: int = 512
    until: tuple[str, ...] = ()
    seed: int = 0
    """The seed of the run; that of a completion follows from it and from the index."""

    def __post_init__(self) -> None:
        for name, value in (("n", self.n), ("max_tokens", self.max_tokens)):
            if value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")


class Drawn(NamedTuple):
    """What drawing came to."""

    found: int
    """Completions that the file held already."""
    drawn: int
    failed: int
    """Those of the drawn ones of which nothing came; drawing again draws them anew."""


async def draw(
    problems: Sequence[Problem],
    engine: Engine,
    file: PoolFile,
    plan: Plan,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Drawn:
    """Draws what a file still lacks.

    Args:
        problems: what is completed. One without an id gets a hash of its prompt.
        engine: what completes it.
        file: where completions are written, each as soon as it is there.
        plan: how many, and how.
        progress: is told how many completions of how many are there.

    Raises:
        RecordError: the file holds completions that were drawn otherwise.
        EngineError: a problem does not fit the engine's context.
    """
    problems = [with_id(problem) for problem in problems]
    missing = [
        (problem, index)
        for problem in problems
        for index in sorted(set(range(plan.n)) - _held(problem, engine, file, plan))
    ]
    total, left = len(problems) * plan.n, iter(missing)
    roots = {problem.id: engine.root(problem, "policy") for problem, _ in missing}
    done, failed = total - len(missing), 0

    async def work() -> None:
        nonlocal done, failed
        for problem, index in left:  # shared: each is taken by one worker, in order
            completion = await _drawn(problem, index, roots[problem.id], engine, plan)
            file.add(completion)
            done, failed = done + 1, failed + completion.failed
            progress(done, total)

    progress(done, total)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_IN_FLIGHT, len(missing))):
                group.create_task(work())
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return Drawn(total - len(missing), len(missing), failed)


def with_id(problem: Problem) -> Problem:
    """The problem with an id: its own, or a hash of its prompt."""
    if problem.id:
        return problem
    asked = json.dumps([problem.prompt, [message_values(message) for message in problem.messages]])
    return replace(problem, id=hashlib.blake2b(asked.encode(), digest_size=6).hexdigest())


def _held(problem: Problem, engine: Engine, file: PoolFile, plan: Plan) -> set[int]:
    """The indices that need not be drawn.

    Raises:
        RecordError: what is there was drawn otherwise.
    """
    held = file.pool.of(problem.id)
    for completion in held:
        wanted = _known(completion.index, engine, plan) | _asked(problem)
        for name, value, there in _told(wanted, completion):
            if there != value and not (name == "seed" and there is None):
                raise RecordError(
                    f"{file.path}: {completion.key} was drawn with {name} {there!r}, and {value!r} "
                    "is asked for; write to another file"
                )
    return {completion.index for completion in held if not completion.failed}


def _told(
    wanted: Mapping[str, object], completion: Completion
) -> Iterator[tuple[str, object, object]]:
    """What is asked for and what is there, by name; of sampling each setting by its own."""
    for name, value in wanted.items():
        there = getattr(completion, name)
        if isinstance(value, Sampling) and isinstance(there, Sampling):
            yield from ((own, one, vars(there)[own]) for own, one in vars(value).items())
        else:
            yield name, value, there


def _known(index: int, engine: Engine, plan: Plan) -> dict[str, object]:
    return {
        "sampling": plan.sampling,
        "max_tokens": plan.max_tokens,
        "until": plan.until,
        "model_hash": engine.numerics,
        "seed": derive_seed(plan.seed, _PATH, index),
    }


def _asked(problem: Problem) -> dict[str, tuple[Message, ...] | str | None]:
    return {"messages": problem.messages, "prompt": problem.prompt}


async def _drawn(
    problem: Problem, index: int, root: Branch, engine: Engine, plan: Plan
) -> Completion:
    known = {**_known(index, engine, plan), "model": engine.name}
    most = plan.max_tokens
    if engine.context is not None:
        most = min(most, engine.context - root.num_tokens)
    request = Request(
        branch=root,
        max_tokens=max(1, most),
        sampling=plan.sampling,
        seed=derive_seed(plan.seed, _PATH, index),
        until=plan.until,
        call=f"{problem.id}#{index}",
    )
    try:
        segment = await asyncio.wrap_future(engine.submit(request).future)
    except EngineError as error:
        return Completion(
            problem=problem.id,
            index=index,
            num_tokens=error.output_tokens,
            finish_reason="error",
            error=str(error),
            **_asked(problem),  # type: ignore[arg-type]
            **known,  # type: ignore[arg-type]
        )
    return Completion.of(problem, index, segment, **known)
