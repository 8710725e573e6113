"""Generated tasks: any generator of Reasoning Gym whose problems have one right answer.

A generator that comes with a curriculum has levels, from 0 on; a range of them is a ladder, with
equally many problems of each. Problems are told apart by their text. Answers are graded by ttc, not
by the generator's own scorer: many of those evaluate what the model wrote.

Source: Stojanovski et al. 2025, arXiv 2505.24760.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ttc.benchmarks.data.prompts import Prompt
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.tasks import Item, Reference, Task
from ttc.errors import RecordError
from ttc.journal import derive_seed
from ttc.registry import install_hint
from ttc.types import Problem

__all__ = ["generated", "single_answers"]

_SPEC = re.compile(r"([a-z0-9_]+)(?:@(\d+)(?:-(\d+))?)?")
_DRAWS = 20
"""How many draws there may be for each problem that is asked for."""
_NUMBERS = frozenset(
    [
        "chain_sum",
        "decimal_arithmetic",
        "decimal_chain_sum",
        "gsm_symbolic",
        "products",
        "spell_backward",
    ]
)
"""Generators with a scorer of their own that does no more than compare with the right answer."""


def generated(spec: str, n: int, seed: int, prompt: Prompt) -> Task:
    """Different problems of a generator.

    Args:
        spec: its name, `gcd`; with a level of its curriculum, `gcd@2`; or with levels, `gcd@0-3`.
        n: how many problems; of several levels equally many, as far as n can be divided.
        seed: seeds the generator.
        prompt: how they are asked.

    Raises:
        RecordError: there is no such generator or level, or its problems have several answers.
        ModuleNotFoundError: Reasoning Gym is not installed; the message names the extra.
    """
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise RecordError(f"rg:{spec} is no generator; write rg:gcd, rg:gcd@2 or rg:gcd@0-3")
    name, first, last = match[1], match[2], match[3]
    factory = _factory()
    _check(name, factory)
    levels: list[int | None] = [None]
    if first is not None:
        levels = list(range(int(first), int(last or first) + 1))
    if not levels:
        raise RecordError(f"rg:{spec} goes from a level down to a lower one; write the lower first")
    items: list[Item] = []
    for place, level in enumerate(levels):
        count = n // len(levels) + (place < n % len(levels))
        items += _items(name, level, count, derive_seed(seed, f"level {level}", 0), prompt)
    return Task(
        name=f"rg:{spec}",
        items=tuple(items),
        grader=MathEqual(text=True),
        source=f"Reasoning Gym's {name}, seed {seed}",
    )


def _items(name: str, level: int | None, count: int, seed: int, prompt: Prompt) -> list[Item]:
    found: dict[str, str] = {}
    for entry in _entries(name, level, _DRAWS * count, seed):
        if len(found) == count:
            break
        found.setdefault(entry["question"], str(entry["answer"]))
    if len(found) < count:
        raise RecordError(
            f"{name} gave {len(found)} different questions in {_DRAWS * count} draws, and {count} "
            f"were asked for; ask for at most {len(found)}, or for a higher level"
        )
    mark = "" if level is None else f"@{level}"
    metadata = {} if level is None else {"level": str(level)}
    return [
        Item(
            Problem(id=f"{name}{mark}-{place}", metadata=metadata, **prompt.asked(question)),
            Reference(answer=answer),
        )
        for place, (question, answer) in enumerate(found.items())
    ]


def _entries(name: str, level: int | None, size: int, seed: int) -> Iterator[Any]:
    factory, options = _factory(), {}
    if level is not None:
        if not factory.has_curriculum(name):
            raise RecordError(f"{name} has no levels; leave out @{level}")
        curriculum = factory.create_curriculum(name)
        highest = max(len(a.levels) for a in curriculum.attributes.values()) - 1
        if level > highest:
            raise RecordError(f"{name} has the levels 0 to {highest}, and {level} is asked for")
        curriculum.set_global_level(level)
        options = asdict(curriculum.generate_configuration())
    return iter(factory.create_dataset(name, **{**options, "size": size, "seed": seed % 2**32}))


def single_answers() -> list[str]:
    """Generators whose problems have one right answer: they compare with it, and no more."""
    factory = _factory()
    usual = factory.ProceduralDataset.score_answer
    plain = {name for name, (kind, _) in factory.DATASETS.items() if kind.score_answer is usual}
    return sorted(plain | (_NUMBERS & set(factory.DATASETS)))


def _check(name: str, factory: Any) -> None:
    known = single_answers()
    if name in known:
        return
    reason = "has no such generator"
    if name in factory.DATASETS:
        reason = (
            "may find several answers right, by a scorer of its own that evaluates what a model "
            "wrote"
        )
    raise RecordError(f"rg:{name}: Reasoning Gym {reason}; there is {', '.join(known)}")


def _factory() -> Any:
    try:
        from reasoning_gym import factory
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"generated tasks need reasoning_gym, which is not installed; {install_hint('eval')}",
            name=error.name,
        ) from error
    return factory
