"""What a viewer knows of one run: calls and what they go on from, spend, votes, decisions.

Each row carries the version at which it last changed, so that a page that follows a run asks for
what is new only. Whatever reads a run (`ttc.view.journals`, `ttc.view.recorder`) tells it here; it
knows neither files nor pages.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from ttc.types import Usage
from ttc.view.texts import Texts, excerpt
from ttc.view.votes import Votes

__all__ = ["FINISHES", "SCHEMA_VERSION", "RunView"]

Values = dict[str, Any]

SCHEMA_VERSION = 1
"""Of the document."""

_UNMADE = ("pruned", "duplicate", "cancelled", "failed", "running")
"""What no later word on a node changes back."""

FINISHES: Mapping[str, str] = {
    "stop": "finished",
    "length": "truncated",
    "cancelled": "cancelled",
    "error": "failed",
}
_ROLES = {"verify": "verifier", "execution": "sandbox"}
_LINES = tuple(f.name for f in fields(Usage) if f.name != "seconds")


class RunView:
    """One run, as far as it has been told."""

    def __init__(self, name: str) -> None:
        """A run of which nothing is known yet.

        Args:
            name: what the page calls it.
        """
        self.name = name
        self.lock = threading.RLock()
        """Held while the run is told or read; any thread may do either."""
        self.state = "running"
        """`running`, `finished`, or `unfinished`: it can be resumed."""
        self.texts = Texts()
        self.votes = Votes()
        self._clear()

    def _clear(self) -> None:
        self._version = self._whole_since = 0
        self._run: Values = {}
        self._end: Values | None = None
        self._graph: Values = {"nodes": {}, "edges": []}
        self._rows: dict[str, Values] = {}
        self._spends: list[Values] = []
        self._decisions: list[Values] = []
        self._booked: dict[tuple[str, str, int], Values] = {}
        self._spent: dict[str, dict[str, Values]] = {}
        self._nodes: dict[tuple[str, int], str] = {}
        self._parents: set[str] = set()
        self._chosen: list[str] = []

    def restart(self) -> None:
        """Forgets everything; a page that had a part of it is given the whole again."""
        version = self._version
        self.texts, self.votes = Texts(), Votes()
        self._clear()
        self._version = self._whole_since = version + 1

    def refresh(self) -> None:
        """Looks whether there is more to tell; what is told by itself has nothing to look at."""

    # What is told

    def begin(self, run: Mapping[str, Any], graph: Mapping[str, Any]) -> None:
        """What is asked, how and with what; and the strategy's drawing."""
        self._version += 1
        self._run, self._graph = dict(run), dict(graph)

    def prompt(self, row: str, role: str, text: str) -> None:
        """A prompt, of the problem or of a node's own."""
        self._row(row, kind="prompt", role=role, excerpt=excerpt(text), status="prompt")
        self.texts.put(row, text=text)

    def asked(self, row: str, *, parent: str | None, given: str, role: str, at: float) -> None:
        """A call of an engine was begun, behind a prompt or another call."""
        self._row(row, kind="call", parent=parent, role=role, started=at, status="running")
        if given:
            self.texts.put(row, given=given)

    def answered(self, row: str, segment: Mapping[str, Any], at: float | None) -> None:
        """What a call generated."""
        made: Values = {"excerpt": excerpt(segment["text"]), "ended": at}
        token_ids, logprobs = segment.get("token_ids"), segment.get("logprobs")
        if token_ids is not None:
            made["tokens"] = len(token_ids)
        if logprobs:
            made["logprob"] = round(sum(logprobs) / len(logprobs), 4)
        self._row(row, kind="call", **made)
        if self._rows[row].get("status") in (None, "running"):
            self._row(row, status=FINISHES.get(segment.get("finish_reason") or "", "finished"))
        kept = ("text", "token_ids", "logprobs", "entropies", "stop_reason")
        self.texts.put(row, **{name: segment[name] for name in kept if segment.get(name)})

    def failed(self, row: str, error: str, at: float) -> None:
        """A call came to nothing."""
        self._row(row, kind="call", status="failed", error=error, ended=at)

    def cut(self, row: str, produced: int, at: float) -> None:
        """A call was cancelled while it ran."""
        self._row(row, kind="call", status="cancelled", tokens=produced, ended=at)

    def scored(
        self, rows: Sequence[str], verifier: str, score: Mapping[str, Any], at: float | None
    ) -> None:
        """What a verifier said of a text that calls had ended with."""
        for row in rows:
            value = score["value"]
            told = {**self._rows[row].get("scores", {}), verifier: value}
            self._row(row, scores=told, score=value)
            if score.get("evidence"):
                self.texts.evidence(row, verifier, score["evidence"])

    def recorded(self, record: Mapping[str, Any], at: float | None) -> None:
        """An entry of the trace."""
        path, kind, index = record["path"], record["kind"], record["index"]
        detail = record["detail"]
        if kind == "decision":
            self._decide(path, detail, at)
            return
        role = detail.get("role") or _ROLES.get(kind, "policy")
        self._spend((path, kind, index), role, record["usage"], at)
        row = f"{path}#{index}"
        if kind == "call" and detail.get("finish") is not None and row in self._rows:
            self._finish(row, role, detail, record["usage"])
        elif detail.get("refused") is not None:
            self._decide(path, {"rule": f"refused: {detail['refused']}", "call": index}, at)

    def noted(self, path: str, note: Mapping[str, Any], at: float | None) -> None:
        """What a node tells those who look at the run."""
        if "node" in note:
            self._told(path, note)
        elif "dropped" in note:
            for node in note["dropped"]:
                row = self._nodes.get((path, node))
                if row is not None and row not in self._parents:
                    self._prune(row)
        elif "compared" in note:
            for node, value in note["compared"].items():
                row = self._nodes.get((path, int(node)))
                if row is not None:
                    self._row(row, score=value)
        elif "verifier" in note:
            self._version += 1
            self._run.setdefault("ranges", {})[note["verifier"]] = note["range"]
        elif "read" in note or "chose" in note:
            self._version += 1
            self.votes.take(path, note, self._version)
            self._mark(self.votes.chosen)

    def ended(self, end: Mapping[str, Any]) -> None:
        """What the run came to."""
        self._version += 1
        self._end, self.state = dict(end), "finished"

    # What is read

    def document(self, after: int = 0) -> Values:
        """All of it as JSON, or what has changed since a version.

        Rows, spends and decisions are those that are new; everything else is told whole. `whole`
        says that what was known before is to be forgotten.
        """
        whole = after < self._whole_since or after > self._version or after <= 0
        since = 0 if whole else after
        return {
            "schema_version": SCHEMA_VERSION,
            "version": self._version,
            "whole": whole,
            "name": self.name,
            "state": self.state,
            "run": self._run,
            "end": self._end,
            "graph": self._drawn(),
            "rows": [row for row in self._rows.values() if row["v"] > since],
            "spends": [spend for spend in self._spends if spend["v"] > since],
            "decisions": [one for one in self._decisions if one["v"] > since],
            "votes": self.votes.values(since),
        }

    def text(self, row: str) -> Values | None:
        """The text of a call or a prompt, with its tokens; `None` where there is no such call."""
        return self.texts.values(row) if row in self._rows else None

    def find(self, wanted: str) -> list[str]:
        """The calls and prompts whose text holds `wanted`, in whatever case."""
        return self.texts.find(wanted)

    # Inside

    def _row(self, row: str, **changes: Any) -> None:
        self._version += 1
        told = {name: value for name, value in changes.items() if value is not None}
        if "parent" in told:
            self._parents.add(told["parent"])
        kept = self._rows.setdefault(row, {"id": row, "path": row.rpartition("#")[0]})
        kept.update(told, v=self._version)

    def _finish(self, row: str, role: str, detail: Mapping[str, Any], usage: Values) -> None:
        finish, tokens = detail["finish"], usage.get("tokens", 0)
        self._row(row, role=role, finish=finish, error=detail.get("error"))
        if tokens and usage.get("tokens_cancelled", 0) >= tokens:
            self._row(row, status="cancelled")
        elif self._rows[row].get("status") in (None, "running"):
            self._row(row, status=FINISHES.get(finish, "finished"))

    def _prune(self, row: str) -> None:
        """Marks a node that a search gave up before anything came of it."""
        if self._rows[row].get("status") not in _UNMADE:
            self._row(row, status="pruned")

    def _told(self, path: str, note: Mapping[str, Any]) -> None:
        """A node of a search: its place in the tree, its score, and what became of it."""
        row, key = note["call"], (path, note["node"])
        if row is None or row not in self._rows:
            return
        self._nodes[key] = row
        status = "duplicate" if note["twin"] is not None else note["status"]
        action = None if note["action"] == "step" else note["action"]
        above = (path, note["parent"])
        parent = None if note["parent"] is None else self._nodes.get(above)
        self._row(row, status=status, score=note["value"], action=action, parent=parent)

    def _mark(self, call: str | None) -> None:
        """Marks the path to the call that was chosen last."""
        path: list[str] = []
        at = call
        while at is not None and at in self._rows and at not in path:
            path.append(at)
            at = self._rows[at].get("parent")
        if path == self._chosen:
            return
        for row in {*self._chosen} - {*path}:
            self._row(row, chosen=False)
        for row in path:
            self._row(row, chosen=True)
        self._chosen = path

    def _decide(self, path: str, detail: Mapping[str, Any], at: float | None) -> None:
        self._version += 1
        told = {name: value for name, value in detail.items() if name != "rule"}
        one = {"at": at, "path": path, "rule": detail.get("rule", ""), "detail": told}
        self._decisions.append({**one, "v": self._version})

    def _spend(
        self, key: tuple[str, str, int], role: str, usage: Mapping[str, Any], at: float | None
    ) -> None:
        """Books what a record has more than it had before."""
        before = self._booked.get(key, {})
        now = {name: usage[name] for name in _LINES if usage.get(name)}
        more = {
            name: float(value) - before[name] if name in before else value
            for name, value in ((n, _number(v)) for n, v in now.items())
            if value != before.get(name)
        }
        self._booked[key] = {name: _number(value) for name, value in now.items()}
        if not more:
            return
        self._version += 1
        node = self._node_of(key[0])
        self._spends.append({"at": at, "node": node, "role": role, **more, "v": self._version})
        spent = self._spent.setdefault(node, {}).setdefault(role, {})
        for name, value in more.items():
            spent[name] = spent.get(name, 0) + value

    def _node_of(self, path: str) -> str:
        """The node of the drawing that a scope belongs to; its first part where none is drawn."""
        drawn, part = self._graph["nodes"], path
        while part not in drawn and "/" in part:
            part = part.rpartition("/")[0]
        return part

    def _drawn(self) -> Values:
        """The strategy's nodes with what was spent on each, by role."""
        nodes = {**self._graph["nodes"]}
        nodes |= {path: "" for path in self._spent if path not in nodes}
        told = [
            {"path": path, "label": label, "spend": self._spent.get(path, {})}
            for path, label in nodes.items()
        ]
        return {"nodes": told, "edges": self._graph["edges"]}


def _number(value: Any) -> float:
    """A line of a usage; an amount of money is a text in journals."""
    return value if isinstance(value, int | float) else float(value)
