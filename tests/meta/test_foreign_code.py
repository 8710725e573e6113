"""Where the library may run code, or read data that can become code: in the jail alone."""

from __future__ import annotations

import ast

import pytest

from tests.meta.tree import Source, library

IN_THE_JAIL = {
    "ttc.sandbox.candidate": "the program itself, in its own process",
    "ttc.sandbox.judge": "tests, in a process of their own",
}
"""Modules that run code, each with the reason."""

RUNS_CODE = {"eval", "exec", "compile", "__import__"}
READS_CODE = {"pickle.loads", "pickle.load", "marshal.loads", "yaml.load", "sympy.sympify"}


def _runs_code(source: Source) -> list[str]:
    """The calls in a module that turn text or bytes into running code."""
    found = []
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in RUNS_CODE:
            found.append(called.id)
        elif ast.unparse(called) in READS_CODE:
            found.append(ast.unparse(called))
    return found


@pytest.mark.parametrize("source", library(), ids=lambda source: source.module)
def test_code_runs_in_the_jail_alone(source: Source) -> None:
    """Text of a model is never run by whoever scores it."""
    if source.module not in IN_THE_JAIL:
        assert _runs_code(source) == []


def test_the_list_of_exceptions_only_shrinks() -> None:
    """A module that is on it needs it."""
    needing = {source.module for source in library() if _runs_code(source)}
    assert needing >= set(IN_THE_JAIL)
