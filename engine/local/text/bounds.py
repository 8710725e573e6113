"""What a chat template may make: every operation that makes text or lists is paid before it runs.

A short template can ask for any amount of memory: by repetition, by padding, by doubling a text in
a loop, or by writing out a list that holds one text a thousand times. So whatever can make more
than it is given is weighed first, with all that its operands hold, however often they hold it; what
is made is added up, and beyond a limit the template is ended. Methods and filters that chat
templates have no use for, and that pad or number at will, are refused.

The sum is of all that was ever made, as nobody knows what is still held. Time is bounded by a
template's steps (see `templates`), but for the comparison of lists in lists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from types import BuiltinMethodType
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

__all__ = ["REFUSED_FILTERS", "SHALLOW_FILTERS", "Meter"]

_MAX_BYTES = 1 << 27
_MAX_STEPS = 100_000
_MAX_BITS = 1 << 12
_MAX_INDENT = 64
_ITEM = 128  # bytes that an item of a list takes, at most, less what it holds
_SEQUENCES = (list, tuple, KeysView, ValuesView, ItemsView)
_WIDE = re.compile(r"%[^a-zA-Z%]*(\d{3}|\*)|\{[^{}]*:[^{}]*(\d{3}|\{)")
"""A field of a format that is padded to a hundred letters or more, or by a variable."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METHODS: Mapping[type, frozenset[str]] = {
    str: _words(
        "capitalize casefold count endswith find format index isalnum isalpha isascii "
        "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
        "isupper join lower lstrip partition removeprefix removesuffix replace rfind "
        "rindex rpartition rsplit rstrip split splitlines startswith strip swapcase "
        "title upper"
    ),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}
"""Methods of plain data that a template may call."""

REFUSED_FILTERS = _words(
    "batch center filesizeformat format pprint random slice urlize wordwrap xmlattr"
)
"""Filters that pad, fill or draw."""

SHALLOW_FILTERS = _words(
    "abs attr count d default dictsort first float groupby int items last length "
    "list map max min reject rejectattr reverse select selectattr sort unique"
)
"""Filters that look at a value without writing out what it holds."""


class Meter:
    """What one run of a template has done, and may still do."""

    def __init__(self) -> None:
        self._steps = 0
        self._room = _MAX_BYTES

    def step(self, num_letters: int = 0) -> bool:
        """Counts a round of a loop or a call of a macro, whose body has so many letters of text."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise SecurityError(f"it takes more than {_MAX_STEPS} steps")
        self.pay(num_letters)
        return True

    def pay(self, num_bytes: int) -> None:
        """Takes something off what may still be made."""
        self._room -= num_bytes
        if self._room < 0:
            raise SecurityError(f"it makes more than {_MAX_BYTES} bytes of text and lists")

    def pay_made(self, value: Any) -> Any:
        """Pays for a text or a list itself, without what it holds; gives it back."""
        if isinstance(value, str):
            self.pay(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict):
            self.pay(_ITEM * len(value))
        return value

    def pay_written(self, value: Any) -> Any:
        """Pays for a value written out, with all that it holds; gives it back."""
        open_ = [value]
        while open_:
            item = open_.pop()
            if isinstance(item, str):
                self.pay(sys.getsizeof(item))
                continue
            inside = _inside(item)
            self.pay(_ITEM * (1 + len(inside)))
            open_.extend(inside)
        return value

    def check_number(self, operator: str, left: int, right: int) -> None:
        """Refuses a product or a power that is too large a number."""
        bits = left.bit_length()
        if (bits * right if operator == "**" else bits + right.bit_length()) > _MAX_BITS:
            raise SecurityError("it computes too large a number")

    def pay_repeated(self, value: Sequence[Any], times: int) -> None:
        """Pays for `value * times`."""
        size = sys.getsizeof(value) if isinstance(value, str) else _ITEM * len(value)
        self.pay(size * max(0, times))

    def pay_formatted(self, form: str, values: Iterable[Any]) -> None:
        """Pays for a format that may write every value in each of its fields."""
        if _WIDE.search(form):
            raise SecurityError("it pads a text")
        before = self._room
        for value in values:
            self.pay_written(value)
        self.pay((before - self._room) * max(form.count("{"), form.count("%")))

    def check_method(self, method: BuiltinMethodType, args: Sequence[Any]) -> None:
        """Refuses a method that templates have no use for; pays for one that can make much."""
        owner, name = method.__self__, method.__name__
        for kind, names in _METHODS.items():
            if isinstance(owner, kind) and name not in names:
                raise SecurityError(f"it calls {name!r} of {kind.__name__!r}")
        if isinstance(owner, int | float | bytes):
            raise SecurityError(f"it calls {name!r} of {type(owner).__name__!r}")
        if isinstance(owner, str) and (pay := self._PAYMENTS.get(name)):
            pay(self, owner, *args)

    def _replace(self, text: str, old: Any = "", new: Any = "", *_: Any) -> None:
        self.pay(4 * text.count(str(old)) * len(str(new)))

    def _join(self, text: str, items: Any = (), *_: Any) -> None:
        if isinstance(items, list | tuple):
            self.pay_written(items)
            self.pay(sys.getsizeof(text) * len(items))

    def _split(self, text: str, separator: Any = None, *_: Any) -> None:
        if isinstance(separator, str) and separator:
            self.pay(_ITEM * text.count(separator))
        else:
            self.pay(_ITEM * sum(map(str.isspace, text)))

    _PAYMENTS: Mapping[str, Callable[..., None]] = {
        "replace": _replace,
        "join": _join,
        "split": _split,
        "rsplit": _split,
        "splitlines": _split,
    }

    def check_filter(self, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Pays for what a filter may write out."""
        if name in REFUSED_FILTERS:
            raise SecurityError(f"it uses the filter {name!r}")
        for number in (*args[1:], *options.values()):
            if isinstance(number, int) and number > _MAX_INDENT and name in _INDENTING:
                raise SecurityError(f"it pads a text by {number}")
        if name == "list" and args and isinstance(args[0], str):
            self.pay(_ITEM * len(args[0]))
        if name in SHALLOW_FILTERS:
            return
        for value in (*args, *options.values()):
            self.pay_written(value)
        if name == "replace" and len(args) > 2:
            self._replace(str(args[0]), *args[1:])
        elif name == "join" and len(args) > 1 and isinstance(args[0], list | tuple):
            self.pay(sys.getsizeof(str(args[1])) * len(args[0]))
        elif name == "indent" and args:
            self.pay(_MAX_INDENT * str(args[0]).count("\n"))


_INDENTING = frozenset({"indent", "round", "tojson"})
"""Filters that pad by a number, or raise ten to its power."""


def _inside(item: Any) -> Collection[Any]:
    """What a value holds, where writing it out writes that, too."""
    if isinstance(item, Namespace):
        item = object.__getattribute__(item, "_Namespace__attrs")
    if isinstance(item, Mapping):
        return (*item.keys(), *item.values())
    return item if isinstance(item, _SEQUENCES) else ()
