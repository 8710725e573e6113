"""The first steps of a model, at load: they touch its weights and tell how long steps take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from ttc.engine.local.curve import Load
from ttc.engine.local.kv import KVPool
from ttc.engine.local.model import Model
from ttc.engine.local.plan import PAGE, Plan, Span
from ttc.engine.local.sample import Draw
from ttc.types import Sampling

__all__ = ["warm_up", "warm_up_well"]

_LIMIT_S = 0.1
_LONGER_S, _TRIES = 0.7, 3
_ROWS = (1, 4, 16, 64)
_FEW = 4  # rows whose time decides what drafts are worth
_LONG = 256  # positions that rows see in the step which tells what positions cost


def warm_up(
    model: Model, limit_s: float = _LIMIT_S, least_rows: int = 0
) -> list[tuple[Load, float]]:
    """Runs steps of more and more rows, and returns how long each took.

    It ends before a step that would pass the limit, and runs one step at least, and those of
    `least_rows`.
    """
    pool = model.make_pool(max(_ROWS[-1], _LONG // PAGE))
    measured: list[tuple[Load, float]] = []
    begun = time.perf_counter()
    first = _step(model, pool, 1, 0)  # brings the weights into memory, so it is slower
    for rows, seen in _steps():
        left = limit_s - (time.perf_counter() - begun)
        last = measured[-1] if measured else first
        if rows > least_rows and left < last[1] * max(1.0, rows / last[0].rows):
            break
        measured.append(_step(model, pool, rows, seen))
    return measured or [first]


def warm_up_well(model: Model) -> list[tuple[Load, float]]:
    """The same with more time, and the shortest of several tries: what rows take decides more."""
    tries = [warm_up(model, _LONGER_S, _FEW) for _ in range(_TRIES)]
    return [min(same, key=lambda one: one[1]) for same in zip(*tries, strict=False)]


def _steps() -> Iterator[tuple[int, int]]:
    """Rows, and how many positions each sees besides its own."""
    yield _ROWS[0], 0
    yield _ROWS[1], 0
    yield _ROWS[1], _LONG - 1
    for rows in _ROWS[2:]:
        yield rows, 0


def _step(model: Model, pool: KVPool, rows: int, before: int) -> tuple[Load, float]:
    pages = range(before // PAGE + 1)
    spans = [
        Span(pages=pages if before else [row], start=before - row % PAGE if before else 0, count=1)
        for row in range(rows)
    ]
    has_head = model.config.reward is None
    wanted = torch.arange(rows)
    draws = [Draw(sampling=Sampling(), seed=row, position=0) for row in range(rows)]
    begun = time.perf_counter()
    outputs = model.forward(torch.zeros(rows, dtype=torch.int64), Plan(spans), pool, wanted)
    if has_head:
        with contextlib.suppress(ArithmeticError):  # whoever asks the model will be told
            model.draw(outputs, draws)
    seconds = time.perf_counter() - begun
    seen = sum(span.start + 1 for span in spans)
    return Load(rows=rows, draws=rows if has_head else 0, seen=seen), seconds
