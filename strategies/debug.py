"""Debug: programs are run against the public tests, and mended by what came of it.

Source: Chen et al. 2023, arXiv 2304.05128, self-debugging with the feedback of unit tests; the
first stage of S*, Li et al. 2025, arXiv 2502.14382.
Differs: a program that passes is never touched again, and of programs that fail the first stands.
Cost: for each candidate at most `rounds` calls of at most `max_tokens`, and a run in the sandbox
for each version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from ttc.errors import TTCError, VerifierError
from ttc.graph import Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, question, solution
from ttc.sandbox.execution import Execution
from ttc.sandbox.limits import Limits
from ttc.sandbox.public import completion_of, tests_of
from ttc.strategies.calls import Calls
from ttc.strategies.refinement import Refinement, Versions, shown
from ttc.types import Candidate, Score

__all__ = ["Debug", "run_public_tests"]

_SCORE = "public_tests"
_MOST_SHOWN = 1_000


@dataclass(frozen=True, kw_only=True)
class Debug(Refinement):
    """Repair from execution feedback. Its score `public_tests` is 1 for a program that passes."""

    remote: ClassVar[bool] = True
    executes: ClassVar[bool] = True
    asks_feedback: ClassVar[bool] = False

    seconds: float = 10.0
    """Wall time of a run; with tests by standard input, for each input."""

    @property
    def score_name(self) -> str:
        """Its own."""
        return _SCORE

    def flow(self, given: Flow) -> Flow:
        """As many, each with the score."""
        return replace(super().flow(given), scores={_SCORE: (0.0, 1.0)})

    def shows(self, version: int | None, note: int | None) -> tuple[int | None, ...]:
        """A program, and four things that came of it."""
        return version, *[4 * _MOST_SHOWN] * 4

    def is_enough(self, candidate: Candidate) -> bool:
        """Whether it passes."""
        return self.value(candidate) == 1.0

    async def scored(
        self, candidates: Sequence[Candidate], calls: Calls, scope: Scope
    ) -> list[Candidate]:
        """Programs with what came of running them."""
        try:
            tests_of(scope.problem)
        except VerifierError as fault:
            score = Score(value=None, verifier=_SCORE, evidence={"error": str(fault)})
            return [replace(c, scores={_SCORE: score}) for c in candidates]
        runs = [partial(run_public_tests, scope, c, self.seconds) for c in candidates]
        found = await calls.settled(runs)
        return [
            replace(candidate, scores={_SCORE: _score(execution)})
            for candidate, execution in zip(candidates, found, strict=True)
        ]

    def revision_of(self, chain: Versions, scope: Scope) -> tuple[str, ...]:
        """The program, the tests, and what came of them."""
        problem, evidence = scope.problem, chain.latest.scores[_SCORE].evidence
        texts = (question(problem), solution(chain.latest))
        told = [(name, str(value)[-_MOST_SHOWN:]) for name, value in evidence.items() if value]
        return (
            f"You mend a program. {PREAMBLE}",
            *shown(scope, chain.latest),
            fenced("tests", "\n".join(problem.tests), *texts),
            *(fenced(f"result: {name}", value, *texts) for name, value in told),
            "Say in a few sentences what is wrong. Then write the whole program, right, in one "
            "block of code.",
        )


async def run_public_tests(scope: Scope, candidate: Candidate, seconds: float) -> Execution:
    """What came of a candidate's program on the public tests.

    Raises:
        VerifierError: the problem has none.
        SandboxError: code cannot be run here as safely as the run wants.
    """
    return await scope.execute(
        completion_of(scope.problem, solution(candidate)),
        tests_of(scope.problem),
        limits=Limits(seconds=seconds, cpu_seconds=seconds),
    )


def _score(execution: Execution | TTCError) -> Score:
    if isinstance(execution, TTCError):
        return Score(value=None, verifier=_SCORE, evidence={"error": str(execution)})
    has_no_word = execution.verdict in ("invalid_tests", "error")
    return Score(
        value=None if has_no_word else float(execution.passed),
        verifier=_SCORE,
        evidence={
            "verdict": execution.verdict,
            "reason": execution.reason,
            "output": execution.output,
            "errors": execution.errors,
        },
    )
