"""Unit tests: whether a candidate's program passes the public tests of its problem."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ttc.ports import Scope
from ttc.sandbox.execution import Execution
from ttc.sandbox.limits import Limits
from ttc.sandbox.public import completion_of, tests_of
from ttc.types import Candidate, Problem, Score

__all__ = ["UnitTests", "scored"]

_NO_WORD = frozenset({"invalid_tests", "error"})


@dataclass(frozen=True, kw_only=True)
class UnitTests:
    """1 if the candidate's program passes every public test of the problem, else 0.

    The program is taken from the candidate's text and run in the sandbox; the tests run in a
    process of their own. Tests that say nothing of the program, and a machine that fails, give no
    score.

    How the problem says what its tests mean is told in `ttc.sandbox.public`.

    Source: functional correctness, Chen et al. 2021, arXiv 2107.03374, section 2.1.
    Differs: program and tests do not share an interpreter, so a program cannot reach its tests.
    Cost: no engine calls, one verifier call for each candidate, and the sandbox's processor time.
    """

    remote: ClassVar[bool] = True
    executes: ClassVar[bool] = True

    seconds: float = 10.0
    """Wall time for each candidate; with `stdin`, for each of its inputs."""
    memory_bytes: int = 512 << 20
    name: str = "unit_tests"
    range: tuple[float, float] | None = (0.0, 1.0)
    needs: Literal["each", "all"] = "each"
    requires: frozenset[str] = field(default=frozenset())
    roles: frozenset[str] = field(default=frozenset())

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate.

        Raises:
            VerifierError: the problem has no tests, or their form is not one of the three.
            SandboxError: code cannot be run here as safely as the run wants.
        """
        tests = tests_of(problem)
        limits = Limits(
            seconds=self.seconds, cpu_seconds=self.seconds, memory_bytes=self.memory_bytes
        )
        runs = [
            scope.execute(completion_of(problem, candidate.text), tests, limits=limits)
            for candidate in candidates
        ]
        return tuple(scored(execution, self.name) for execution in await asyncio.gather(*runs))


def scored(execution: Execution, name: str) -> Score:
    """The score that a run against tests gives, under the name of who gives it."""
    value = None if execution.verdict in _NO_WORD else float(execution.passed)
    evidence: Mapping[str, Any] = {
        "verdict": execution.verdict,
        "reason": execution.reason,
        "proof": execution.proof,
        "level": execution.level,
    }
    return Score(value=value, verifier=name, range=(0.0, 1.0), evidence=evidence)
