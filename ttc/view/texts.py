"""The texts of a run's calls, with the tokens that they are made of where these can be told."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Texts", "excerpt"]

_EXCERPT = 120


class Texts:
    """Texts by call."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[str, Any]] = {}
        self._words: dict[tuple[str, int], bytes] = {}

    def put(self, row: str, **values: Any) -> None:
        """Adds to what is known of a call: `text`, `given`, `token_ids`, `logprobs` and so on."""
        self._texts.setdefault(row, {}).update(values)

    def learn(self, engine: str, words: Mapping[str, str]) -> None:
        """Takes the texts of an engine's tokens; bytes that are no text are lone surrogates."""
        for token, text in words.items():
            self._words[engine, int(token)] = text.encode(errors="surrogateescape")

    def evidence(self, row: str, verifier: str, evidence: Any) -> None:
        """Takes why a verifier gave its score."""
        self._texts.setdefault(row, {}).setdefault("evidence", {})[verifier] = evidence

    def values(self, row: str) -> dict[str, Any]:
        """All that is known, as JSON; `pieces` are the texts of the tokens."""
        known = self._texts.get(row, {})
        told = {k: value for k, value in known.items() if k not in ("token_ids", "engine")}
        pieces = self._pieces(known.get("engine", ""), known.get("token_ids") or ())
        return {"id": row, **told} if pieces is None else {"id": row, **told, "pieces": pieces}

    def find(self, wanted: str) -> list[str]:
        """The calls whose text holds `wanted`."""
        folded = wanted.casefold()
        return [
            row
            for row, known in self._texts.items()
            if folded in known.get("text", "").casefold()
            or folded in known.get("given", "").casefold()
        ]

    def all(self) -> dict[str, dict[str, Any]]:
        """Every call's."""
        return {row: self.values(row) for row in self._texts}

    def _pieces(self, engine: str, token_ids: Sequence[int]) -> list[str] | None:
        """The text of each token; a character of several tokens stands with the last of them."""
        if not token_ids or not all((engine, id) in self._words for id in token_ids):
            return None
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pieces = [decoder.decode(self._words[engine, id]) for id in token_ids]
        pieces[-1] += decoder.decode(b"", final=True)
        return pieces


def excerpt(text: str) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: 4 * _EXCERPT].split())
    return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"
