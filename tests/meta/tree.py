"""The source tree, as the house rules read it: by `ast`, so that nothing needs to be imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("strategies", "verifiers", "engine", "benchmarks")
"""The folders beside `ttc/`; each is imported as `ttc.<room>`."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Import(NamedTuple):
    """One module that a file imports."""

    module: str
    line: int
    when: str
    """`import`: with the module; `call`: inside a function; `typing`: for type checkers only."""


@dataclass(frozen=True)
class Source:
    """One Python file."""

    path: str
    """From the root of the repository, through no link."""

    @cached_property
    def text(self) -> str:
        """What is written in it."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text, self.path)

    @cached_property
    def room(self) -> str:
        """The folder at the root that it lies in."""
        return self.path.partition("/")[0]

    @cached_property
    def module(self) -> str:
        """The name under which it is imported."""
        name = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return f"ttc.{name}" if self.room in ROOMS else name

    @cached_property
    def public(self) -> tuple[str, ...] | None:
        """Its `__all__`; `None` where it has none."""
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                return tuple(ast.literal_eval(statement.value))
        return None

    @cached_property
    def docstrings(self) -> str:
        """The docstrings of the module and its classes."""
        nodes = ast.walk(self.tree)
        owners = (node for node in nodes if isinstance(node, ast.Module | ast.ClassDef))
        return "\n".join(filter(None, map(ast.get_docstring, owners)))

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Every function, with its dotted name."""
        yield from _functions(self.tree, "")

    def imports(self) -> Iterator[Import]:
        """Every module that is imported; of `from a import b` both `a` and `a.b`."""
        yield from imports_of(self.tree)


def library() -> list[Source]:
    """What is shipped: `ttc/` and the rooms, less the engine's benchmarks."""
    return [s for s in everything() if s.room in ("ttc", *ROOMS) and not is_local(s.path)]


def everything() -> list[Source]:
    """Every Python file that belongs to the project."""
    return [
        Source(path.relative_to(ROOT).as_posix())
        for folder in ("ttc", *ROOMS, "tests", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents)
    ]


def is_local(path: str) -> bool:
    """Whether a path lies in a folder that is a part of the repository alone."""
    return path.startswith(("benchmarks/perf/", "benchmarks/results/"))


def imports_of(tree: ast.Module) -> Iterator[Import]:
    """Every module that some code imports; of `from a import b` both `a` and `a.b`."""
    yield from _imports(tree, "import")


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What lies in a function or loop, less what lies in functions inside it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, Function | ast.Lambda | ast.ClassDef):
            yield from own_nodes(child)


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(tree):
        name = prefix
        if isinstance(child, Function | ast.ClassDef):
            name = f"{prefix}.{child.name}" if prefix else child.name
        if isinstance(child, Function):
            yield name, child
        yield from _functions(child, name)


def _imports(tree: ast.AST, when: str) -> Iterator[Import]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, when) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = "." * child.level + (child.module or "")
            yield Import(base, child.lineno, when)
            yield from (Import(f"{base}.{a.name}", child.lineno, when) for a in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imports(child, "typing")
        else:
            inside = "call" if isinstance(child, Function) and when == "import" else when
            yield from _imports(child, inside)
