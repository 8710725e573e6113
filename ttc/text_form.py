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
from typing import Any

from ttc.errors import GraphError
from ttc.graph import Chain, Node, Pool
from ttc.named_calls import Unnamed, call_of, made, maker

__all__ = ["MAX_CHARACTERS", "MAX_NODES", "checked", "parse", "write"]

MAX_CHARACTERS = 2_000
MAX_NODES = 200
_MAX_DEPTH = 50
_PARTS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\s*\(|>>|[|&]")


def parse(text: str) -> Node:
    """The graph that a text describes, checked as a strategy.

    A JSON object is the text of a saved graph; see `ttc.graph_files`.

    Raises:
        GraphError: the text is too large, is not in the form, or its graph cannot run.
    """
    text = text.strip()
    if re.match(r'\{\s*"', text):
        from ttc.graph_files import from_json  # pydantic is loaded when it is needed

        return from_json(text)
    text = text.replace("\n", " ")
    _check_size(text)
    try:
        graph = _value(ast.parse(text, mode="eval").body)
    except _Unreadable as error:
        source = ast.get_source_segment(text, error.tree) or text
        raise GraphError([f"{_short(source)}: {error.reason}"]) from None
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise GraphError([f"the strategy {_short(text)} cannot be read: {reason}"]) from None
    return checked(graph, _short(text))


def checked(graph: Any, source: str) -> Node:
    """What a text or a file gave, if it is a strategy.

    Raises:
        GraphError: it is none, with every fault.
    """
    if not isinstance(graph, Node):
        raise GraphError([f"{source} is no strategy; a strategy is greedy(), say"])
    try:
        graph.validate()
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise GraphError([f"{source}: an option has a wrong type: {error}"]) from None
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
    sign = getattr(value, "sign", None)
    return f"({_written(value.first)} {sign} {_written(value.second)})" if sign else None


def _call(value: Any) -> str:
    """The call that makes a value, with the arguments that are not its defaults."""
    try:
        name, parts, options = call_of(value)
    except Unnamed as error:
        raise GraphError([f"it has no text form: {error}"]) from None
    arguments = [*map(_written, parts), *(f"{k}={_written(v)}" for k, v in options.items())]
    return f"{name}({', '.join(arguments)})"


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
        literal = {"true": "True", "false": "False", "none": "None", "null": "None"}
        wanted = literal.get(tree.id.lower())
        raise _Unreadable(
            tree, f"write {wanted}" if wanted else f"it stands alone; call it: {tree.id}()"
        )
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
    try:
        found = maker(tree.func.id)
    except Unnamed as error:
        raise _Unreadable(tree.func, error) from None
    try:
        return made(found, arguments, keywords)
    except Unnamed as error:
        raise _Unreadable(tree, error) from None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")
