"""The text form of a graph, for command lines and requests.

    cascade(sample(n=4) >> vote(), sample(n=16) >> vote(), accept=confidence(0.9))

Calls of registered names, `>>`, `|`, literals and keywords, and nothing else. The text is data:
it is parsed, never evaluated. It may come from a stranger, so its size is checked before `ast`
sees it, whose parser dies of deep input.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Any

from ttc.errors import GraphError
from ttc.graph import Chain, Node, Pool, snake_case

__all__ = ["MAX_CHARACTERS", "MAX_NODES", "parse", "write"]

MAX_CHARACTERS = 2_000
MAX_NODES = 200
_MAX_DEPTH = 50
_PARTS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\s*\(|>>|[|&]")


def parse(text: str) -> Node:
    """The graph that a text describes, checked as a strategy.

    Raises:
        GraphError: the text is too large, is not in the form, or its graph cannot run.
    """
    text = text.strip().replace("\n", " ")
    _check_size(text)
    try:
        graph = _value(ast.parse(text, mode="eval").body)
    except _Unreadable as error:
        source = ast.get_source_segment(text, error.tree) or text
        raise GraphError([f"{_short(source)}: {error.reason}"]) from None
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise GraphError([f"the strategy {_short(text)} cannot be read: {reason}"]) from None
    if not isinstance(graph, Node):
        raise GraphError([f"{_short(text)} is no strategy; a strategy is greedy(), say"])
    graph.validate()
    return graph


def write(graph: Node) -> str:
    """The text of a graph, which `parse` reads as an equal one.

    Raises:
        GraphError: a part of it has no text form, such as a function of the user's.
    """
    return _written(graph)


def _written(value: Any) -> str:
    if isinstance(value, Chain | Pool):
        sign = " >> " if isinstance(value, Chain) else " | "
        text = sign.join(map(_written, value.parts))
        return f"({text})" if isinstance(value, Pool) else text
    if isinstance(value, tuple | list | frozenset):
        items = "".join(f"{_written(item)}, " for item in value)
        return f"({items})"
    if value is None or isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"{'-' if value < 0 else ''}1e999"
    joined = _joined(value)
    return _call(value) if joined is None else joined


def _joined(value: Any) -> str | None:
    """Two rules with their operator between them; `None` for anything else."""
    sign = {"Either": "|", "Both": "&"}.get(type(value).__name__)
    if sign is None or not hasattr(value, "first"):
        return None
    return f"({_written(value.first)} {sign} {_written(value.second)})"


def _call(value: Any) -> str:
    """The call that makes a value, with the arguments that are not its defaults."""
    name = snake_case(type(value).__name__)
    try:
        made = _named(ast.Name(name))
        parameters = signature(made).parameters.values()
        arguments: list[str] = []
        for parameter in parameters:
            own = getattr(value, parameter.name)
            if parameter.kind is Parameter.VAR_POSITIONAL:
                arguments += map(_written, own)
            elif own != _default(value, parameter):
                arguments.append(f"{parameter.name}={_written(own)}")
    except (_Unreadable, AttributeError):
        raise GraphError(
            [f"{value!r} has no text form, since nothing registered makes it"]
        ) from None
    return f"{name}({', '.join(arguments)})"


def _default(value: Any, parameter: Parameter) -> Any:
    """What a parameter is if it is not given."""
    for field in fields(value) if is_dataclass(value) else ():
        if field.name == parameter.name and field.default_factory is not MISSING:
            return field.default_factory()
    return parameter.default


class _Unreadable(Exception):
    """A part of a text that is not in the form."""

    def __init__(self, tree: ast.AST, reason: object) -> None:
        super().__init__(reason)
        self.tree, self.reason = tree, reason


def _check_size(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise GraphError([f"a strategy has at most {MAX_CHARACTERS} characters, not {len(text)}"])
    parts = len(_PARTS.findall(text))
    if parts > MAX_NODES:
        raise GraphError([f"a strategy has at most {MAX_NODES} calls and operators, not {parts}"])
    depth = deepest = 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    signs = max((len(run) for run in re.findall(r"[-+~\s]+", text)), default=0)
    if deepest > _MAX_DEPTH or signs > _MAX_DEPTH:
        raise GraphError([f"a strategy is nested at most {_MAX_DEPTH} deep"])


def _value(tree: ast.expr) -> Any:
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.RShift | ast.BitOr | ast.BitAnd):
        return _combined(tree)
    if isinstance(tree, ast.Call):
        return _called(tree)
    if isinstance(tree, ast.Tuple | ast.List):
        return tuple(_value(item) for item in tree.elts)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
        number = _value(tree.operand)
        if isinstance(number, int | float) and not isinstance(number, bool):
            return -number if isinstance(tree.op, ast.USub) else number
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float | str | None):
        return tree.value
    if isinstance(tree, ast.Name):
        raise _Unreadable(tree, f"it stands alone; call it: {tree.id}()")
    raise _Unreadable(tree, "a strategy is made of calls, >>, |, literals and keywords")


def _combined(tree: ast.BinOp) -> Any:
    left, right = _value(tree.left), _value(tree.right)
    if isinstance(left, int) and isinstance(right, int):
        raise _Unreadable(tree, "numbers are written out")
    try:
        if isinstance(tree.op, ast.RShift):
            return left >> right
        return left | right if isinstance(tree.op, ast.BitOr) else left & right
    except (TypeError, ValueError) as error:
        raise _Unreadable(tree, error) from None


def _called(tree: ast.Call) -> Any:
    if not isinstance(tree.func, ast.Name):
        raise _Unreadable(tree.func, "it is no name of a node")
    if any(keyword.arg is None for keyword in tree.keywords):
        raise _Unreadable(tree, "** is not a part of the form")
    arguments = [_value(argument) for argument in tree.args]
    keywords = {keyword.arg or "": _value(keyword.value) for keyword in tree.keywords}
    if len(keywords) < len(tree.keywords):
        raise _Unreadable(tree, "a keyword is given twice")
    made = _named(tree.func)
    _check_options(tree, made, keywords)
    try:
        return made(*arguments, **keywords)
    except (TypeError, ValueError) as error:
        raise _Unreadable(tree, _plain(error)) from None


def _check_options(tree: ast.Call, made: Callable[..., Any], given: Iterable[str]) -> None:
    """Refuses keywords that nothing takes, with those that there are."""
    known = signature(made).parameters
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        return
    unknown = [name for name in given if name not in known]
    if unknown:
        options = ", ".join(known) or "none"
        raise _Unreadable(
            tree, f"got an unexpected keyword argument {unknown[0]!r}; its options are {options}"
        )


def _named(tree: ast.Name) -> Callable[..., Any]:
    from ttc.registry import lookup, names

    for group in ("nodes", "verifiers"):
        if tree.id in names(group):
            return lookup(group, tree.id)  # type: ignore[no-any-return]
    known = ", ".join(names("nodes") + names("verifiers"))
    raise _Unreadable(tree, f"nothing is called {tree.id!r}; there is {known}")


def _plain(error: Exception) -> str:
    """A constructor's complaint without its Python name."""
    return re.sub(r"^\w+(\.\w+)*\(\) ", "", str(error))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")
