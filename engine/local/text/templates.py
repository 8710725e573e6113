"""Chat templates as programs: Jinja as Hugging Face's templates are written, in a sandbox.

Source: huggingface/transformers, utils/chat_template_utils.py, for the filters, functions and tags.

A template comes with a model, from anywhere. It reaches no Python internals and changes none of its
inputs, and its steps (the rounds of its loops and the calls of its macros) and all that it makes
(see `bounds`) are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from types import BuiltinMethodType, ModuleType
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ttc.engine.local.text.bounds import Meter
from ttc.errors import ModelFileError

__all__ = ["Program"]

_METER: ContextVar[Meter] = ContextVar("ttc_meter")
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
            _METER.set(Meter())  # constants are computed here
            tree = environment.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            """What it reads of what it is given."""
            attributes = [node.attr for node in tree.find_all(nodes.Getattr)]
            constants = [node.value for node in tree.find_all(nodes.Const)]
            self.names = frozenset(n for n in (*attributes, *constants) if isinstance(n, str))
            """Every name of a part of a value that it may read."""
            for block in tree.find_all((nodes.For, nodes.Macro)):
                assert isinstance(block, nodes.For | nodes.Macro)
                _count(block, environment)
            for concat in tree.find_all(nodes.Concat):
                concat.nodes = [
                    nodes.Filter(part, "string", [], [], None, None, lineno=concat.lineno)
                    for part in concat.nodes
                ]
            self._template = environment.from_string(tree)
        except (TemplateSyntaxError, SyntaxError, RecursionError, MemoryError) as error:
            raise ModelFileError(f"the model's chat template does not parse: {error}") from error

    def run(self, values: Mapping[str, Any]) -> str:
        """The template's output. Whatever it raises is its own fault."""
        meter = Meter()
        _METER.set(meter)
        return self._template.render({**values, _STEP: meter.step})


def _count(block: nodes.For | nodes.Macro, environment: _Sandbox) -> None:
    """Makes every run of a body, and every item that a loop passes over, count as a step."""
    at = {"lineno": block.lineno, "environment": environment}
    num_letters = sum(len(text.data) for text in block.find_all(nodes.TemplateData))
    call = nodes.Call(
        nodes.Name(_STEP, "load", **at), [nodes.Const(num_letters, **at)], [], None, None, **at
    )
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
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: datetime) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=lambda value: _METER.get().pay_written(value),
        )
        self.filters["tojson"] = _tojson
        for name, filter_ in self.filters.items():
            self.filters[name] = _metered(name, filter_)
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = now.strftime
        self.globals["namespace"] = _namespace

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"it reaches for {attribute!r} of {type(obj).__name__!r}")

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Pays for what an operator makes before it is made."""
        meter = _METER.get()
        if operator == "%" and isinstance(left, str):
            meter.pay_formatted(left, right if isinstance(right, tuple) else (right,))
        elif operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            meter.check_number(operator, left, right)
        elif operator == "*":
            for some, times in ((left, right), (right, left)):
                if isinstance(some, str | Sequence) and isinstance(times, int):
                    meter.pay_repeated(some, times)
        return meter.pay_made(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, *args: Any, **options: Any) -> Any:
        """Calls a macro, a function or a method; pays for what it makes."""
        meter = _METER.get()
        method = getattr(obj, "__wrapped__", obj)  # Jinja wraps `str.format`
        if isinstance(method, BuiltinMethodType) and not isinstance(method.__self__, ModuleType):
            meter.check_method(method, args)
            if method.__name__ == "format":
                meter.pay_formatted(str(method.__self__), (*args, *options.values()))
        return meter.pay_made(super().call(context, obj, *args, **options))


def _metered(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that pays for what it makes."""
    takes_context = int(hasattr(filter_, "jinja_pass_arg"))

    @wraps(filter_)
    def metered(*args: Any, **options: Any) -> Any:
        meter = _METER.get()
        meter.check_filter(name, args[takes_context:], options)
        return meter.pay_made(filter_(*args, **options))

    return metered


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
