"""Which call a text goes on from, told by the hashes of branches in a journal.

A journal names what a call was given by a hash of its tokens. The same hashes are made here of all
that the journal holds, so every call finds its parent, and every score what it is the score of. It
knows nothing of what became of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ttc.journal.trace import extended, fingerprint_of

__all__ = ["Branches", "Place"]


class Place(NamedTuple):
    """A branch, and the call or the prompt whose text it ends with."""

    row: str
    """The call or the prompt."""
    given: str
    """Text that was appended behind it."""
    role: str
    before: str
    """The hash of the branch without its last segment."""
    content: str | Sequence[int]
    """The tokens of that segment; its text where there are none."""
    num_before: int
    """How many tokens stand before it."""


class Branches:
    """All branches of a run, by their hash."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._rows: dict[str, list[str]] = {}

    def of(self, digest: str) -> Place | None:
        """The branch with this hash; `None` where nothing tells of it."""
        return self._places.get(digest)

    def rows_of(self, fingerprint: str) -> Sequence[str]:
        """The calls that ended with the branch that a verifier was shown, equal ones together."""
        return self._rows.get(fingerprint, ())

    def plant(self, row: str, role: str, segment: Mapping[str, Any]) -> None:
        """Takes a prompt."""
        self._add(Place(row, "", role, "", _content(segment), 0))

    def grow(self, row: str, prompt: str, segment: Mapping[str, Any]) -> None:
        """Takes what a call generated behind the branch with the hash `prompt`."""
        above = self._places.get(prompt)
        if above is not None:
            length = above.num_before + len(above.content)
            self._add(Place(row, "", above.role, prompt, _content(segment), length))

    def append(self, digest: str, segment: Mapping[str, Any]) -> None:
        """Takes text that was appended to a branch."""
        above = self._places.get(digest)
        if above is not None:
            given, length = above.given + segment["text"], above.num_before + len(above.content)
            self._add(Place(above.row, given, above.role, digest, _content(segment), length))

    def cut(self, digest: str, num_tokens: int) -> None:
        """Takes the beginning of a branch, of so many tokens in all."""
        whole = self._places.get(digest)
        if whole is not None:
            count = num_tokens - whole.num_before
            self._add(whole._replace(content=whole.content[:count]))

    def _add(self, place: Place) -> None:
        digest = extended(place.before, place.role, place.content)
        self._places.setdefault(digest, place)
        rows = self._rows.setdefault(fingerprint_of(digest), [])
        if place.row not in rows:
            rows.append(place.row)


def _content(segment: Mapping[str, Any]) -> str | Sequence[int]:
    token_ids: Sequence[int] | None = segment.get("token_ids")
    return str(segment["text"]) if token_ids is None else token_ids
