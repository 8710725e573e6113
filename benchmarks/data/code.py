"""HumanEval as it is asked: as a question for a chat, or as code to go on with.

Hidden tests only grade. What the docstring shows of the function is public: a verifier may run it,
and a table tells for how many problems there was any.
"""

from __future__ import annotations

import ast
import doctest
from dataclasses import replace

from ttc.benchmarks.data.prompts import Style
from ttc.benchmarks.hidden_tests import human_eval
from ttc.benchmarks.tasks import Item, Task
from ttc.types import Message

__all__ = ["human_eval_asked", "public_examples"]

_ASK = "Complete this function. Answer with one block of Python that holds all of it.\n\n"


def human_eval_asked(style: Style) -> Task:
    """All problems of HumanEval, each with the examples of its docstring as public tests."""
    task = human_eval()
    items = tuple(_asked(item, style) for item in task.items)
    return replace(task, items=items, source="the package human-eval")


def public_examples(prompt: str, entry_point: str) -> tuple[str, ...]:
    """Assertions out of the examples of a docstring, as far as both sides can be told apart.

    Args:
        prompt: code that ends in the docstring.
        entry_point: the function that is asked for; an example that never calls it is left out.
    """
    try:
        examples = doctest.DocTestParser().get_examples(prompt)
    except ValueError:  # a docstring that only looks like a session
        return ()
    shown = (_assertion(e.source.strip(), e.want.strip(), entry_point) for e in examples)
    return tuple(assertion for assertion in shown if assertion)


def _assertion(call: str, want: str, entry_point: str) -> str:
    try:
        tree = ast.parse(call, mode="eval")
        value = ast.literal_eval(want.removesuffix('"""').strip())
    except (ValueError, SyntaxError):
        return ""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return f"assert {call} == {value!r}" if entry_point in names else ""


def _asked(item: Item, style: Style) -> Item:
    problem = item.problem
    prompt = problem.prompt or ""
    tests = public_examples(prompt, problem.metadata["entry_point"])
    metadata = {**problem.metadata, "code_prompt": prompt}
    if style == "plain":
        return Item(replace(problem, tests=tests, metadata=metadata), item.reference)
    message = Message(role="user", content=f"{_ASK}```python\n{prompt}\n```")
    asked = replace(problem, prompt=None, messages=(message,), tests=tests, metadata=metadata)
    return Item(asked, item.reference)
