"""The journal in memory: what was asked, granted, used and decided, in launch order.

It becomes the outcome's trace. Two runs with one seed have equal traces, whatever their timing.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _spelled
from typing import Any
from weakref import WeakKeyDictionary

from ttc.frozen import changed
from ttc.journal.values import candidate_values
from ttc.ports import Engine, Verifier
from ttc.types import Branch, Candidate, Record, Score

__all__ = [
    "Journal",
    "Make",
    "derive_seed",
    "digest",
    "extended",
    "fingerprint",
    "fingerprint_of",
    "in_order",
]


def derive_seed(run_seed: int, path: str, index: int | str) -> int:
    """The 64-bit seed of a call: a hash of (run seed, node path, index) and of nothing else."""
    last = index if isinstance(index, int) else _spelled(index)
    text = f"[{run_seed}, {_spelled(path)}, {last}]"  # as JSON, with no encoder of its own
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def fingerprint(branch: Branch, **request: Any) -> str:
    """A hash of a whole request: everything that the engine's answer depends on."""
    return fingerprint_of(digest(branch), **request)


def fingerprint_of(digest: str, **request: Any) -> str:
    """The fingerprint of a request for a branch with this hash."""
    whole = hashlib.blake2b(digest_size=16)
    whole.update(digest.encode())
    whole.update(repr(sorted(request.items())).encode())
    return whole.hexdigest()


def digest(branch: Branch) -> str:
    """A hash of a branch: the roles and tokens of all its segments. It is computed once."""
    found = _digests.get(branch)
    if found is None:
        for segment in branch.lineage(after=_digests):
            content = segment.text if segment.token_ids is None else segment.token_ids
            before = "" if segment.parent is None else _digests[segment.parent]
            _digests[segment] = found = extended(before, segment.role, content)
        assert found is not None
    return found


def extended(before: str, role: str, content: str | Sequence[int]) -> str:
    """The hash of a branch with one more segment: its text, or its tokens where it has any."""
    text = json.dumps([before, role, content])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_digests: WeakKeyDictionary[Branch, str] = WeakKeyDictionary()


Make = Callable[[], Awaitable[Mapping[str, Any]]]
"""Makes a call of a tool, and gives what came of it."""


class Journal:
    """Records by place; a record's place is taken at launch and its content may still come."""

    elapsed = 0.0
    """Seconds that the run had taken before this process went on with it."""
    tokens_lost = 0
    """The most tokens that calls had produced when a kill cut them, and that were made again."""
    num_decisions: Mapping[str, int] = {}
    """How many decisions there are already, by path: those by hand before a kill."""
    cancelled_calls: frozenset[str] = frozenset()
    """Calls that were cancelled by hand before a kill."""

    is_kept = False
    """Whether anybody will read its notes."""

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
        self._records[place] = changed(self._records[place], **changes)

    def drop(self, place: int) -> None:
        """Forgets a call that never came to be: nothing was spent on it."""
        self._records.pop(place, None)

    def note(self, path: str, values: Mapping[str, Any]) -> None:
        """Takes what only those who look at the run want to know: no part of its trace."""

    def met(self, path: str, what: str, candidate: Candidate) -> None:
        """Notes that a selector has read or chosen a candidate."""
        if self.is_kept:
            self.note(path, candidate_values(what, candidate))

    def trace(self) -> tuple[Record, ...]:
        """All records, by path and index: an order that no timing can change."""
        records = self._records.values()
        return tuple(sorted(records, key=lambda r: (in_order(r.path), r.kind, r.index)))

    def engine(self, engine: Engine) -> Engine:
        """The engine as a run is to use it: here, as it is."""
        return engine

    async def scores(
        self, place: int, verifier: Verifier, ask: Callable[[], Awaitable[Sequence[Score]]]
    ) -> Sequence[Score]:
        """The scores of the verifier call at a place: here, always what `ask` gives."""
        return await ask()

    async def effect(
        self, key: str, request: Mapping[str, Any], *, again: bool, make: Make
    ) -> Mapping[str, Any] | None:
        """What a call of a tool came to: here, always what `make` gives.

        `None` where it was begun and cut, and may not be made `again`.
        """
        return await make()

    def effect_ended(self, key: str, values: Mapping[str, Any]) -> None:
        """Keeps what a call came to whose tool has not ended."""

    def timing(self) -> tuple[str, ...]:
        """What a kill has changed that timing decided."""
        return ()

    def unused(self) -> int:
        """Tokens of recorded answers that nobody asks for any more."""
        return 0

    def suspend(self) -> None:
        """Keeps nothing more: the run was given up from outside, and may go on later."""

    def deadline(self, started: float, seconds: float, now: float) -> float:
        """The moment at which `seconds` of a run that began at `started` have passed."""
        return started + seconds


def in_order(path: str) -> list[tuple[int, str]]:
    """A path's sort key, so that `2.vote` comes before `10.vote`."""
    parts = []
    for step in path.split("/"):
        number, _, name = step.partition(".")
        parts.append((int(number), name) if number.isdecimal() else (0, step))
    return parts
