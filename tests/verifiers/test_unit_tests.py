"""Programs of candidates, against the public tests of their problem."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import pytest

import ttc
from ttc.errors import SandboxError
from ttc.sandbox.sandbox import Sandbox
from ttc.strategies import Best, Sample
from ttc.testing import FakeEngine
from ttc.verifiers import UnitTests

if sys.platform != "linux":
    pytest.skip("the jail needs Linux", allow_module_level=True)

RIGHT = "Here:\n```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return a - b\n```"
EXITS = "```python\nimport os\nos._exit(0)\n```"
STRATEGY = Sample(n=3, max_tokens=64) >> UnitTests(seconds=5) >> Best()


def problem(*tests: str, **metadata: Any) -> ttc.Problem:
    asked = ttc.Problem.ask("Write add(a, b).", id="add", answer_format="text")
    return replace(asked, tests=tests, metadata=metadata)


def solved(text: str, asked: ttc.Problem, **options: Any) -> ttc.Outcome:
    return ttc.solve(asked, STRATEGY, model=FakeEngine([text]), seed=0, **options)


def score(text: str, asked: ttc.Problem) -> ttc.Score:
    return solved(text, asked).candidates[0].scores["unit_tests"]


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        (problem("assert add(1, 2) == 3", "assert add(2, 2) == 4"), RIGHT, WRONG),
        (
            problem(
                "def check(candidate):\n    assert candidate(1, 2) == 3",
                test_form="check",
                entry_point="add",
                code_prompt="def add(a, b):\n    '''Adds.'''\n",
            ),
            "    return a + b",
            "    return a - b",
        ),
        (
            problem(json.dumps(["1 2", "3"]), test_form="stdin"),
            "```python\nprint(sum(map(int, input().split())))\n```",
            "```python\nprint(4)\n```",
        ),
    ],
)
def test_a_program_that_passes_every_test_scores_one(
    asked: ttc.Problem, right: str, wrong: str
) -> None:
    """In each of the three forms; one that does not scores zero."""
    assert score(right, asked).value == 1.0
    assert score(wrong, asked).value == 0.0


def test_the_best_of_several_is_one_that_passes() -> None:
    """And the evidence tells what happened, and at which level."""
    model = FakeEngine([WRONG, EXITS, RIGHT])
    strategy = Sample(n=12, max_tokens=64) >> UnitTests(seconds=5) >> Best()
    outcome = ttc.solve(problem("assert add(1, 2) == 3"), strategy, model=model, seed=1)

    assert outcome.candidate is not None
    assert outcome.candidate.text == RIGHT
    assert {c.scores["unit_tests"].value for c in outcome.candidates} == {0.0, 1.0}
    assert outcome.candidate.scores["unit_tests"].evidence["level"] in {"full", "restricted"}
    assert outcome.usage.verifier_calls == 12


def test_tests_that_say_nothing_give_no_score() -> None:
    """Unknown is not wrong, and not right either."""
    given = score(RIGHT, problem("def test():\n    assert add(1, 2) == 3"))

    assert given.value is None
    assert given.evidence["verdict"] == "invalid_tests"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (problem(), "has no public tests"),
        (problem("assert 1", test_form="doctest"), "the form 'doctest'; it is asserts, check or"),
        (problem("def check(c): pass", test_form="check"), "needs the name of the function"),
        (problem("1 2", test_form="stdin"), "is no JSON pair of input and output: '1 2'"),
    ],
)
def test_tests_in_no_known_form_give_no_score_and_say_why(asked: ttc.Problem, message: str) -> None:
    """The fault stands in the evidence."""
    assert message in score(RIGHT, asked).evidence["error"]


def test_without_a_jail_the_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on with unknown scores; `none` by name runs all the same."""
    refusing = SandboxError('no jail here; pass sandbox="none"')

    async def start(kind: str, sandbox: str = "auto") -> None:
        raise refusing

    asked = problem("assert add(1, 2) == 3")
    assert solved(RIGHT, asked, sandbox="none").candidates[0].scores["unit_tests"].value == 1.0
    monkeypatch.setattr("ttc.sandbox.zygote.Zygote.start", start)
    monkeypatch.setattr("ttc.program_call.shared", Sandbox)  # one that has not been started
    with pytest.raises(ttc.NodeError, match='pass sandbox="none"'):
        solved(RIGHT, asked)


def test_the_public_tests_of_a_problem_are_all_that_it_sees() -> None:
    """Two runs with one seed have equal traces, programs included."""
    asked = problem("assert add(1, 2) == 3")
    first, second = (solved(RIGHT, asked) for _ in range(2))

    assert first.trace == second.trace
    executions = [record for record in first.trace if record.kind == "execution"]
    assert [record.detail["verdict"] for record in executions] == ["passed"] * 3
    assert first.timing_dependent == ()
