"""Tools from Python: a typed function, or a class whose objects hold a branch's state.

    @tool(effect="pure")
    def area(width: float, height: float) -> float:
        '''The area of a rectangle.'''
        return width * height

The schema of the arguments comes from the signature, by pydantic, which checks them as well. What
a function returns is checked against its annotation and told as it is if it is a text, and else as
JSON.

An `async` tool works in the event loop. A synchronous one works in a process of its own, which is
killed when its time is over; a thread could not be, and its effect would come after all. Only a
pure one, whose effect nobody can see, works in a thread of this process.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, cast, get_args, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from ttc.ports import Scope
from ttc.tools.port import Arguments, Effect
from ttc.tools.process import call_in_process

__all__ = ["FunctionTool", "tool", "tool_faults"]

_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}")
_MOST_REPLAYED = 64
_FIELD = "argument_"
"""Stands before an argument's name in its model, so that none is taken for a part of the model."""


@dataclass(frozen=True, kw_only=True)
class FunctionTool:
    """A Python function, or a class, as a tool; made by `tool`."""

    function: Callable[..., Any]
    """What is called; of a reversible tool, the class whose objects are."""
    name: str
    description: str
    effect: Effect
    version: str = "1"
    seconds: float = 30.0
    max_bytes: int = 16_384
    is_trusted: bool = False
    in_process: bool = True
    """Whether a synchronous call has a process of its own."""
    arguments: type[BaseModel] = field(repr=False, compare=False)
    """What checks the arguments."""
    returns: Any = field(default=Any, repr=False, compare=False)
    """The annotation of what it returns."""

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments."""
        return cast("Mapping[str, Any]", _told(self.arguments.model_json_schema()))

    def check(self, arguments: Arguments) -> None:
        """Refuses arguments that its signature does not take.

        Raises:
            ValueError: with what is wrong, for the model.
        """
        try:
            self.arguments.model_validate(dict(arguments))
        except ValidationError as error:
            told = [
                f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_context=False)
            ]
            raise ValueError("; ".join(told)) from None

    async def __call__(
        self, arguments: Arguments, earlier: Sequence[Arguments], scope: Scope
    ) -> str:
        """Calls the function, or a new object after the branch's earlier calls."""
        if len(earlier) > _MOST_REPLAYED:
            raise RuntimeError(
                f"the state of {self.name} is more than {_MOST_REPLAYED} calls old; begin anew"
            )
        calls = [*earlier, arguments]
        if inspect.iscoroutinefunction(self._called):
            return await self._awaited(calls)
        if self.in_process:
            return await call_in_process(self.function, calls, self.max_bytes)
        return await _in_thread(lambda: self.result_of(calls))

    def result_of(self, calls: Sequence[Arguments]) -> str:
        """What the last of some calls comes to, as a text."""
        function = self._object()
        for arguments in calls[:-1]:
            _quietly(lambda arguments=arguments: function(**self._values(arguments)))  # type: ignore[misc]
        return self._text(function(**self._values(calls[-1])))

    async def _awaited(self, calls: Sequence[Arguments]) -> str:
        function = self._object()
        for arguments in calls[:-1]:
            try:
                await function(**self._values(arguments))
            except Exception:  # noqa: BLE001 - it failed when it was first made, too
                continue
        return self._text(await function(**self._values(calls[-1])))

    @property
    def _called(self) -> Callable[..., Any]:
        return vars(self.function)["__call__"] if self._is_class else self.function

    @property
    def _is_class(self) -> bool:
        return isinstance(self.function, type)

    def _object(self) -> Callable[..., Any]:
        return self.function() if self._is_class else self.function

    def _values(self, arguments: Arguments) -> dict[str, Any]:
        checked = self.arguments.model_validate(dict(arguments))
        names = self.arguments.model_fields
        return {name.removeprefix(_FIELD): getattr(checked, name) for name in names}

    def _text(self, value: Any) -> str:
        if isinstance(value, Iterator | AsyncIterator):
            raise TypeError(f"it returned {type(value).__name__}, of which nobody knows the end")
        if self.returns is not Any:
            try:
                TypeAdapter(self.returns).validate_python(value, strict=True)
            except ValidationError:
                raise TypeError(
                    f"it returned {type(value).__name__}, and its signature promises "
                    f"{getattr(self.returns, '__name__', self.returns)}"
                ) from None
        return value if isinstance(value, str) else to_json(value).decode()


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    effect: Effect = ...,
    name: str | None = ...,
    description: str | None = ...,
    in_process: bool | None = ...,
    **options: Any,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: Effect = "irreversible",
    name: str | None = None,
    description: str | None = None,
    in_process: bool | None = None,
    **options: Any,
) -> Any:
    """Makes a tool of a typed function, or of a class with a typed `__call__`.

    Args:
        function: what is called.
        effect: what a call does to the world. Nobody can tell but the user; unless said otherwise
            it cannot be undone.
        name: what the model calls it; the function's name by default.
        description: what the model is told; the docstring by default.
        in_process: whether a synchronous call has a process of its own; by default unless it is
            pure.
        options: `version`, `seconds`, `max_bytes` and `is_trusted`, as `Tool` has them.

    Raises:
        TypeError: it is no function, the signature has no types, or none that JSON has a schema
            for, or nothing can call it so.
        ValueError: a name or a number that makes no sense.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        if not (inspect.isroutine(function) or isinstance(function, type)):
            raise TypeError(f"a tool is made of a function or of a class, not of {function!r}")
        is_class = isinstance(function, type)
        if is_class != (effect == "reversible"):
            raise TypeError(
                "a reversible tool is a class whose objects hold the state of a branch; what is "
                "no class is pure or irreversible"
            )
        called = vars(function).get("__call__") if is_class else function
        if called is None:
            raise TypeError(f"{function.__name__} has no __call__")
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(f"{function.__name__} yields; a tool returns its result")
        is_apart = effect != "pure" if in_process is None else in_process
        made = FunctionTool(
            function=function,
            name=name or function.__name__.lower(),
            description=description or _first_paragraph(function),
            effect=effect,
            in_process=is_apart and not inspect.iscoroutinefunction(called),
            arguments=_model_of(function.__name__, called, is_method=is_class),
            returns=_hints(called).get("return", Any),
            **options,
        )
        if faults := tool_faults(made):
            raise ValueError("; ".join(faults))
        _check_types(made)
        return made

    return make if function is None else make(function)


def tool_faults(tool: Any) -> list[str]:
    """What is wrong with a tool, before it is ever called."""
    faults = []
    if not isinstance(tool.name, str) or not _NAME.fullmatch(tool.name):
        faults.append(f"a tool is called by letters, digits and _, not {tool.name!r}")
    if tool.effect not in get_args(Effect):
        faults.append(f"effect is one of {', '.join(get_args(Effect))}, not {tool.effect!r}")
    if isinstance(tool.seconds, bool) or not tool.seconds > 0:
        faults.append(f"the seconds of {tool.name} are more than 0, not {tool.seconds!r}")
    if type(tool.max_bytes) is not int or tool.max_bytes < 1:
        faults.append(f"the max_bytes of {tool.name} are at least 1, not {tool.max_bytes!r}")
    function = getattr(tool, "function", None)
    if getattr(tool, "in_process", False) and "<" in getattr(function, "__qualname__", ""):
        faults.append(
            f"{tool.name} works in a process of its own, which finds it by its name: put it at the "
            "top of a module, make it async, or, if it is pure, pass in_process=False"
        )
    return faults


def _check_types(made: FunctionTool) -> None:
    """Finds out now, and not in a run, whether its types can be told and checked."""
    with _types_of(made.name):
        made.arguments.model_json_schema()
        TypeAdapter(made.returns)


@contextmanager
def _types_of(name: str) -> Iterator[None]:
    """Tells of a type that no JSON has."""
    try:
        yield
    except PydanticUserError as error:
        reason = str(error).partition("\n")[0]
        raise TypeError(f"{name}: one of its types is none of JSON: {reason}") from None


def _model_of(name: str, called: Callable[..., Any], *, is_method: bool) -> type[BaseModel]:
    """What checks the arguments of a signature."""
    hints = _hints(called)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(called).parameters.values())[is_method:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: a model names every argument, so {parameter} has no place")
        if parameter.name not in hints:
            raise TypeError(f"{name}: {parameter.name} has no type; annotate it")
        is_open = parameter.default is parameter.empty
        hint = hints[parameter.name]
        fields[_FIELD + parameter.name] = (hint, ... if is_open else parameter.default)
    config = ConfigDict(extra="forbid", alias_generator=lambda field: field.removeprefix(_FIELD))
    with _types_of(name):
        return cast("type[BaseModel]", create_model(name, __config__=config, **fields))


def _hints(called: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(called, include_extras=True)
    except NameError as error:
        module = sys.modules.get(called.__module__)
        raise TypeError(
            f"a type of {called.__qualname__} in {module} is unknown: {error}"
        ) from None


def _first_paragraph(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _told(schema: Any) -> Any:
    """A schema without the titles that pydantic makes of names, and what is no JSON."""
    if isinstance(schema, list):
        return [_told(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _told(value) for key, value in schema.items() if not _is_noise(key, value)}


def _is_noise(key: str, value: Any) -> bool:
    if key == "title":
        return isinstance(value, str)
    return key == "default" and isinstance(value, float) and not isfinite(value)


def _quietly(work: Callable[[], Any]) -> None:
    """Makes a call again. It failed when it was first made, if it fails."""
    try:
        work()
    except Exception:  # noqa: BLE001 - see above
        return


async def _in_thread(work: Callable[[], str]) -> str:
    """Works in a thread that keeps nobody from ending: it is forgotten when nobody waits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[str] = loop.create_future()

    def tell(result: str | BaseException) -> None:
        if future.done():
            return
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    def run() -> None:
        result: str | BaseException
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits; it ends no process
            is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
            result = error if is_plain else RuntimeError(f"it raised {type(error).__name__}")
        try:
            loop.call_soon_threadsafe(tell, result)
        except RuntimeError:
            return  # the loop has closed, and nobody waits

    threading.Thread(target=run, name="ttc tool", daemon=True).start()
    return await future
