"""A run without a journal: followed by its events, and told whole by its outcome.

A call is there from its admission on; its text, once a selector has read it or a call goes on from
it. Times are those at which events came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from time import monotonic
from typing import Any

from ttc.drawing import drawing_values
from ttc.graph import Node
from ttc.journal.trace import digest
from ttc.journal.values import candidate_values, problem_values, segment_values, usage_values
from ttc.types import Branch, Budget, Candidate, Event, Outcome, Problem, Record
from ttc.view.run import FINISHES, RunView

__all__ = ["Recorder", "of_outcome"]


class Recorder(RunView):
    """A run that is told by its events: pass it as `watch=`, and its outcome to `finish`."""

    def __init__(
        self,
        name: str,
        problem: Problem,
        strategy: Node | str | None = None,
        *,
        budget: Budget | None = None,
        engines: Mapping[str, str] | None = None,
        spell: Mapping[str, Callable[[int], bytes]] | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """A run that begins now.

        Args:
            name: what the page calls it.
            problem: what is asked.
            strategy: how; as a text it is shown as it was written.
            budget: what it may spend.
            engines: the names of the models, by role.
            spell: what tells the bytes of a token, by role, as far as engines know them.
            now: seconds by a clock.
        """
        super().__init__(name)
        self._now, self._began = now, now()
        self._facts: dict[str, Any] = {
            "problem": problem_values(problem),
            "budget": asdict(budget or Budget()),
            "engines": dict(engines or {}),
            **_strategy(strategy),
        }
        self._drawing, self._spell = _drawing(strategy), spell or {}
        self._tokens = 0
        self.begin(self._facts, self._drawing)

    def __call__(self, event: Event) -> None:
        """Takes an event of the run. Any thread may call it."""
        with self.lock:
            at = round(self._now() - self._began, 6)
            more = event.usage.tokens - self._tokens
            if more > 0:
                self._tokens = event.usage.tokens
                key = event.path, "event", self._version
                self._spend(key, "all roles", {"tokens": more}, at)
            if event.candidate is not None:
                self._candidate(event.path, event.candidate, at)
            if event.call is not None and event.branch is not None:
                self._begun(event.call, event.branch, at)
            elif event.call in self._rows:
                self._settled(event.call, event.finish, at)

    def finish(self, outcome: Outcome) -> None:
        """Takes what the run came to: its trace tells by role what events told in one."""
        with self.lock:
            self.restart()
            self.begin({**self._facts, "seed": outcome.seed}, self._drawing)
            self._outcome(outcome)

    def _outcome(self, outcome: Outcome) -> None:
        for candidate in outcome.candidates:
            self._branch(candidate.branch, None)
            self._scores(candidate)
        for record in outcome.trace:
            self.recorded(_record(record), None)
        path = _selector(outcome)
        for candidate in outcome.candidates:
            self.noted(path, candidate_values("read", candidate), None)
        if outcome.candidate is not None:
            self._branch(outcome.candidate.branch, None)
            self.noted(path, candidate_values("chose", outcome.candidate), None)
        self.ended(
            {
                "answer": outcome.answer,
                "stopped_by": outcome.stopped_by,
                "usage": usage_values(outcome.usage),
                "timing_dependent": list(outcome.timing_dependent),
                "oracle": outcome.oracle,
            }
        )

    def _candidate(self, path: str, candidate: Candidate, at: float) -> None:
        self._branch(candidate.branch, at)
        self._scores(candidate)
        self.noted(path, candidate_values("read", candidate), at)

    def _begun(self, call: str, branch: Branch, at: float) -> None:
        """Tells of a call that generates; one that reads makes no text."""
        if call.rpartition("#")[2].isdecimal():
            above, given = self._branch(branch, at)
            self.asked(call, parent=above, given=given, role=branch.role, at=at)

    def _settled(self, call: str, finish: str | None, at: float) -> None:
        """Tells how a call has ended, whatever it has written."""
        if self._rows[call].get("status") == "running":
            self._row(call, status=FINISHES.get(finish or "", "cancelled"), ended=at)

    def _branch(self, branch: Branch, at: float | None) -> tuple[str | None, str]:
        """Tells the prompt and the calls of a branch, those that are new.

        Returns:
            The last of them, and the text that was put behind it.
        """
        above, given = None, ""
        for segment in branch.lineage():
            if segment.parent is None:
                row = f"prompt#{segment.role}:{digest(segment)[:12]}"
                if row not in self._rows:
                    self.prompt(row, segment.role, segment.text)
            elif segment.call is None:
                given += segment.text
                continue
            else:
                row = segment.call if segment.call != above else f"{segment.call}/tail"
                if "excerpt" not in self._rows.get(row, {}):
                    self._call(row, segment, above, given, at)
            above, given = row, ""
        return above, given

    def _call(
        self, row: str, segment: Branch, above: str | None, given: str, at: float | None
    ) -> None:
        self._row(row, kind="call", parent=above, role=segment.role)
        if given:
            self.texts.put(row, given=given)
        self.answered(row, segment_values(segment), self._rows[row].get("ended", at))
        spell = self._spell.get(segment.role)
        if spell is not None and segment.token_ids is not None:
            words = {token: spell(token) for token in segment.token_ids}
            told = {str(t): w.decode(errors="surrogateescape") for t, w in words.items()}
            self.texts.learn(segment.role, told)
            self.texts.put(row, engine=segment.role)

    def _scores(self, candidate: Candidate) -> None:
        call = candidate.branch.call
        for name, score in candidate.scores.items():
            if call is not None:
                told = {"value": score.value, "range": score.range}
                self.scored([call], name, told, None)


def of_outcome(outcome: Outcome, name: str = "run") -> RunView:
    """A run that has ended, out of its outcome alone."""
    view = Recorder(name, outcome.problem)
    view.finish(outcome)
    return view


def _strategy(strategy: Node | str | None) -> dict[str, Any]:
    if isinstance(strategy, str):
        return {"text": strategy}
    return {"strategy": None if strategy is None else repr(strategy)}


def _drawing(strategy: Node | str | None) -> dict[str, Any]:
    if isinstance(strategy, str):
        from ttc.text_form import parse

        strategy = parse(strategy)
    return {"nodes": {}, "edges": []} if strategy is None else drawing_values(strategy)


def _record(record: Record) -> dict[str, Any]:
    return {
        "path": record.path,
        "kind": record.kind,
        "index": record.index,
        "detail": record.detail,
        "usage": usage_values(record.usage),
    }


def _selector(outcome: Outcome) -> str:
    """What the page calls the selector, which an outcome does not name."""
    decided = [record.path for record in outcome.trace if record.kind == "decision"]
    return decided[-1] if decided else "the selector"
