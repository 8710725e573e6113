"""From what a model wrote to a program: fences, prose, and the prompt that it goes on from.

Parsing decides, not stop words: a text that defines the entry point is a whole program, one that
does not is a body that goes on where the prompt ends. The prompt always comes first, so its imports
and helpers are there. Nothing is indented anew: a body without its indentation stays wrong.

Parsing text that nobody has read can end the process, so this runs in the jail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["Completion", "extract_program", "program_of"]

_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<language>[\w.+-]*)[^\n]*\n"
    r"(?P<code>.*?)(?:^[ \t]*(?P=mark)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PYTHON = frozenset({"", "python", "py", "python3", "python2", "pycon"})
_STATEMENT = re.compile(r"^(?:def|class|import|from|async|@|if __name__)\b|^@", re.MULTILINE)
_DEFINITIONS = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign,
    ast.AnnAssign,
)  # fmt: skip
_MOST_CUTS = 200


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a model wrote, and what it was to complete."""

    text: str
    prompt: str = ""
    """Code that the model went on from; empty where it was asked in words."""
    entry_point: str | None = None
    """The function that it was to write; `None` for a script."""


def extract_program(completion: Completion) -> str:
    """The program in a completion. It may be no program at all: running it tells."""
    prompt, name = completion.prompt, completion.entry_point
    blocks = list(_blocks(completion.text))
    whole = [block for block in blocks if _defines(block, name)]
    if whole:
        chosen = len(blocks) - 1 - blocks[::-1].index(whole[-1])
        helpers = [block for block in blocks[:chosen] if _only_defines(block)]
        return _joined(prompt, *helpers, blocks[chosen])
    bodies = [*blocks, completion.text]
    if prompt and name is not None:
        for body in bodies:
            program = _longest(prompt + body) or ""
            if program[len(prompt) :].strip() and _defines(program, name):
                return program
        return prompt + bodies[0]
    unfenced = _STATEMENT.search(completion.text)
    if not blocks and unfenced is not None:
        found = _longest(completion.text[unfenced.start() :])
        if found is not None and _defines(found, name):
            return _joined(prompt, found)
    return _joined(prompt, blocks[-1] if blocks else completion.text)


def program_of(told: Mapping[str, Any]) -> str:
    """The program that a message holds, as code or as the fields of a completion."""
    if "program" in told:
        return str(told["program"])
    return extract_program(Completion(**{f.name: told[f.name] for f in fields(Completion)}))


def _blocks(text: str) -> Iterator[str]:
    """The fenced Python blocks of a text; where there is no fence, the text if it is a program."""
    found = False
    for fence in _FENCE.finditer(text):
        found = True
        if fence["language"].lower() in _PYTHON:
            indent, code = fence["indent"], fence["code"]
            if indent:
                lines = code.splitlines(keepends=True)
                code = "".join(line.removeprefix(indent) for line in lines)
            yield code
    if not found and _tree(text) is not None:
        yield text


def _tree(code: str) -> ast.Module | None:
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _defines(code: str, name: str | None) -> bool:
    """Whether code is a program that defines `name` at its top; any program, if there is none."""
    tree = _tree(code)
    if tree is None:
        return False
    if name is None:
        return bool(tree.body)
    return any(name in _bound(statement) for statement in tree.body)


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name for alias in statement.names}
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _only_defines(code: str) -> bool:
    tree = _tree(code)
    return tree is not None and all(isinstance(one, _DEFINITIONS) for one in tree.body)


def _longest(code: str) -> str | None:
    """The code up to the last line at which it can be cut so that it parses; prose may follow."""
    lines = code.splitlines(keepends=True)
    starts = [at for at, line in enumerate(lines) if line[:1].strip()]
    for end in [len(lines), *starts[: -_MOST_CUTS - 1 : -1]]:
        shorter = "".join(lines[:end])
        if _tree(shorter) is not None:
            return shorter
    return None


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)
