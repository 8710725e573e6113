"""What is public: names, their order, and what they are."""

import ast
import inspect
import types

import pytest

import ttc
from tests.meta.tree import Function, Source, library
from ttc import errors

MAX_NAMES = 30

MUTABLE = {
    "ttc.engine.local.meter.Counters": "the engine's own thread counts in it",
    "ttc.engine.local.meter.Meter": "the engine's own thread measures with it",
    "ttc.engine.local.schedule.Work": "one step adds its pieces up in it",
    "ttc.serve.job.Job": "one request notes on it what it has used",
    "ttc.strategies.comparing.Entry": "one run of one node notes verdicts on it",
    "ttc.strategies.refinement.Versions": "one run of one node adds versions to it",
}
"""Public dataclasses that may change, as `module.Name`, each with its reason."""


def _rank(name: str) -> tuple[int, str]:
    """Constants first, then classes, then functions; within each by name."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def _defined(source: Source) -> set[str]:
    """Every name that a module binds at its top level."""
    names: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_ttc_exports_few_names_and_all_of_them_exist() -> None:
    """What does not fit into thirty names belongs into a module of its own."""
    assert len(ttc.__all__) <= MAX_NAMES
    assert [name for name in ttc.__all__ if not hasattr(ttc, name)] == []


def test_ttc_exports_everything_public_that_it_holds() -> None:
    """A name that is there by accident is a promise by accident."""
    held = {
        name
        for name, value in vars(ttc).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "").startswith("ttc")
    }

    assert held <= set(ttc.__all__)


def test_every_export_list_is_sorted_without_doubles() -> None:
    """So that two changes to it seldom meet."""
    wrong = [
        source.path
        for source in library()
        if source.public is not None
        and list(source.public) != sorted(set(source.public), key=_rank)
    ]

    assert wrong == []


def test_every_exported_name_is_defined() -> None:
    """An `__all__` that lies breaks `import *` and every reader's search."""
    wrong = [
        f"{source.path}: {name}"
        for source in library()
        for name in source.public or ()
        if name not in _defined(source)
    ]

    assert wrong == []


def test_every_module_that_defines_something_says_what_is_public() -> None:
    """Whatever is not listed may change without notice."""
    wrong = [
        source.path
        for source in library()
        if source.public is None
        and any(
            isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
            for node in source.tree.body
        )
    ]

    assert wrong == []


def test_public_dataclasses_are_frozen() -> None:
    """Values are shared between tasks and threads."""
    mutable = {
        f"{source.module}.{node.name}"
        for source in library()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and node.name in (source.public or ())
        for decorator in map(ast.unparse, node.decorator_list)
        if decorator.startswith("dataclass") and "frozen=True" not in decorator
    }

    assert sorted(mutable - set(MUTABLE)) == []
    assert sorted(set(MUTABLE) - mutable) == [], "take these off the list"


def _drawing(error: type[BaseException], indent: str = "") -> list[str]:
    """The tree below a class, as `ttc.errors` draws it."""
    children = [child for child in error.__subclasses__() if child.__module__ == "ttc.errors"]
    lines: list[str] = []
    for child in children:
        is_last = child is children[-1]
        lines.append(indent + ("└── " if is_last else "├── ") + child.__name__)
        lines += _drawing(child, indent + ("    " if is_last else "│   "))
    return lines


def test_the_tree_of_errors_is_as_drawn() -> None:
    """The drawing is the first thing that one reads of them."""
    drawing = "\n".join(["TTCError", *_drawing(errors.TTCError)])

    assert drawing in inspect.cleandoc(errors.__doc__ or "").replace("\n    ", "\n")


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_in_the_tree_and_each_branch_of_it_is_exported(name: str) -> None:
    """One `except TTCError` catches all that ttc raises on purpose."""
    error = getattr(errors, name)

    assert issubclass(error, errors.TTCError)
    assert (name in ttc.__all__) == (error in (errors.TTCError, *errors.TTCError.__subclasses__()))
