"""Calls between the judge and the candidate, over one socket: either side can ask, and be asked.

A request names an object that stayed on the other side and what to do with it: call it, read an
attribute or an item, iterate. Values cross by `ttc.sandbox.codec`; lists and the like that a call
changed come back and are changed here too. An exception crosses as the name of a built-in one.
"""

from __future__ import annotations

import builtins
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from ttc.sandbox import codec

__all__ = ["Gone", "Handle", "Peer", "fault"]

_MOST_KEPT = 100_000
_MOST_TEXT = 1000
_MUTABLE = (list, dict, set, bytearray, deque)
_RAISABLE = {
    name: kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "getattr": getattr,
    "getitem": lambda target, key: target[key],
    "iter": iter,
    "next": next,
    "len": len,
}


class Gone(BaseException):
    """The other side ended, or sent what no honest process sends; no exception of a test's."""


class Handle:
    """Stands for an object of the other side. It equals nothing, itself included."""

    __hash__ = object.__hash__

    def __init__(self, peer: Peer, target: Any) -> None:
        self._peer, self._target = peer, target

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        raise TypeError("an object that is no plain data is neither true nor false here")

    def __repr__(self) -> str:
        return "<an object of the candidate>"

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Has the other side call it."""
        return self._peer.ask("call", self._target, arguments, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.ask("getattr", self._target, (name,))

    def __getitem__(self, key: Any) -> Any:
        return self._peer.ask("getitem", self._target, (key,))

    def __iter__(self) -> Iterator[Any]:
        other = self._peer.ask("iter", self._target)
        return iter(other) if not isinstance(other, Handle) else other

    def __next__(self) -> Any:
        return self._peer.ask("next", self._target)

    def __len__(self) -> int:
        length = self._peer.ask("len", self._target)
        return length if type(length) is int else 0


class Peer:
    """One end. Objects that do not cross are kept here and known by a number on the other side."""

    def __init__(self, descriptor: int, find: Callable[[str], Any], *, calls_only: bool) -> None:
        """An end.

        Args:
            descriptor: the socket.
            find: gives the object that a name stands for; raises `NameError` where there is none.
            calls_only: whether the other side may only call what it was given, and do nothing else.
        """
        self.num_calls = 0
        """Calls that the other side has answered."""
        self.seconds = 0.0
        """What those calls took."""
        self.gone: Gone | None = None
        """Why no further call can be answered."""
        self.has_ended = False
        """Whether that is because the other side's process has ended."""
        self._descriptor, self._find, self._calls_only = descriptor, find, calls_only
        self._kept: dict[int, Any] = {}

    def named(self, name: str) -> Handle:
        """What the other side knows by a name."""
        return Handle(self, name)

    def ask(
        self,
        operation: str,
        target: Any,
        arguments: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        """Has the other side do something and gives the result, or raises what it raised."""
        given = [self._encode(argument) for argument in arguments]
        by_name = {name: self._encode(value) for name, value in (named or {}).items()}
        started = time.perf_counter()
        self._send({"do": operation, "on": target, "given": given, "named": by_name})
        while True:
            message = self.next_message()
            if "do" not in message:
                break
            self.answer(message)  # a callback: the other side asks before it answers
        if operation == "call":
            self.num_calls += 1
            self.seconds += time.perf_counter() - started
        try:
            self._apply(message.get("changed", {}), arguments)
            raised, text = message.get("raised"), str(message.get("text", ""))
            result = None if raised else codec.decode(message["result"], self._handle)
        except (codec.CodecError, KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
            self._lost(f"a forged frame: {e}")
        if raised:
            self._raise(raised, text)
        return result

    def serve(self) -> NoReturn:
        """Answers until the other side closes, which raises `Gone`."""
        while True:
            self.answer(self.next_message())

    def answer(self, message: Any) -> None:
        """Does what the other side asks, and tells it how that went."""
        reply: dict[str, Any]
        try:
            reply = self._done(message)
        except Gone:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the answer
            reply = fault(error)
        try:
            self._send(reply)
        except codec.CodecError as error:
            self._send(fault(OverflowError(str(error))))

    def _done(self, message: Any) -> dict[str, Any]:
        operation, target = message["do"], message["on"]
        if self._calls_only and operation != "call":
            raise TypeError(f"{operation} is not for the other side")
        found = self._find(target) if isinstance(target, str) else self._kept[target]
        before = message["given"]
        arguments = [codec.decode(form, self._handle) for form in before]
        named = {str(k): codec.decode(form, self._handle) for k, form in message["named"].items()}
        work = found if operation == "call" else _OPERATIONS[operation]
        first = () if operation == "call" else (found,)
        result = work(*first, *arguments, **named)
        changed = {
            str(place): form
            for place, argument in enumerate(arguments)
            if type(argument) in _MUTABLE and (form := self._encode(argument)) != before[place]
        }
        return {"result": self._encode(result), "changed": changed}

    def _apply(self, changed: Any, arguments: tuple[Any, ...]) -> None:
        """Changes arguments as the other side has changed its own."""
        for place, form in changed.items():
            mine, theirs = arguments[int(place)], codec.decode(form, self._handle)
            if type(mine) is not type(theirs):
                raise codec.CodecError("an argument came back as something else")
            if isinstance(mine, (list, bytearray)):
                mine[:] = theirs
            elif isinstance(mine, (dict, set, deque)):
                mine.clear()
                mine.update(theirs) if not isinstance(mine, deque) else mine.extend(theirs)

    def _raise(self, names: Any, text: str) -> NoReturn:
        """Raises the built-in exception that comes nearest to what the other side raised."""
        kinds = [_RAISABLE[n] for n in names if isinstance(n, str) and n in _RAISABLE]
        if not kinds:  # SystemExit and its like end a program, and are no result
            self._lost(f"{str(names)[:100]}: {text[:_MOST_TEXT]}")
        try:
            raised = kinds[0](text[:_MOST_TEXT])
        except TypeError:  # one that wants more than a text
            raised = RuntimeError(text[:_MOST_TEXT])
        raise raised

    def _encode(self, value: Any) -> list[Any]:
        return codec.encode(value, self._keep)

    def _keep(self, value: Any) -> list[Any]:
        if isinstance(value, Handle) and value._peer is self:
            return ["yours", value._target]
        if len(self._kept) >= _MOST_KEPT:
            raise codec.CodecError(f"more than {_MOST_KEPT} objects were kept")
        self._kept[len(self._kept)] = value
        return ["mine", len(self._kept) - 1]

    def _handle(self, told: Any) -> Any:
        whose, target = told
        if whose == "mine":
            if type(target) is not int:
                raise codec.CodecError("a handle is a number")
            return Handle(self, target)
        return self._find(target) if isinstance(target, str) else self._kept[target]

    def next_message(self) -> dict[str, Any]:
        """What the other side says next."""
        try:
            message = codec.receive(self._descriptor)
        except (EOFError, OSError):
            self._ended()
        except codec.CodecError as error:
            self._lost(f"a forged frame: {error}")
        if type(message) is not dict:
            self._lost("a forged frame: no message")
        return message

    def _send(self, message: object) -> None:
        if self.gone is not None:
            raise self.gone
        try:
            codec.send(self._descriptor, message)
        except OSError:
            self._ended()

    def _ended(self) -> NoReturn:
        self.has_ended = True
        self._lost("the other process has ended")

    def _lost(self, why: str) -> NoReturn:
        self.gone = Gone(why)
        raise self.gone from None


def fault(error: BaseException) -> dict[str, Any]:
    """How an exception is told: the names of its kinds, the narrowest first, and its text."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - a text of its own making
        text = ""
    return {"raised": [kind.__name__ for kind in type(error).__mro__], "text": text[:_MOST_TEXT]}
