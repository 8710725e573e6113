"""Traces: the recent runs of each key, for the viewer at `/ui`. A key sees its own alone."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from ttc.graph import Node
from ttc.ports import Engine
from ttc.serve.keys import Key
from ttc.serve.share import speller
from ttc.types import Budget, Event, Outcome, Problem
from ttc.view import RunLine
from ttc.view.recorder import Recorder
from ttc.view.run import RunView

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["Trace", "Traces"]

_SHOWN = 200


class Trace:
    """One run of a request: pass it as `watch=`, and its outcome to `finish`.

    What the page reads is made once somebody looks; until then its events are kept as they are.
    """

    def __init__(
        self,
        name: str,
        problem: Problem,
        strategy: Node,
        *,
        budget: Budget,
        engines: Mapping[str, Engine],
    ) -> None:
        self.outcome: Outcome | None = None
        """What it came to, once it has ended."""
        self._at: float = monotonic()
        self._name, self._problem, self._strategy = name, problem, strategy
        spellers = {role: speller(engine) for role, engine in engines.items()}
        self._make = partial(
            Recorder,
            name,
            problem,
            strategy,
            budget=budget,
            engines={role: engine.name for role, engine in engines.items()},
            spell={role: known.spell for role, known in spellers.items() if known is not None},
            now=lambda: self._at,
        )
        self._lock = threading.Lock()
        self._told: deque[tuple[float, Event]] = deque()
        self._recorder: Recorder | None = None
        self._is_whole = False

    def __call__(self, event: Event) -> None:
        """Takes an event of the run. Any thread may call it."""
        self._told.append((monotonic(), event))

    def finish(self, outcome: Outcome) -> None:
        """Takes what the run came to."""
        self.outcome = outcome
        self._told = deque()  # the outcome tells it all

    @property
    def view(self) -> RunView:
        """What the page reads."""
        with self._lock:
            recorder = self._recorder = self._recorder or self._make()
            told = self._told
            while told:
                self._at, event = told.popleft()
                recorder(event)
            if self.outcome is not None and not self._is_whole:
                recorder.finish(self.outcome)
                self._is_whole = True
            return recorder

    @property
    def line(self) -> RunLine:
        """What the list of runs tells of it."""
        asked, outcome = self._problem, self.outcome
        question = asked.prompt if asked.prompt is not None else asked.messages[-1].content
        return RunLine(
            name=self._name,
            state="running" if outcome is None else "finished",
            question=question[:_SHOWN],
            answer=None if outcome is None else (outcome.answer or "")[:_SHOWN] or None,
            tokens=None if outcome is None else outcome.usage.tokens,
            strategy=repr(self._strategy)[:_SHOWN],
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
        trace = Trace(name, problem, strategy, budget=budget, engines=engines)
        own = self._runs.setdefault(key.name, OrderedDict())
        own[name] = trace
        while len(own) > self._most:
            own.popitem(last=False)
        return trace

    def runs(self, request: Request) -> Sequence[RunLine]:
        """The runs of the caller's key, the newest first."""
        own = self._runs.get(self._key_of(request).name, OrderedDict())
        return [trace.line for trace in reversed(list(own.values()))]

    def view(self, request: Request, name: str) -> RunView | None:
        """One of them."""
        trace = self._runs.get(self._key_of(request).name, OrderedDict()).get(name)
        return None if trace is None else trace.view
