"""Tasks: problems with their references, and the grader that compares an answer with a reference.

A reference never enters a `Problem`: only a grader sees it, after the outcome.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from ttc.answers import answer_key
from ttc.journal.values import problem_values
from ttc.registry import install_hint
from ttc.sandbox.forms import Tests
from ttc.types import Candidate, Problem, Score

__all__ = ["ExactAnswer", "Grader", "Item", "Origin", "Reference", "Task", "chain_sum"]

_MAX_DRAWS = 10_000


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a generated problem comes from, so that it can be made again."""

    generator: str
    options: str
    """As JSON."""
    place: int
    question: str
    """As it was generated, which tells that it came out the same."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The right answer to a problem, or tests that tell one."""

    answer: str = ""
    """Empty where there is none: then nobody is graded by it."""
    tests: Tests | None = None
    """Tests that a program has to pass, which no problem shows."""
    origin: Origin | None = None
    """What a scorer of the generator's own needs."""


Grader: TypeAlias = Callable[[Reference, Candidate], Score]
"""Says how right a candidate is: 1 is right, 0 is wrong, unknown is a reference without a grade."""


class Item(NamedTuple):
    """A problem and its right answer."""

    problem: Problem
    reference: Reference


@dataclass(frozen=True, kw_only=True)
class Task:
    """A benchmark: what to solve, and how it is graded."""

    name: str
    items: tuple[Item, ...]
    grader: Grader
    source: str = ""
    """Where the problems come from: a file, a package, a generator with its options."""
    rows: str | None = None
    """The digest of all that they are some of; `None` where nobody has these, as of a generator."""

    def __post_init__(self) -> None:
        ids = [item.problem.id for item in self.items]
        if len(set(ids)) < len(ids) or "" in ids:
            (doubled, times), *_ = Counter(ids).most_common(1)
            told = (
                f"{times} of them are called {doubled!r}" if times > 1 else "one of them has none"
            )
            raise ValueError(
                f"the problems of the task {self.name!r} need ids that tell them apart; {told}"
            )

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Its problems, in order."""
        return tuple(item.problem for item in self.items)

    @property
    def references(self) -> dict[str, Reference]:
        """Its references, by the ids of their problems."""
        return {item.problem.id: item.reference for item in self.items}

    @cached_property
    def digest(self) -> str:
        """A hash of its problems and references: equal where the same is asked and graded."""
        hashed = hashlib.blake2b(digest_size=16)
        for problem, reference in self.items:
            values = [problem_values(problem), reference.answer, repr(reference.tests)]
            hashed.update(json.dumps(values, sort_keys=True, default=str).encode())
        return hashed.hexdigest()

    @property
    def num_publicly_tested(self) -> int:
        """How many problems show tests, which a verifier may run."""
        return sum(bool(problem.tests) for problem in self.problems)

    def only(self, items: tuple[Item, ...]) -> Task:
        """The same task of some of its problems."""
        return replace(self, items=items)


@dataclass(frozen=True, kw_only=True)
class ExactAnswer:
    """Right is the answer whose `answer_key` is the reference's.

    An empty answer is never right, and a reference that cannot be read grades nobody.
    """

    text: bool = False
    """Whether a reference may be a text. Otherwise one that is no number grades nobody."""

    def __call__(self, reference: Reference, candidate: Candidate) -> Score:
        """1 or 0, or unknown where the reference cannot be graded against."""
        right = answer_key(reference.answer)
        if right is None or not (self.text or _is_number(right)):
            reason = {"ungradable reference": reference.answer}
            return Score(value=None, verifier="exact_answer", evidence=reason)
        return Score(value=float(answer_key(candidate.answer) == right), verifier="exact_answer")


def chain_sum(n: int, seed: int) -> Task:
    """Sums and differences of two one-digit numbers: n different questions.

    Source: `chain_sum` of Reasoning Gym, Stojanovski et al. 2025, arXiv 2505.24760.

    Args:
        n: how many questions. The generator knows 200 different ones.
        seed: seeds the generator. Nearby seeds share most of their questions.

    Raises:
        ModuleNotFoundError: Reasoning Gym is not installed; the message names the extra.
        ValueError: the generator does not give so many different questions.
    """
    if n < 1:
        raise ValueError(f"a task has at least 1 problem, not {n}")
    answers: dict[str, str] = {}
    for entry in _draw("chain_sum", _MAX_DRAWS, seed):
        if len(answers) == n:
            break
        answers.setdefault(entry["question"], entry["answer"])
    if len(answers) < n:
        raise ValueError(
            f"chain_sum gave {len(answers)} different questions in {_MAX_DRAWS} draws, and {n} "
            f"were asked for; ask for at most {len(answers)}"
        )
    items = tuple(
        Item(Problem.ask(question, id=f"chain_sum-{index}"), Reference(answer=answer))
        for index, (question, answer) in enumerate(answers.items())
    )
    return Task(name="chain_sum", items=items, grader=ExactAnswer())


def _draw(name: str, size: int, seed: int) -> Any:
    try:
        import reasoning_gym
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the task {name} needs reasoning_gym, which is not installed; {install_hint('eval')}",
            name=error.name,
        ) from error
    operands = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    return reasoning_gym.create_dataset(name, size=size, seed=seed, **operands)


def _is_number(key: object) -> bool:
    return isinstance(key, tuple) and key[0] == "number"
