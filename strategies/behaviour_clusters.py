"""BehaviourClusters: of programs that pass most, one of the largest group that behaves alike.

Source: Li et al. 2022, arXiv 2203.07814 (AlphaCode), section 4.4: filtering by public tests, then
clusters by behaviour; S*, Li et al. 2025, arXiv 2502.14382, section 3.2.
Differs: inputs are those of the public tests, and none is generated. Where tests give an input, it
is the outputs that are compared; else which tests hold.
Cost: no calls; a run in the sandbox for each test of each distinct program.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

from ttc.errors import TTCError, VerifierError
from ttc.graph import Flow, Node, Port
from ttc.ports import Scope, Stream
from ttc.prompts import solution
from ttc.sandbox.execution import Execution
from ttc.sandbox.forms import StandardIO, Tests
from ttc.sandbox.limits import Limits
from ttc.sandbox.public import completion_of, tests_of
from ttc.strategies.calls import Calls
from ttc.strategies.tally import distinct
from ttc.types import Candidate, Problem

__all__ = ["BehaviourClusters"]


class _Behaviour(NamedTuple):
    """What a program does on the public tests."""

    passed: int
    """Tests that hold."""
    shown: Hashable
    """What programs that behave alike share."""


@dataclass(frozen=True, kw_only=True)
class BehaviourClusters(Node):
    """Picks the first program of the largest cluster among those that pass most public tests.

    Its confidence is the cluster's share of all candidates. Without public tests, programs with one
    text are alike.
    """

    remote: ClassVar[bool] = True
    executes: ClassVar[bool] = True
    gives: ClassVar[Port] = Port("finished", "one")
    selects: ClassVar[bool] = True

    seconds: float = 10.0
    """Wall time of a run."""

    def faults(self, given: Flow) -> list[str]:
        """No time to run in."""
        try:
            Limits(seconds=self.seconds)
        except (TypeError, ValueError) as error:
            return [str(error)]
        return []

    async def run(
        self, candidates: Stream[Candidate], scope: Scope
    ) -> AsyncGenerator[Candidate, None]:
        """Reads everything, runs every program, and yields the choice."""
        seen = distinct([candidate async for candidate in candidates])
        eligible = [c for c in seen if c.key is not None and c.status in ("finished", "truncated")]
        if not eligible:
            scope.decide("no_valid_answer", num_samples=len(seen))
            return
        calls = Calls(scope)
        told = await self._behaviours([solution(c) for c in eligible], calls, scope)
        clusters: dict[_Behaviour, list[Candidate]] = {}
        for candidate in eligible:
            clusters.setdefault(told[solution(candidate)], []).append(candidate)
        best = max(clusters, key=lambda behaviour: (behaviour.passed, len(clusters[behaviour])))
        scope.decide("clustered", end=False, sizes=tuple(map(len, clusters.values())))
        share = len(clusters[best]) / len(seen) if len(seen) > 1 else None
        yield replace(clusters[best][0], confidence=share)
        calls.end()

    async def _behaviours(
        self, texts: Sequence[str], calls: Calls, scope: Scope
    ) -> dict[str, _Behaviour]:
        """What each distinct program does."""
        different = list(dict.fromkeys(texts))
        try:
            tests = [tests_of(part) for part in _parts(scope.problem)]
        except VerifierError as fault:
            scope.decide("no_public_tests", end=False, error=str(fault))
            return {text: _Behaviour(0, text) for text in different}
        limits = Limits(seconds=self.seconds, cpu_seconds=self.seconds)
        found = await calls.settled(
            partial(scope.execute, completion_of(scope.problem, text), test, limits=limits)
            for text in different
            for test in tests
        )
        rows = [found[n : n + len(tests)] for n in range(0, len(found), len(tests))]
        return {t: _behaviour(row, tests) for t, row in zip(different, rows, strict=True)}


def _parts(problem: Problem) -> list[Problem]:
    """A problem for each of the tests; code that defines a check is one test."""
    if problem.metadata.get("test_form") == "check" or not problem.tests:
        return [problem]
    return [replace(problem, tests=(test,)) for test in problem.tests]


def _behaviour(row: Sequence[Execution | TTCError], tests: Sequence[Tests]) -> _Behaviour:
    passed, shown = 0, []
    for execution, test in zip(row, tests, strict=True):
        if isinstance(execution, TTCError):
            shown.append(("refused", ""))
            continue
        output = execution.output if isinstance(test, StandardIO) else ""
        passed += execution.passed
        shown.append((execution.verdict, output.strip()))
    return _Behaviour(passed, tuple(shown))
