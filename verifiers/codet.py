"""CodeT: programs and generated tests that vouch for each other.

Source: Chen et al. 2022, arXiv 2207.10397, section 3.2, dual execution agreement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal

from ttc.errors import EngineError, VerifierError
from ttc.flow import Cost, Flow
from ttc.ports import Scope
from ttc.prompts import PREAMBLE, fenced, prompt, question, together
from ttc.sandbox.extraction import Completion
from ttc.sandbox.forms import GeneratedTests
from ttc.sandbox.limits import Limits
from ttc.types import Branch, Candidate, Problem, Sampling, Score
from ttc.verifiers.confidence import unknown
from ttc.verifiers.text import passage

__all__ = ["CodeT", "agreement", "written_tests"]

_MAX_CHARACTERS = 500
"""The longest test that is taken."""


def agreement(
    passed: Sequence[Sequence[bool | None]], *, power: float = 1.0
) -> tuple[float | None, ...]:
    """How far each program's kind and the tests that it passes vouch for each other.

    Programs that pass the very same tests are of one kind. A kind is worth the number of its
    programs times the number of its tests, as a share of all programs and tests: neither tests that
    pass everything nor an odd program that passes by luck is trusted alone.

    Args:
        passed: (programs, tests) whether each passes; `None` where that could not be found out.
        power: of the number of programs. The paper's formula has 1; below it, tests count more.

    Returns:
        A number from 0 to 1 for each program; `None` where a verdict is missing, and without tests.
    """
    if power <= 0:
        raise ValueError(f"power is above 0, not {power}")
    rows = [tuple(row) for row in passed]
    num_tests = len(rows[0]) if rows else 0
    if any(len(row) != num_tests for row in rows):
        raise ValueError("every program has a verdict, or None, on every test")
    known = [row for row in rows if None not in row]
    kinds = Counter(known)
    return tuple(
        None
        if None in row or not num_tests
        else (kinds[row] / len(known)) ** power * sum(map(bool, row)) / num_tests
        for row in rows
    )


@dataclass(frozen=True, kw_only=True)
class CodeT:
    """Scores programs by tests that a model writes, and tests by the programs that pass them.

    Tests are asked for without any program in sight. Each program runs each test in the sandbox; a
    program is worth its kind's share times its tests' share, as `agreement` tells. The problem's
    `metadata` says in `entry_point` which function is asked for.

    Source: Chen et al. 2022, arXiv 2207.10397.
    Cost: `samples` calls of at most `max_tokens`; the sandbox's time for every distinct program;
    one verifier call for each candidate.
    """

    remote: ClassVar[bool] = True
    executes: ClassVar[bool] = True
    range: ClassVar[tuple[float, float] | None] = (0.0, 1.0)
    needs: ClassVar[Literal["each", "all"]] = "all"
    requires: ClassVar[frozenset[str]] = frozenset()

    role: str = "policy"
    """The model that writes tests."""
    samples: int = 4
    """How many lists of tests it writes."""
    tests: int = 8
    """The most tests that are taken of one list."""
    temperature: float = 0.8
    max_tokens: int = 512
    power: float = 1.0
    """See `agreement`."""
    seconds: float = 10.0
    """Wall time of one program with all tests."""
    memory_bytes: int = 512 << 20
    name: str = "code_t"

    def __post_init__(self) -> None:
        if min(self.samples, self.tests, self.max_tokens) < 1 or self.power <= 0:
            raise ValueError(
                f"samples ({self.samples}), tests ({self.tests}) and max_tokens "
                f"({self.max_tokens}) are at least 1, and power ({self.power}) is above 0"
            )

    @property
    def roles(self) -> frozenset[str]:
        """The role that writes tests."""
        return frozenset({self.role})

    def bound(self, given: Flow) -> Cost:
        """Its lists of tests, however many candidates they judge."""
        asked = Cost(tokens=given.lengths.call(self.role, self.max_tokens), calls=1)
        return asked * self.samples

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], scope: Scope
    ) -> tuple[Score, ...]:
        """One score for each candidate.

        Raises:
            VerifierError: the problem names no function.
            SandboxError: code cannot be run here as safely as the run wants.
        """
        entry_point = problem.metadata.get("entry_point")
        if not isinstance(entry_point, str):
            raise VerifierError(
                f"tests of {problem.id!r} need the name of the function that is asked for: "
                f"metadata={{'entry_point': ...}}, not {entry_point!r}"
            )
        tests = await self._tests(problem, entry_point, scope)
        if not tests:
            return (unknown("no test was written"),) * len(candidates)
        texts = [passage(candidate, "text") for candidate in candidates]
        distinct = list(dict.fromkeys(text for text in texts if text is not None))
        runs = [self._passed(problem, entry_point, text, tests, scope) for text in distinct]
        passed = dict(zip(distinct, await together(scope, runs), strict=True))
        rows = [passed[text] for text in texts if text is not None]
        values = iter(agreement(rows, power=self.power))
        return tuple(
            unknown("it has no text") if text is None else _score(next(values), passed[text])
            for text in texts
        )

    async def _tests(self, problem: Problem, entry_point: str, scope: Scope) -> tuple[str, ...]:
        """Distinct tests, in the order in which they were asked for."""
        root = prompt(
            scope,
            self.role,
            PREAMBLE,
            fenced("PROBLEM", question(problem)),
            f"Write up to {self.tests} tests for the function {entry_point} that solves the "
            "problem. Write no solution. Each test is one line of the form: "
            f"assert {entry_point}(arguments) == expected",
        )
        lists = await together(
            scope, [self._list(root, entry_point, scope, index) for index in range(self.samples)]
        )
        return tuple(dict.fromkeys(chain.from_iterable(lists)))

    async def _list(
        self, root: Branch, entry_point: str, scope: Scope, index: int
    ) -> tuple[str, ...]:
        try:
            branch = await scope.generate(
                root,
                index=index,
                max_tokens=self.max_tokens,
                sampling=Sampling(temperature=self.temperature),
            )
        except EngineError:
            return ()
        is_cut = branch.finish_reason == "length"
        return written_tests(branch.output, entry_point, is_cut=is_cut)[: self.tests]

    async def _passed(
        self,
        problem: Problem,
        entry_point: str,
        text: str,
        tests: tuple[str, ...],
        scope: Scope,
    ) -> tuple[bool | None, ...]:
        code_prompt = problem.metadata.get("code_prompt", problem.prompt or "")
        execution = await scope.execute(
            Completion(text=text, prompt=code_prompt, entry_point=entry_point),
            GeneratedTests(tests=tests, entry_point=entry_point),
            limits=Limits(
                seconds=self.seconds, cpu_seconds=self.seconds, memory_bytes=self.memory_bytes
            ),
        )
        if execution.verdict in ("error", "invalid_tests"):
            return (None,) * len(tests)
        if len(execution.results) != len(tests):
            return (False,) * len(tests)  # it ended, or was ended, before the first test
        return tuple(execution.results)


def written_tests(text: str, entry_point: str, *, is_cut: bool) -> tuple[str, ...]:
    """The tests in a model's text: lines `assert ...` that call the function.

    Args:
        text: what the model wrote; what it thought before `</think>` does not count.
        entry_point: the function.
        is_cut: whether the text was cut, so that its last line is not whole.
    """
    lines = text.rpartition("</think>")[2].splitlines()
    if is_cut and not text.endswith("\n"):
        lines = lines[:-1]
    call = re.compile(rf"assert\b.*\b{re.escape(entry_point)}\(.{{0,{_MAX_CHARACTERS}}}")
    stripped = (line.strip() for line in lines if len(line) <= _MAX_CHARACTERS)
    return tuple(dict.fromkeys(line for line in stripped if call.fullmatch(line)))


def _score(value: float | None, passed: Sequence[bool | None]) -> Score:
    if value is None:
        return unknown("its tests could not be run")
    return Score(value=value, evidence={"passed": sum(map(bool, passed)), "tests": len(passed)})
