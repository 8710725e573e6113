"""Traces: the recent runs of each key, for the viewer at `/ui`. A key sees its own alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ttc.graph import Node
from ttc.ports import Engine
from ttc.serve.keys import Key
from ttc.types import Budget, Problem
from ttc.view import RunLine
from ttc.view.recorder import Recorder

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Traces"]

_SHOWN = 200


class Traces:
    """The last `most` runs of each key, in memory; implements `ttc.view.Source`.

    Args:
        most: how many; with 0 nothing is kept.
        key_of: whose key a request brings.
    """

    def __init__(self, most: int, key_of: Callable[[Request], Key]) -> None:
        self._most, self._key_of = most, key_of
        self._runs: dict[str, OrderedDict[str, Recorder]] = {}

    def record(
        self,
        key: Key,
        name: str,
        problem: Problem,
        strategy: Node,
        *,
        budget: Budget,
        engines: Mapping[str, Engine],
    ) -> Recorder | None:
        """What a run that begins is told to; `None` where nothing is kept."""
        if not self._most:
            return None
        names = {role: engine.name for role, engine in engines.items()}
        recorder = Recorder(name, problem, strategy, budget=budget, engines=names)
        own = self._runs.setdefault(key.name, OrderedDict())
        own[name] = recorder
        while len(own) > self._most:
            own.popitem(last=False)
        return recorder

    def runs(self, request: Request) -> Sequence[RunLine]:
        """The runs of the caller's key, the newest first."""
        own = self._runs.get(self._key_of(request).name, {})
        return [_line(recorder) for recorder in reversed(list(own.values()))]

    def view(self, request: Request, name: str) -> Recorder | None:
        """One of them."""
        return self._runs.get(self._key_of(request).name, OrderedDict()).get(name)


def _line(recorder: Recorder) -> RunLine:
    told = recorder.document()
    problem, end = told["run"]["problem"], told["end"]
    question = str(problem["prompt"] or problem["messages"][-1]["content"])
    return RunLine(
        name=recorder.name,
        state=recorder.state,
        question=question[:_SHOWN],
        answer=None if end is None or end["answer"] is None else end["answer"][:_SHOWN],
        tokens=None if end is None else end["usage"].get("tokens", 0),
        strategy=str(told["run"].get("strategy") or "")[:_SHOWN],
    )
