"""What nobody may do: leave a stream by `break`, or hold tasks or a timeout across `yield`."""

import ast
import textwrap
from collections.abc import Iterator

import pytest

from tests.meta.tree import Function, everything, own_nodes

Loop = ast.For | ast.AsyncFor | ast.While
HELD = ("TaskGroup", "timeout", "timeout_at", "CancelScope", "open_nursery", "fail_after")
"""What ties tasks to a block (PEP 789); a generator that is left inside one breaks it."""


def breaks_out_of_streams(tree: ast.AST) -> Iterator[int]:
    """The lines of every `break` whose loop is an `async for`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFor):
            yield from (child.lineno for child in _of_this_loop(node.body))


def _of_this_loop(body: list[ast.stmt]) -> Iterator[ast.Break]:
    for statement in body:
        if isinstance(statement, ast.Break):
            yield statement
        elif isinstance(statement, Loop):
            yield from _of_this_loop(statement.orelse)
        elif not isinstance(statement, Function | ast.ClassDef):
            for child in ast.iter_child_nodes(statement):
                yield from _of_this_loop(_statements(child))


def _statements(node: ast.AST) -> list[ast.stmt]:
    """A statement, or those inside a handler of exceptions or a case of `match`."""
    if isinstance(node, ast.stmt):
        return [node]
    return getattr(node, "body", []) if isinstance(node, ast.ExceptHandler | ast.match_case) else []


def yields_inside_scopes(tree: ast.AST) -> Iterator[int]:
    """The lines of every `yield` of an async generator inside a block that ties tasks to it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.AsyncFunctionDef):
            continue
        for block in own_nodes(node):
            if _holds(block):
                yield from (c.lineno for c in own_nodes(block) if isinstance(c, ast.Yield))


def _holds(block: ast.AST) -> bool:
    if isinstance(block, ast.AsyncWith):
        return True
    items = block.items if isinstance(block, ast.With) else []
    return any(name in ast.unparse(item.context_expr) for item in items for name in HELD)


def test_nobody_breaks_out_of_a_stream() -> None:
    """It cancels nothing upstream; `stop()` does."""
    wrong = [f"{s.path}:{line}" for s in everything() for line in breaks_out_of_streams(s.tree)]

    assert wrong == []


def test_nobody_holds_tasks_or_a_timeout_across_a_yield() -> None:
    """A generator that is left there has its tasks cancelled by somebody else, or never."""
    wrong = [f"{s.path}:{line}" for s in everything() for line in yields_inside_scopes(s.tree)]

    assert wrong == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("async for a in b:\n  break", [2]),
        ("async for a in b:\n  if a:\n    break", [3]),
        ("async for a in b:\n  try:\n    c()\n  except E:\n    break", [5]),
        ("async for a in b:\n  for c in d:\n    break", []),
        ("async for a in b:\n  for c in d:\n    pass\n  else:\n    break", [5]),
        ("for a in b:\n  async for c in d:\n    pass\n  break", []),
    ],
)
def test_a_break_is_that_of_its_innermost_loop(code: str, lines: list[int]) -> None:
    """Only those are found that leave a stream."""
    tree = _in_a_function(code)

    assert [line - 1 for line in breaks_out_of_streams(tree)] == lines


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("async with asyncio.TaskGroup() as g:\n  yield 1", 1),
        ("with trio.fail_after(1):\n  for a in b:\n    yield a", 1),
        ("async with asyncio.timeout(1):\n  await a()\nyield 1", 0),
        ("async with lock:\n  async def g():\n    yield 1", 0),
        ("with open(a) as b:\n  yield b", 0),
    ],
)
def test_a_yield_counts_in_its_own_function_only(code: str, count: int) -> None:
    """Only those are found that hold tasks or a timeout."""
    tree = _in_a_function(code)

    assert len(list(yields_inside_scopes(tree))) == count


def _in_a_function(code: str) -> ast.Module:
    return ast.parse("async def f():\n" + textwrap.indent(code, " "))
