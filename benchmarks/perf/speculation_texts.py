"""Prompts for `speculation.py`: a few of its own, which need no data, or a task's problems."""

from __future__ import annotations

from pathlib import Path

from ttc.benchmarks.data.named import Asking, task_named
from ttc.types import Problem

__all__ = ["MATHS", "prompts"]

MATHS = [
    "Tom has 3 boxes of 12 eggs and breaks 5 eggs. How many eggs are left? Think step by step.",
    "A train runs 60 km in 45 minutes. How far does it run in 2 hours? Think step by step.",
    "Anna is 4 years older than Ben, and together they are 30. How old is Ben? Think step by step.",
    "A shirt costs 40 dollars and is 15% off. What do 3 of them cost? Think step by step.",
]
CODE = [
    "Write a Python class Stack with push, pop, peek, is_empty and size, and tests for each.",
    "Write Python functions that turn Celsius into Fahrenheit and back, and test both.",
    "Rewrite this with type hints and repeat it whole:\n\ndef total(items):\n    result = 0\n"
    "    for item in items:\n        if item.price > 0:\n"
    "            result += item.price * item.count\n"
    "    return result\n",
    "Write a Python function that parses a CSV line into fields, with quotes, and tests.",
]
OWN = {"maths": MATHS, "code": CODE}


def prompts(name: str, count: int, folder: Path | None) -> list[Problem]:
    """The first prompts of `maths` or `code`, or of a task; those of our own go round.

    Args:
        name: of the texts.
        count: how many.
        folder: where a task's file is looked for first.
    """
    if name in OWN:
        texts = OWN[name] * (count // len(OWN[name]) + 1)
        return [Problem.ask(text) for text in texts[:count]]
    folders = () if folder is None else (folder,)
    task = task_named(name, Asking(limit=count, folders=folders))
    return [item.problem for item in task.items]
