"""Files and functions stay small. The lists below only shrink."""

import ast

from tests.meta.tree import Function, everything

MAX_FILE_LINES = 500
MAX_BODY_LINES = 50

LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with its reason."""

LONG_BODIES: dict[str, str] = {}
"""Functions that may be longer, as `path:name`, each with its reason."""


def test_no_file_is_longer_than_500_lines() -> None:
    """A file that is on the list must need it, so that the list only shrinks."""
    long = {s.path: n for s in everything() if (n := s.text.count("\n")) > MAX_FILE_LINES}

    assert {path: n for path, n in long.items() if path not in LONG_FILES} == {}
    assert [path for path in LONG_FILES if path not in long] == [], "take these off the list"


def test_no_function_body_is_longer_than_50_lines() -> None:
    """Counted from the first statement after the docstring to the last line."""
    long = {
        f"{source.path}:{name}": lines
        for source in everything()
        for name, function in source.functions()
        if (lines := _body_lines(function)) > MAX_BODY_LINES
    }

    assert {name: n for name, n in long.items() if name not in LONG_BODIES} == {}
    assert [name for name in LONG_BODIES if name not in long] == [], "take these off the list"


def test_every_exception_has_a_reason() -> None:
    """A list without reasons grows."""
    assert all(len(reason) > 10 for reason in (LONG_FILES | LONG_BODIES).values())


def _body_lines(function: Function) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
