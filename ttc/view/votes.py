"""What selectors have read and chosen: candidates by their answer, as a vote counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ttc.journal.trace import in_order

__all__ = ["Votes"]


class Votes:
    """The candidates of every selector."""

    def __init__(self) -> None:
        self._read: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._chose: dict[str, Mapping[str, Any]] = {}
        self._versions: dict[str, int] = {}

    def take(self, path: str, note: Mapping[str, Any], version: int) -> None:
        """Takes that a selector has read a candidate, or chosen one."""
        self._versions[path] = version
        if "chose" in note:
            self._chose[path] = note
        else:
            self._read.setdefault(path, {})[str(note["read"])] = note

    @property
    def chosen(self) -> str | None:
        """The call that the most downstream selector chose."""
        if not self._chose:
            return None
        call: str | None = self._chose[max(self._chose, key=in_order)]["chose"]
        return call

    def values(self, after: int) -> list[dict[str, Any]]:
        """The selectors that have read or chosen something since a version, each told whole."""
        changed = [path for path, version in self._versions.items() if version > after]
        return [self._vote(path) for path in sorted(changed, key=in_order)]

    def _vote(self, path: str) -> dict[str, Any]:
        groups: dict[str | None, dict[str, Any]] = {}
        for call, note in self._read.get(path, {}).items():
            group = groups.setdefault(
                note["key"], {"answer": note["answer"], "calls": [], "scores": {}}
            )
            group["calls"].append(call)
            for name, value in note["scores"].items():
                if value is not None:
                    group["scores"][name] = group["scores"].get(name, 0.0) + value
        nobody = groups.pop(None, None)
        ranked = sorted(groups.values(), key=lambda group: -len(group["calls"]))
        chose = self._chose.get(path)
        told = None if chose is None else {k: chose[k] for k in ("chose", "answer", "confidence")}
        return {
            "path": path,
            "groups": ranked,
            "without": [] if nobody is None else nobody["calls"],
            "chosen": told,
        }
