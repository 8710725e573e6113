"""Classes: keys that were compared pair by pair, closed under transitivity.

Keys that a chain of equal pairs joins are one class. Closeness and other relations that are no
equivalence show by a pair of a class that was found different: such a class falls apart into its
keys. Either way the classes depend on the verdicts alone, and never on the order in which keys
came.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import combinations

from ttc.answers.equality import Verdict

__all__ = ["Classes"]


class Classes:
    """Grows by one key after the other, each with its verdicts on the earlier ones."""

    def __init__(self) -> None:
        self.is_settled = True
        """Whether each pair was decided, so that no later key can join two classes."""
        self._class_of: dict[Hashable, Hashable] = {}
        self._equal: dict[Hashable, list[Hashable]] = {}
        self._different: set[frozenset[Hashable]] = set()

    def __contains__(self, key: object) -> bool:
        return key in self._equal

    def of(self, key: Hashable) -> Hashable:
        """The earliest key of the class of a key; a key that never came is a class of its own."""
        return self._class_of.get(key, key)

    def add(self, key: Hashable, verdicts: Mapping[Hashable, Verdict]) -> None:
        """Adds a key; an earlier key without a verdict is different."""
        if key in self._equal:
            return
        self._equal[key] = []
        for other, verdict in verdicts.items():
            if verdict is True:
                self._equal[key].append(other)
                self._equal[other].append(key)
            elif verdict is False:
                self._different.add(frozenset((key, other)))
            else:
                self.is_settled = False
        if self._equal[key]:
            self._regroup()

    def _regroup(self) -> None:
        self._class_of = {}
        for key in self._equal:
            if key in self._class_of:
                continue
            joined = self._joined(key)
            falls_apart = any(
                frozenset(pair) in self._different for pair in combinations(joined, 2)
            )
            self._class_of |= {other: other if falls_apart else key for other in joined}

    def _joined(self, key: Hashable) -> set[Hashable]:
        """Every key that a chain of equal pairs leads to."""
        joined, ahead = {key}, [key]
        while ahead:
            for other in self._equal[ahead.pop()]:
                if other not in joined:
                    joined.add(other)
                    ahead.append(other)
        return joined
