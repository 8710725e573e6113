"""Generated tasks: the generators of Reasoning Gym.

A generator that comes with a curriculum has levels, from 0 on; a range of them is a ladder, with
equally many problems of each. Problems are told apart by their text. Where a problem has one right
answer, ttc grades by it; where the generator has a scorer of its own, that one does, in the jail,
since many of them evaluate what the model wrote.

Source: Stojanovski et al. 2025, arXiv 2505.24760.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from ttc.benchmarks.data.own_scorer import OwnScorer
from ttc.benchmarks.data.prompts import Prompt
from ttc.benchmarks.math_equal import MathEqual
from ttc.benchmarks.tasks import Item, Origin, Reference, Task
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

_REFUSED: Mapping[str, str] = {
    "composite": "is made of others, which a name cannot tell",
    "polynomial_multiplication": "does not give the same problem twice, in two processes",
}
"""Generators that cannot be graded by, each with the reason."""


def generated(spec: str, n: int, seed: int, prompt: Prompt) -> Task:
    """Different problems of a generator.

    Args:
        spec: its name, `gcd`; with a level of its curriculum, `gcd@2`; or with levels, `gcd@0-3`.
        n: how many problems; of several levels in turns, so that a part of a ladder has equally
            many of each, and more problems go on where fewer end.
        seed: seeds the generator.
        prompt: how they are asked.

    Raises:
        RecordError: there is no such generator or level, or it cannot be graded by.
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
    rungs = []
    for place, level in enumerate(levels):
        count = n // len(levels) + (place < n % len(levels))
        rungs.append(_items(name, level, count, derive_seed(seed, f"level {level}", 0), prompt))
    return Task(
        name=f"rg:{spec}",
        items=tuple(item for row in zip_longest(*rungs) for item in row if item is not None),
        grader=MathEqual(text=True) if name in single_answers() else OwnScorer(),
        source=f"Reasoning Gym's {name}, seed {seed}",
    )


def _items(name: str, level: int | None, count: int, seed: int, prompt: Prompt) -> list[Item]:
    options = {**_options(name, level), "size": _DRAWS * count, "seed": seed % 2**32}
    found: dict[str, Reference] = {}
    for place, entry in enumerate(_factory().create_dataset(name, **options)):
        if len(found) == count:
            break
        question = entry["question"]
        origin = Origin(generator=name, options=json.dumps(options), place=place, question=question)
        answer = entry["answer"]  # a scorer may do without one
        found.setdefault(
            question, Reference(answer="" if answer is None else str(answer), origin=origin)
        )
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
            reference,
        )
        for place, (question, reference) in enumerate(found.items())
    ]


def _options(name: str, level: int | None) -> dict[str, Any]:
    """What a level of a generator's curriculum sets."""
    factory = _factory()
    if level is None:
        return {}
    if not factory.has_curriculum(name):
        raise RecordError(f"{name} has no levels; leave out @{level}")
    curriculum = factory.create_curriculum(name)
    highest = max(len(a.levels) for a in curriculum.attributes.values()) - 1
    if level > highest:
        raise RecordError(f"{name} has the levels 0 to {highest}, and {level} is asked for")
    curriculum.set_global_level(level)
    return asdict(curriculum.generate_configuration())


def single_answers() -> list[str]:
    """Generators whose problems have one right answer: they compare with it, and no more."""
    factory = _factory()
    usual = factory.ProceduralDataset.score_answer
    plain = {name for name, (kind, _) in factory.DATASETS.items() if kind.score_answer is usual}
    return sorted(plain | (_NUMBERS & set(factory.DATASETS)))


def _check(name: str, factory: Any) -> None:
    if name in _REFUSED:
        raise RecordError(f"rg:{name} {_REFUSED[name]}; choose another generator")
    if name not in factory.DATASETS:
        known = ", ".join(sorted(set(factory.DATASETS) - set(_REFUSED)))
        raise RecordError(f"rg:{name}: Reasoning Gym has no such generator; there is {known}")


def _factory() -> Any:
    try:
        from reasoning_gym import factory
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"generated tasks need reasoning_gym, which is not installed; {install_hint('eval')}",
            name=error.name,
        ) from error
    return factory
