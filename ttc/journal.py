"""The journal in memory: what was asked, granted, used and decided, in launch order.

It becomes the outcome's trace. Two runs with one seed have equal traces, whatever their timing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from typing import Any

from ttc.types import Branch, Record

__all__ = ["Journal", "derive_seed", "fingerprint", "in_order"]


def derive_seed(run_seed: int, path: str, index: int | str) -> int:
    """The 64-bit seed of a call: a hash of (run seed, node path, index) and of nothing else."""
    text = json.dumps([run_seed, path, index])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def fingerprint(branch: Branch, **request: Any) -> str:
    """A hash of a whole request: everything that the engine's answer depends on."""
    digest = hashlib.blake2b(digest_size=16)
    for segment in branch.lineage():
        content = segment.text if segment.token_ids is None else list(segment.token_ids)
        digest.update(json.dumps([segment.role, content]).encode())
    digest.update(repr(sorted(request.items())).encode())
    return digest.hexdigest()


class Journal:
    """Records by place; a record's place is taken at launch and its content may still come."""

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._places = itertools.count()

    def add(self, record: Record) -> int:
        """Takes the next place; returns it."""
        place = next(self._places)
        self._records[place] = record
        return place

    def amend(self, place: int, **changes: Any) -> None:
        """Fills in what has become known of a record."""
        self._records[place] = replace(self._records[place], **changes)

    def drop(self, place: int) -> None:
        """Forgets a call that never came to be: nothing was spent on it."""
        self._records.pop(place, None)

    def trace(self) -> tuple[Record, ...]:
        """All records, by path and index: an order that no timing can change."""
        records = self._records.values()
        return tuple(sorted(records, key=lambda r: (in_order(r.path), r.kind, r.index)))


def in_order(path: str) -> list[tuple[int, str]]:
    """A path's sort key, so that `2.vote` comes before `10.vote`."""
    parts = []
    for step in path.split("/"):
        number, _, name = step.partition(".")
        parts.append((int(number), name) if number.isdecimal() else (0, step))
    return parts
