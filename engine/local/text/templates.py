"""Chat templates as programs: Jinja as Hugging Face's templates are written, in a sandbox.

Source: huggingface/transformers, utils/chat_template_utils.py, for the filters, functions and tags.

A template comes with a model, from anywhere. It reaches no Python internals and changes none of its
inputs, and its steps (the rounds of its loops and the calls of its macros) and its output are
bounded. Its memory is not: a text that is doubled forty times exhausts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ttc.errors import ModelFileError

__all__ = ["Program"]

_MAX_STEPS = 250_000
_MAX_LETTERS = 1 << 24
_MAX_BITS = 1 << 12
_STEP = "ttc_step"  # no template has a variable of this name


class Program:
    """A compiled template.

    Args:
        source: Jinja.
        now: the time that the template is told.

    Raises:
        ModelFileError: it does not parse.
    """

    def __init__(self, source: str, now: datetime) -> None:
        environment = _Sandbox(now)
        try:
            tree = environment.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            """What it reads of what it is given."""
            for block in tree.find_all((nodes.For, nodes.Macro)):
                assert isinstance(block, nodes.For | nodes.Macro)
                _count(block, environment)
            self._template = environment.from_string(tree)
        except (TemplateSyntaxError, SyntaxError, RecursionError, MemoryError) as error:
            raise ModelFileError(f"the model's chat template does not parse: {error}") from error

    def run(self, values: Mapping[str, Any]) -> str:
        """The template's output. Whatever it raises is its own fault."""
        steps = 0

        def step() -> bool:
            nonlocal steps
            steps += 1
            if steps > _MAX_STEPS:
                raise SecurityError(f"it takes more than {_MAX_STEPS} steps")
            return True

        pieces, length = [], 0
        for piece in self._template.generate({**values, _STEP: step}):
            length += len(piece)
            if length > _MAX_LETTERS:
                raise SecurityError(f"it writes more than {_MAX_LETTERS} letters")
            pieces.append(piece)
        return "".join(pieces)


def _count(block: nodes.For | nodes.Macro, environment: _Sandbox) -> None:
    """Makes every run of a body, and every item that a loop passes over, count as a step."""
    at = {"lineno": block.lineno, "environment": environment}
    call = nodes.Call(nodes.Name(_STEP, "load", **at), [], [], None, None, **at)
    if isinstance(block, nodes.For) and block.test is not None:
        block.test = nodes.And(call, block.test, **at)
    else:
        block.body.insert(0, nodes.ExprStmt(call, **at))


class _Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it marks nothing."""

    tags = {"generation"}  # noqa: RUF012  Jinja's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Names(Namespace):
    """A namespace without the names that Python gives a meaning."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a namespace has no place for {name!r}")
        super().__setitem__(name, value)


def _namespace(*args: Any, **kwargs: Any) -> _Names:
    names = _Names()
    for name, value in dict(*args, **kwargs).items():
        names[name] = value
    return names


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, now: datetime) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = now.strftime
        self.globals["namespace"] = _namespace

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"it reaches for {attribute!r} of {type(obj).__name__!r}")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Refuses products that are too large before they are made."""
        for some, times in ((left, right), (right, left)):
            if isinstance(some, str | Sequence) and len(some) * times > _MAX_LETTERS:
                raise SecurityError(f"it repeats {len(some)} letters {times} times")
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            if (bits * right if operator == "**" else bits + right.bit_length()) > _MAX_BITS:
                raise SecurityError("it computes too large a number")
        return super().call_binop(context, operator, left, right)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As Hugging Face's: Jinja's own escapes HTML, which prompts do not want."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
