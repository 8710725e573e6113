"""Reads the keys that describe a model, and refuses every key that nobody has read.

A key that is passed over could change results without a word, so each is read, named as having no
effect on results, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ttc.errors import ModelFileError

__all__ = ["ELSEWHERE", "Keys"]

ELSEWHERE = "use vLLM or another OpenAI-compatible server for it"
"""The way out for a model that the engine refuses."""

_MOST = 1 << 40  # greater than any size of any model


class Keys:
    """The keys of one file. A key whose value is `None` counts as absent.

    Args:
        path: the file, for messages.
        values: what it holds.
        prefix: what every key begins with; keys that do not are somebody else's.
    """

    def __init__(self, path: Path, values: Mapping[str, object], prefix: str = "") -> None:
        self.path = path
        self._prefix = prefix
        self._values = {
            key.removeprefix(prefix): value
            for key, value in values.items()
            if key.startswith(prefix) and value is not None
        }
        self._null = frozenset(key for key, value in values.items() if value is None)
        self._read: set[str] = set()

    def is_null(self, key: str) -> bool:
        """Whether a key is there, with the value `None`."""
        return self._prefix + key in self._null

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def was_read(self, key: str) -> bool:
        """Whether somebody has read a key."""
        return key in self._read

    def value(self, key: str) -> object:
        """The value of a key, or `None`."""
        self._read.add(key)
        return self._values.get(key)

    def number(self, key: str, default: float | None = None, *, above: float = 0.0) -> float:
        """A finite number greater than `above`."""
        value = self._values.get(key, default)
        self._read.add(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(key, "not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not above < number < math.inf:
            raise self.fault(key, f"not a number above {above:g}")
        return number

    def count(self, key: str, default: int | None = None, *, most: int = _MOST) -> int:
        """A whole number from 1 to `most`."""
        number = self.number(key, default)
        if number != int(number) or not 1 <= number <= most:
            raise self.fault(key, f"not a whole number from 1 to {most}")
        return int(number)

    def flag(self, key: str, default: bool) -> bool:
        """A truth value."""
        value = self._values.get(key, default)
        self._read.add(key)
        if not isinstance(value, bool):
            raise self.fault(key, "neither true nor false")
        return value

    def items(self, key: str, count: int) -> list[object] | None:
        """A list of at least `count` values, cut to that many, or `None`."""
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < count:
            raise self.fault(key, f"no list of {count} values")
        return value[:count]

    def expect(self, allowed: Mapping[str, Collection[object]]) -> None:
        """Reads keys that are supported with certain values alone."""
        for key, values in allowed.items():
            value = self.value(key)
            if value is not None and value not in list(values):
                raise self.refusal(key)

    def skip(self, keys: Iterable[str]) -> None:
        """Reads keys that have no effect on results."""
        self._read.update(keys)

    def finish(self) -> None:
        """Refuses the first key that has not been read."""
        for key in self._values:
            if key not in self._read:
                raise self.refusal(key)

    def refusal(self, key: str) -> ModelFileError:
        """The error for a key, or a value of it, that is not supported."""
        return ModelFileError(
            f"{self.path}: {self._prefix}{key} = {_short(self._values.get(key))} is not supported; "
            f"{ELSEWHERE}"
        )

    def fault(self, key: str, what: str) -> ModelFileError:
        """The error for a value that makes no sense."""
        if key not in self._values:
            return ModelFileError(
                f"{self.path}: the key {self._prefix}{key} is missing; the file is incomplete"
            )
        return ModelFileError(
            f"{self.path}: {self._prefix}{key} is {_short(self._values[key])}, {what}"
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
