"""The journal on disk: one file for one run, out of which the run goes on after a kill.

Each line is a JSON object behind its checksum. The intent of a call is written before the engine is
asked, and its answer before anybody acts on it, so what is in the file is always enough: whoever
runs the same strategy again gets the recorded answers in the place of the engine's, and comes to
the very point at which the first process died. Differs from a database: the file is only ever
appended to and is read as a whole, so an append of one line is all that a call has to wait for, and
half a line at its end is the only damage that a kill can do.

    run     what is solved, how, with what: the first line
    intent  an engine or a verifier is about to be asked
    answer  what came of it: a segment, a failure, scores, or where a stop cut it
    record  one entry of the trace: what was granted, used, refused or decided
    note    what only those want to know who look at a run, such as the tree of a search
    words   the texts of tokens, each once
    end     what the run came to
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ttc.errors import BudgetExceeded, EngineError, JournalMismatch, RecordError, Revoked
from ttc.journal.by_hand import ByHand, changes_of
from ttc.journal.compare import compare
from ttc.journal.engines import PATIENCE_S, JournaledEngine
from ttc.journal.entries import entry_of, is_whole, line_of
from ttc.journal.trace import Journal, Make
from ttc.journal.values import (
    Values,
    branch_of,
    error_values,
    plain,
    price_of,
    score_of,
    score_values,
    usage_values,
)
from ttc.lines import Lines, read_lines
from ttc.ports import Clock, Engine, Verifier
from ttc.prices import Prices
from ttc.strict_json import decode, encode
from ttc.types import Outcome, Record, Score

__all__ = ["SCHEMA_VERSION", "DiskJournal", "Kept", "read"]

SCHEMA_VERSION = 1


class Kept:
    """What a file holds of a run."""

    def __init__(self, lines: Iterable[bytes], name: str) -> None:
        """Reads a file.

        Args:
            lines: its whole lines.
            name: what errors call it.

        Raises:
            RecordError: a line is damaged, or the file is no journal of this version.
        """
        self.name = name
        self.run: Values = {}
        self.intents: dict[str, Values] = {}
        self.answers: dict[str, Values] = {}
        self.records: dict[tuple[str, str, int], Values] = {}
        self.notes: set[str] = set()
        self.words: set[tuple[str, int]] = set()
        """Tokens whose texts are told, with the arithmetic of their engine."""
        self.end: Values | None = None
        self.elapsed = 0.0
        self.tokens_lost = 0
        for number, line in enumerate(lines, 1):
            entry = entry_of(line)
            if entry is None:
                raise RecordError(
                    f"{name}: line {number} is damaged; put back a copy of the file, or remove it"
                )
            self._take(entry, number)

    def _take(self, entry: Values, number: int) -> None:
        kind = entry.pop("is", None)
        if number == 1:
            if kind != "run" or entry.get("schema_version") != SCHEMA_VERSION:
                raise RecordError(
                    f"{self.name} is no journal of version {SCHEMA_VERSION}, but of "
                    f"{entry.get('schema_version')!r}; use the ttc that wrote it, or remove it"
                )
            self.run = entry
            return
        self.elapsed = max(self.elapsed, entry.pop("at", 0.0))
        if kind == "intent":
            self._lose(entry["key"])
            self.intents[entry["key"]] = entry
        elif kind == "answer":
            self.answers[entry["key"]] = entry["answer"]
        elif kind == "record":
            key = entry["path"], entry["kind"], entry["index"]
            self.records.pop(key, None)  # so that the latest comes last
            self.records[key] = entry
        elif kind == "note":
            self.notes.add(_text(entry))
        elif kind == "words":
            self.words.update((entry["engine"], int(token)) for token in entry["words"])
        elif kind == "end":
            self.end = entry

    def lose_open(self) -> None:
        """Counts what the calls had asked for whose answer never came."""
        for key in self.intents:
            self._lose(key)

    def _lose(self, key: str) -> None:
        intent = self.intents.get(key)
        if intent is not None and intent["again"] and key not in self.answers:
            self.tokens_lost += intent["request"].get("max_tokens", 0)


class DiskJournal(Journal):
    """A journal that is kept in a file, and that answers out of it what was answered before."""

    is_kept = True

    def __init__(self, kept: Kept, facts: Values, clock: Clock, file: Lines | None) -> None:
        """A journal over a file that has been read.

        Args:
            kept: what the file holds.
            facts: what is to be run: the first line of a new file, and equal to that of an old one.
            clock: the run's clock.
            file: where the run goes on; `None` only reads.

        Raises:
            JournalMismatch: the file is of another run.
            RecordError: nothing can be written.
        """
        super().__init__()
        self.name = kept.name
        self.fault: RecordError | None = None
        """Why nothing can be kept any more."""
        self.clock = clock
        self.seed: int = facts["seed"]
        self.prices = Prices(map(price_of, (kept.run or facts)["prices"].values()))
        self._kept, self._file, self._suspended = kept, file, False
        self._late: BudgetExceeded | None = None
        self._num_lost = 0
        self._asked: set[str] = set()
        if kept.run:
            compare(kept.name, "run", kept.run, facts)
        self.by_hand = self._changed()
        kept.lose_open()
        self.elapsed, self.tokens_lost = kept.elapsed, kept.tokens_lost
        if self.by_hand is not None:
            self.num_decisions = {"": self.by_hand.num_records}
            self.cancelled_calls = self.by_hand.calls
            self._late = Revoked() if self.by_hand.is_cancelled else None
        self._begun = clock.now() - self.elapsed
        if not kept.run:
            self._write("run", facts)

    def _changed(self) -> ByHand | None:
        """What was changed by hand before a kill.

        Raises:
            RecordError: that cannot be taken up, since the run has ended, or is one of many.
        """
        found = changes_of(self._kept.records.values())
        if found is None or not (self._kept.end or self._kept.run.get("among")):
            return found
        raise RecordError(
            f"{self.name} cannot be repeated or gone on with: {found.first} by hand while it ran; "
            "begin another run"
        )

    # What a run asks of every journal

    def add(self, record: Record) -> int:
        """Takes the next place; a decision is whole at once, and written."""
        place = super().add(record)
        if record.kind == "decision":
            self._write_record(record)
        return place

    def amend(self, place: int, **changes: Any) -> None:
        """Fills in what has become known of a record, and writes it."""
        super().amend(place, **changes)
        self._write_record(self._records[place])

    def drop(self, place: int) -> None:
        """Forgets a call that never came to be, here and in the file."""
        self._write_record(replace(self._records[place], detail={"dropped": True}))
        super().drop(place)

    def note(self, path: str, values: Mapping[str, Any]) -> None:
        """Writes what those want to know who look at the run, unless it is there from before."""
        entry = {"path": path, **values}
        if not self._kept.notes or _text(entry) not in self._kept.notes:
            self._write("note", entry)

    def said(self, engine: str, token_ids: Iterable[int], spell: Callable[[int], bytes]) -> None:
        """Writes the texts of tokens that are new. Any thread may call it."""
        new = {id for id in token_ids if (engine, id) not in self._kept.words}
        if new:
            self._kept.words.update((engine, id) for id in new)
            words = {id: spell(id).decode(errors="surrogateescape") for id in sorted(new)}
            self._write("words", {"engine": engine, "words": words})

    def engine(self, engine: Engine) -> Engine:
        """The engine, with the journal before it."""
        return JournaledEngine(engine, self)

    async def scores(
        self, place: int, verifier: Verifier, ask: Callable[[], Awaitable[Sequence[Score]]]
    ) -> Sequence[Score]:
        """The recorded scores, or those of the verifier.

        A verifier that asks for anything by its scope works again: that has answers of its own.
        """
        record = self._records[place]
        key = f"{record.path}#verify {record.index}"  # a node's own calls have numbers alone
        request = {"verifier": verifier.name, "candidates": record.fingerprint}
        recorded = self.asked(key, request, again=True)
        if recorded is not None:
            return [score_of(values) for values in recorded["scores"]]
        scores = await ask()
        inside = f"{record.path}/{record.index}"
        if any(r.path.startswith(inside) for p, r in self._records.items() if p > place):
            return scores
        try:
            answer = plain({"scores": [score_values(score) for score in scores]})
        except RecordError:
            return scores  # its evidence is no JSON: it will have to be asked again
        self.answered(key, answer)
        return scores

    async def effect(
        self, key: str, request: Mapping[str, Any], *, again: bool, make: Make
    ) -> Mapping[str, Any] | None:
        """The recorded result of a call of a tool, or what `make` gives.

        An act is on the disk before it is made; one that was begun and cut is never made again.
        """
        known = self.asked(key, dict(request), again=again)
        if known is not None:
            return known if "status" in known else None
        if not again and self._file is not None:
            self._file.sync()
        answer = dict(await make())
        self.answered(key, answer)
        self.check()
        return answer

    def effect_ended(self, key: str, values: Mapping[str, Any]) -> None:
        """Keeps what a call came to whose tool has not ended."""
        self.answered(key, dict(values))

    def deadline(self, started: float, seconds: float, now: float) -> float:
        """The run's deadline. One that has passed leaves time to replay what came before it."""
        if not self._kept.answers:
            return started + seconds
        if self.elapsed >= seconds:
            self._late = BudgetExceeded("seconds", needed=0, remaining=0, limit=seconds)
        return max(started + seconds, now + PATIENCE_S)

    def timing(self) -> tuple[str, ...]:
        """What a kill has changed, and that somebody had changed the run by hand before it."""
        told = []
        if self.by_hand is not None:
            told.append("a run that was changed by hand went on after a kill, as it was changed")
        if self._num_lost:
            calls = f"{self._num_lost} call{'s' * (self._num_lost > 1)}"
            told.append(f"a kill cut {calls} in flight, charged at the worst case")
        return tuple(told)

    def unused(self) -> int:
        """Tokens of recorded answers that nobody asks for any more, after a change by hand."""
        if self.by_hand is None:
            return 0
        intents = self._kept.intents.items()
        keys = [k for k, i in intents if "max_tokens" in i["request"] and k not in self._asked]
        return sum(_produced(self._kept.answers[key]) for key in keys if key in self._kept.answers)

    # What stands between a run and whatever it asks

    def known(self, key: str, find: Callable[[], Values]) -> Values:
        """The answer that is kept under a key, of what costs nothing to ask."""
        answer = self._kept.answers.get(key)
        if answer is None:
            answer = self._kept.answers[key] = find()
            self.answered(key, answer)
        return answer

    def asked(
        self, key: str, request: Values, *, again: bool, about: Values | None = None
    ) -> Values | None:
        """Notes that something is about to be asked; gives the answer where it is known already.

        Args:
            key: the call, as `path#index`.
            request: everything that the answer depends on.
            again: whether asking a second time gives the same and costs nothing but time. Else
                what was asked and never answered counts as failed, charged with all that it might
                have used.
            about: what else those want to know who look at the run.

        Raises:
            JournalMismatch: something else was asked under this key.
            BudgetExceeded: nothing new can be asked, since the run's time had passed.
            RecordError: it cannot be noted.
        """
        self.check()
        before, answer = self._kept.intents.get(key), self._kept.answers.get(key)
        if before is not None:
            asked = before["request"]
            if self.by_hand is not None and asked.get("max_tokens") != request.get("max_tokens"):
                asked = {**asked, "max_tokens": request.get("max_tokens")}  # it was granted so then
                if again and answer is not None and _produced(answer) > request["max_tokens"]:
                    answer = None
            self._match(key, asked, plain(request))
        if answer is not None:
            self._asked.add(key)
        if answer is None and before is not None and not again:
            answer = {"lost": request.get("max_tokens", 0)}
            self.answered(key, answer)
        if answer is not None and "lost" in answer:
            return error_values(self.lost(key, answer["lost"]))
        if answer is not None:
            return answer
        self.intend(key, request, again=again, about=about)
        return None

    def intend(
        self, key: str, request: Values, *, again: bool, about: Values | None = None
    ) -> None:
        """Writes that something is about to be asked.

        Raises:
            BudgetExceeded: the run's time had passed.
            RecordError: it cannot be written.
        """
        if self._late is not None:
            raise self._late
        self._write("intent", {"key": key, "request": request, "again": again, **(about or {})})
        self.check()

    def answered(self, key: str, answer: Values) -> None:
        """Keeps an answer. Any thread may call it; where it fails, the next call is told."""
        if not self._suspended:
            self._write("answer", {"key": key, "answer": answer})

    def lost(self, key: str, output_tokens: int) -> EngineError:
        """The failure of a call that was cut and cannot be asked again; the outcome tells of it."""
        self._num_lost += 1
        reason = f"{key} was cut before its answer came, and its engine cannot repeat it"
        return EngineError(reason, output_tokens=output_tokens)

    def suspend(self) -> None:
        """Keeps nothing more: the run was given up from outside, and may go on later."""
        self._suspended = True

    def finish(self, outcome: Outcome) -> None:
        """Keeps what the run came to, or compares it with what is kept.

        Raises:
            JournalMismatch: the same run came to something else.
            RecordError: it cannot be kept.
        """
        self.check()
        end = plain(_end(outcome))
        if self._kept.end is None:
            self._write("end", end)
        else:
            self._match("end", _lasting(self._kept.end), _lasting(end))
        self.check()

    def close(self) -> None:
        """Brings everything to the disk, and lets others have the file.

        Raises:
            RecordError: the disk does not take it.
        """
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            raise RecordError(f"{self.name} cannot be kept: {error.strerror}") from error

    def check(self) -> None:
        """Raises what has gone wrong.

        Raises:
            RecordError: nothing can be kept any more.
        """
        if self.fault is not None:
            raise self.fault

    def _match(self, where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Compares; a difference is kept, so that no node can swallow it."""
        try:
            compare(self.name, where, before, now)
        except JournalMismatch as fault:
            self.fault = fault
            raise

    def _write_record(self, record: Record) -> None:
        values = {
            "path": record.path,
            "kind": record.kind,
            "index": record.index,
            "detail": dict(record.detail),
            "usage": usage_values(record.usage),
        }
        place = (record.path, record.kind, record.index)
        before = self._kept.records.get(place)
        if before is None or before != decode(encode(values, default=repr)):
            self._write("record", values)

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        if self._file is None or self._suspended or self.fault is not None:
            return
        at = round(self.clock.now() - self._begun, 6)
        line = line_of({"is": kind, **values, "at": at})
        try:
            self._file.append(line)
        except OSError as error:
            self.fault = RecordError(
                f"{self.name} cannot be continued: {error.strerror}; nothing of it is lost: make "
                "room, or raise the setting journal_mb, and resume the run"
            )
            self.fault.__cause__ = error


def read(path: Path, name: str) -> Kept:
    """What a file holds; it is not changed.

    Raises:
        RecordError: there is no such file, or it is damaged.
    """
    try:
        lines, rest = read_lines(path)
    except OSError as error:
        raise RecordError(f"{name} cannot be read: {error.strerror}") from error
    return Kept([*lines, rest] if is_whole(rest) else lines, name)


def _text(entry: Values) -> str:
    return json.dumps(entry, sort_keys=True, default=repr)


def _produced(answer: Values) -> int:
    """The output tokens of a recorded call."""
    if "segment" in answer:
        length = branch_of(answer["segment"], None, "").length
        return length or 0
    return int(answer.get("cut_at") or answer.get("output_tokens") or answer.get("lost") or 0)


def _end(outcome: Outcome) -> Values:
    return {
        "answer": outcome.answer,
        "stopped_by": outcome.stopped_by,
        "usage": usage_values(outcome.usage),
        "timing_dependent": outcome.timing_dependent,
        "oracle": outcome.oracle,
    }


def _lasting(end: Values) -> Values:
    """The part of an end that no resuming may change."""
    usage = end["usage"]
    tokens = usage.get("tokens", 0) - usage.get("tokens_cancelled", 0)
    return {"answer": end["answer"], "tokens": tokens, "stopped_by": end["stopped_by"]}
