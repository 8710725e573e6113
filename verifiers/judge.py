"""Judge: a prompted model grades each candidate by a rubric.

Source: LLM-as-a-judge, Zheng et al. 2023 (arXiv 2306.05685), single-answer grading; averaged over
several verdicts as in Zhao et al. 2025 (arXiv 2502.01839), section 3.
Differs: a verdict that cannot be read is unknown, and neither the lowest nor a middle grade.
Cost: `samples` calls of the judge's role for each candidate, at most `max_tokens` output tokens
each; the rubric and the problem are prompt tokens once, each candidate's text once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ttc.graph import Cost, Flow, is_count
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, question, solution, together
from ttc.types import Candidate, Problem, Score
from ttc.verdicts import ask, grade_on

__all__ = ["Judge", "check_asking"]

RUBRIC = (
    "Is the solution correct? Check every step and the final answer. The lowest grade is for a "
    "wrong answer, the highest for a right answer that is well founded."
)


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Grades candidates one by one; the score is the grade as a fraction of the scale."""

    remote: ClassVar[bool] = True
    needs: ClassVar[Literal["each", "all"]] = "each"
    requires: ClassVar[frozenset[str]] = frozenset()
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)

    rubric: str = RUBRIC
    """What the judge goes by. It is an instruction, so it is yours to answer for."""
    scale: tuple[int, int] = (1, 10)
    """The lowest and the highest grade, whole numbers."""
    samples: int = 1
    """Verdicts on each candidate, whose mean is the score; more than one need a temperature."""
    temperature: float = 0.0
    max_tokens: int = 512
    """The most output tokens of one verdict with its reasons."""
    role: str = "judge"
    name: str = "judge"

    def __post_init__(self) -> None:
        check_asking(
            self.rubric, self.temperature, samples=self.samples, max_tokens=self.max_tokens
        )
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"{self.samples} verdicts at temperature 0 are one; set a temperature, or samples=1"
            )
        if not _is_scale(self.scale):
            raise ValueError(f"scale is two whole numbers from 0 on, rising, not {self.scale!r}")

    @property
    def roles(self) -> frozenset[str]:
        """The role that judges."""
        return frozenset({self.role})

    def bound(self, given: Flow) -> Cost:
        """Every verdict on every candidate."""
        texts = len(self.rubric.encode()), given.text
        asked = Cost(tokens=given.lengths.call(self.role, self.max_tokens, *texts), calls=1)
        return asked * self.samples * given.count

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate."""
        work = (self._score(problem, c, scope, place) for place, c in enumerate(candidates))
        return tuple(await together(scope, work))

    async def _score(
        self, problem: Problem, candidate: Candidate, scope: Scope, place: int
    ) -> Score:
        low, high = self.scale
        asked, text = question(problem), solution(candidate)
        paragraphs = (
            f"You grade a solution to a problem. {PREAMBLE}",
            f"The rubric: {self.rubric}",
            fenced("problem", asked),
            fenced("solution", text, asked),
            "Grade the solution by the rubric. Give your reasons in a few sentences, and then a "
            f"last line of exactly this form, with N a whole number from {low} to {high}:\n"
            "Verdict: N",
        )
        verdicts = await together(
            scope,
            (
                ask(
                    scope,
                    self.role,
                    paragraphs,
                    read=grade_on(self.scale),
                    index=place * self.samples + sample,
                    max_tokens=self.max_tokens,
                    temperature=self.temperature,
                )
                for sample in range(self.samples)
            ),
        )
        known = [verdict.value for verdict in verdicts if verdict.value is not None]
        reasons = tuple(verdict.reason for verdict in verdicts if verdict.reason is not None)
        return Score(
            value=math.fsum(known) / len(known) if known else None,
            evidence={"verdicts": tuple(known), **({"unknown": reasons} if reasons else {})},
        )


def _is_scale(value: object) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return all(type(end) is int for end in value) and 0 <= value[0] < value[1]


def check_asking(rubric: object, temperature: float, **counts: int) -> None:
    """Refuses what no judge can be asked with.

    Raises:
        ValueError: an empty rubric, a temperature out of range, a count below 1.
    """
    if not isinstance(rubric, str) or not rubric.strip():
        raise ValueError(f"rubric is a text that says what to go by, not {rubric!r}")
    if isinstance(temperature, bool) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is finite and at least 0, not {temperature!r}")
    for name, value in counts.items():
        if not is_count(value):
            raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")
