"""Traces: the recent runs of each key, for the viewer at `/ui`. A key sees its own alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ttc.graph import Node
from ttc.ports import Engine
from ttc.serve.keys import Key
from ttc.types import Budget, Outcome, Problem
from ttc.view import RunLine
from ttc.view.recorder import Recorder

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Trace", "Traces"]

_SHOWN = 200


class Trace(Recorder):
    """One run of a request: pass it as `watch=`, and its outcome to `finish`."""

    outcome: Outcome | None = None
    """What it came to, once it has ended."""

    def finish(self, outcome: Outcome) -> None:
        """Takes what the run came to."""
        super().finish(outcome)
        self.outcome = outcome

    @property
    def line(self) -> RunLine:
        """What the list of runs tells of it."""
        asked, outcome = self._facts["problem"], self.outcome
        question = str(asked["prompt"] or asked["messages"][-1]["content"])
        return RunLine(
            name=self.name,
            state=self.state,
            question=question[:_SHOWN],
            answer=None if outcome is None else (outcome.answer or "")[:_SHOWN] or None,
            tokens=None if outcome is None else outcome.usage.tokens,
            strategy=str(self._facts.get("strategy", ""))[:_SHOWN],
        )


class Traces:
    """The last `most` runs of each key, in memory; implements `ttc.view.Source`.

    Args:
        most: how many; with 0 nothing is kept.
        key_of: whose key a request brings.
    """

    def __init__(self, most: int, key_of: Callable[[Request], Key]) -> None:
        self._most, self._key_of = most, key_of
        self._runs: dict[str, OrderedDict[str, Trace]] = {}

    def begin(
        self,
        key: Key,
        name: str,
        problem: Problem,
        strategy: Node,
        *,
        budget: Budget,
        engines: Mapping[str, Engine],
    ) -> Trace | None:
        """The trace of a run that begins; `None` where nothing is kept."""
        if not self._most:
            return None
        names = {role: engine.name for role, engine in engines.items()}
        trace = Trace(name, problem, strategy, budget=budget, engines=names)
        own = self._runs.setdefault(key.name, OrderedDict())
        own[name] = trace
        while len(own) > self._most:
            own.popitem(last=False)
        return trace

    def runs(self, request: Request) -> Sequence[RunLine]:
        """The runs of the caller's key, the newest first."""
        own = self._runs.get(self._key_of(request).name, OrderedDict())
        return [trace.line for trace in reversed(list(own.values()))]

    def view(self, request: Request, name: str) -> Trace | None:
        """One of them."""
        return self._runs.get(self._key_of(request).name, OrderedDict()).get(name)
