"""What breaks in a soak: the model, the scheduler, the memory, the thread, and whoever reads along.

Each fault is of a known kind, and so is the error that it must end a call with. Any other error is
a finding.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Literal

import torch

from ttc.engine.local import LocalEngine
from ttc.engine.local.plan import PAGE
from ttc.engine.local.sample import NOT_FINITE
from ttc.engine.local.tree import Match
from ttc.errors import EngineError, MemoryExhausted, StreamStalled
from ttc.types import Chunk

__all__ = ["Faults", "Kind", "Readers", "kind_of"]

Kind = Literal["model", "nan", "scheduler", "full", "starved", "thread"]
_ON_PURPOSE = "a fault on purpose"
_GONE = "the reader has gone"
_TEXTS = {
    "nan": NOT_FINITE,
    "model": f"the engine's step failed: RuntimeError('{_ON_PURPOSE}')",
    "scheduler": f"the engine's scheduler failed: RuntimeError('{_ON_PURPOSE}')",
    "thread": "the engine's thread has ended: SystemExit(",
    "reader gone": f"on_chunk failed: ConnectionError('{_GONE}')",
}


def kind_of(error: EngineError) -> str:
    """Which fault a call has ended with.

    Raises:
        AssertionError: none that was made.
    """
    if isinstance(error, MemoryExhausted):
        return "starved"
    if isinstance(error, StreamStalled):
        return "reader stopped"
    found = [kind for kind, text in _TEXTS.items() if text in str(error)]
    assert found, f"a call ended with an error that nobody has made: {error!r}"
    return found[0]


class Faults:
    """Breaks an engine's next step, when it is told to. They act on the engine's own thread."""

    def __init__(self, engine: LocalEngine) -> None:
        self.pending: list[Kind] = []
        self.made: Counter[str] = Counter()
        batch = engine._batch
        self._tree = batch.tree
        self._forward, self._choose = batch.model.forward, batch.schedule.choose
        vars(batch.model)["forward"] = self._computed
        vars(batch.schedule)["choose"] = self._chosen

    def _is_next(self, kind: Kind) -> bool:
        if self.pending[-1:] != [kind]:
            return False
        self.made[self.pending.pop()] += 1
        return True

    def _chosen(self, seats: Any) -> Any:
        if self._is_next("thread"):
            raise SystemExit(_ON_PURPOSE)
        if self._is_next("scheduler"):
            raise RuntimeError(_ON_PURPOSE)
        if self._is_next("full"):
            return self._without_memory(seats)
        work = self._choose(seats)
        if work.pieces and self._is_next("starved"):
            work.starved = work.pieces.pop().sequence
        return work

    def _without_memory(self, seats: Any) -> Any:
        """Chooses while something that is no call holds every page that is left."""
        tree = self._tree
        path = tree.join(Match(shared=(), source=None, copied=0, length=0, salt="nobody"))
        tree.grow(path, tree.num_available * PAGE)
        try:
            return self._choose(seats)
        finally:
            tree.release(path)

    def _computed(self, *inputs: Any) -> torch.Tensor:
        if self._is_next("model"):
            raise RuntimeError(_ON_PURPOSE)
        outputs: torch.Tensor = self._forward(*inputs)
        if len(outputs) and self._is_next("nan"):
            outputs[-1, 7] = torch.nan
        return outputs


class Readers:
    """Whoever reads along: some go away, and some stop reading without a word.

    Args:
        random: decides who does what.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._go_on = threading.Event()

    def some(self) -> Callable[[Chunk], None] | None:
        """Nobody, one who reads everything, or one who goes after three pieces."""
        left = self._random.choice((None, None, 3, 10**6))
        if left is None:
            return None

        def read(chunk: Chunk) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise ConnectionError(_GONE)

        return read

    def stopped(self) -> Callable[[Chunk], None]:
        """One who takes the first piece and does not return until `release`."""
        go_on = self._go_on

        def read(chunk: Chunk) -> None:
            go_on.wait(600)

        return read

    def release(self) -> None:
        """Lets those who stopped read on, whose calls are over by now or soon."""
        self._go_on.set()
        self._go_on = threading.Event()
