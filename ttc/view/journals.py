"""A run out of its journal: read once, and then only what has been appended since."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ttc.errors import RecordError, TTCError
from ttc.journal.entries import entry_of
from ttc.lines import is_in_use
from ttc.view.branches import Branches
from ttc.view.run import RunView

__all__ = ["JournalView"]

_TOLD = ("created", "problem", "strategy", "text", "seed", "budget", "prices", "oracle")


class JournalView(RunView):
    """The run that a journal is of. Any thread may call it."""

    def __init__(self, path: Path) -> None:
        """A journal, which is read by `refresh`.

        Args:
            path: the file.
        """
        super().__init__(path.name.removesuffix(".journal"))
        self._path = path
        self._branches = Branches()
        self._offset = self._line = 0
        self._asked: dict[str, Mapping[str, Any]] = {}

    def refresh(self) -> None:
        """Reads what has been appended.

        Raises:
            RecordError: the file is gone or damaged, or no journal.
        """
        with self.lock:
            try:
                self._read()
            except OSError as error:
                raise RecordError(f"{self.name} cannot be read: {error.strerror}") from error

    def _read(self) -> None:
        is_running = is_in_use(self._path)  # before the file is read: an end is never overlooked
        size = self._path.stat().st_size
        if size < self._offset:
            self.restart()
            self._branches, self._asked = Branches(), {}
            self._offset = self._line = 0
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read(size - self._offset)
        whole, newline, _ = content.rpartition(b"\n")
        for line in whole.split(b"\n") if newline else ():
            self._line += 1
            entry = entry_of(line)
            if entry is None:
                raise RecordError(f"{self.name}: line {self._line} is damaged")
            self._take(entry)
            self._offset += len(line) + 1
        if self._end is None:
            self.state = "running" if is_running else "unfinished"

    def _take(self, entry: dict[str, Any]) -> None:
        kind, at = entry["is"], entry.get("at", 0.0)
        if self._line == 1:
            self._begin(entry)
        elif kind == "intent":
            self._intent(entry, at)
        elif kind == "answer":
            self._answer(entry["key"], entry["answer"], at)
        elif kind == "record":
            self._verified(entry, at)
            self.recorded(entry, at)
        elif kind == "note":
            self.noted(entry["path"], entry, at)
        elif kind == "words":
            self.texts.learn(entry["engine"], entry["words"])
        elif kind == "end":
            self.ended({name: v for name, v in entry.items() if name not in ("is", "at")})

    def _begin(self, entry: Mapping[str, Any]) -> None:
        if entry["is"] != "run":
            raise RecordError(f"{self.name} is no journal")
        engines = {role: values["name"] for role, values in entry.get("engines", {}).items()}
        told = {name: entry.get(name) for name in _TOLD}
        self.begin({**told, "engines": engines}, entry.get("graph") or _drawing(entry.get("text")))

    def _intent(self, entry: Mapping[str, Any], at: float) -> None:
        key, request = entry["key"], entry["request"]
        self._asked[key] = request
        if "max_tokens" not in request:
            return
        place = self._branches.of(request["prompt"])
        parent, given = (None, "") if place is None else (place.row, place.given)
        behind = entry.get("behind")
        if behind is not None and parent not in (behind, f"{behind}/tail"):
            parent, given = behind, ""  # one of several calls that came to equal tokens, say
        role = entry.get("role") or (place.role if place is not None else "policy")
        self.asked(key, parent=parent, given=given, role=role, at=at)
        self.texts.put(key, engine=request["engine"])

    def _answer(self, key: str, answer: Mapping[str, Any], at: float) -> None:
        asked = self._asked.get(key)
        if asked is None:
            self._known(key, answer)
        elif "verifier" in asked:
            for fingerprint, score in zip(
                asked["candidates"].split(), answer["scores"], strict=False
            ):
                self.scored(self._branches.rows_of(fingerprint), asked["verifier"], score, at)
        elif "max_tokens" not in asked:
            return  # a reading: its spend is told by its record
        elif "segment" in answer:
            self._branches.grow(key, asked["prompt"], answer["segment"])
            self.answered(key, answer["segment"], at)
        elif "cut_at" in answer:
            self.cut(key, answer["cut_at"], at)
        else:
            self.failed(key, answer.get("error", "it was cut by a kill"), at)

    def _verified(self, record: Mapping[str, Any], at: float) -> None:
        """Scores whose answer is not kept, since their verifier asked a model by itself."""
        asked = self._asked.get(f"{record['path']}#verify {record['index']}")
        if record["kind"] != "verify" or asked is None:
            return
        scores = record["detail"].get("scores", ())
        for fingerprint, value in zip(asked["candidates"].split(), scores, strict=False):
            told = {"value": value}
            self.scored(self._branches.rows_of(fingerprint), asked["verifier"], told, at)

    def _known(self, key: str, answer: Mapping[str, Any]) -> None:
        """What engines are asked for nothing: prompts, appended texts, beginnings."""
        if key.startswith("prompt of "):
            role, _, hashed = key.removeprefix("prompt of ").partition(": ")
            row = f"prompt#{role}:{hashed[:12]}"
            self._branches.plant(row, role, answer)
            self.prompt(row, role, answer["text"])
            return
        digest, _, rest = key.partition(" ")
        if rest.startswith("cut back to "):
            self._branches.cut(digest, int(rest.removeprefix("cut back to ")))
        elif rest.startswith("+ "):
            self._branches.append(digest, answer)


def _drawing(text: str | None) -> dict[str, Any]:
    """The drawing of a strategy that an older journal holds as a text only."""
    from ttc.drawing import drawing_values
    from ttc.text_form import parse

    if text is not None:
        try:
            return drawing_values(parse(text))
        except TTCError:  # of a strategy that this ttc does not know
            pass
    return {"nodes": {}, "edges": []}
