"""Growth: whether more budget ever makes a strategy worse, on simulated problems.

The verifier is perfect, and the problems and the draws are the same at each budget, so that what is
compared are pairs. A strategy that never gets worse fails with a chance of 4e-6 a comparison.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from ttc.graph import Node
from ttc.manual_clock import ManualClock
from ttc.ports import Verifier
from ttc.prices import Prices
from ttc.registry import room
from ttc.solve import asolve
from ttc.testing.fakes import ScriptedVerifier
from ttc.types import Budget

__all__ = ["check_growth"]

_AT_ONCE = 32
_SIZE = 8
_TIMES = (1, 2, 4)
_MOST_ERRORS = 4.5
_RESERVED = 512
"""What one call has reserved by default."""
_GARBAGE = 50_000
"""Objects that are made before Python looks through the youngest of them for garbage."""


class _Ran(NamedTuple):
    """What is kept of an outcome."""

    is_right: bool
    tokens: int


def check_growth(make: Callable[[int, Verifier], Node], problems: int) -> str | None:
    """More budget never makes it worse, with a perfect verifier."""
    laws = _laws(problems)
    graph = make(_SIZE, ScriptedVerifier(lambda c: None if c.key is None else c.answer == "1"))
    whole = [run.tokens for run in _runs(graph, laws[:20], None)]
    least = max(1, (max(whole) + _RESERVED) // max(_TIMES))  # the last one binds nobody
    with _seldom_collected():
        rights = [
            [float(run.is_right) for run in _runs(graph, laws, Budget(tokens=least * times))]
            for times in _TIMES
        ]
    shares = [fmean(right) for right in rights]
    if not any(shares):
        raise AssertionError(
            f"none of {problems} problems was ever right, so nothing could get worse; let it "
            "answer simulated problems, or exempt it"
        )
    told = ", ".join(
        f"{share:.3f} at {least * times}" for share, times in zip(shares, _TIMES, strict=True)
    )
    for less, more in pairwise(rights):
        errors = _errors(less, more)
        if errors < -_MOST_ERRORS:
            raise AssertionError(f"right: {told} tokens; twice as many cost {-errors:.1f} errors")
    return f"right: {told} tokens, of {problems} problems"


def _errors(less: Sequence[float], more: Sequence[float]) -> float:
    """How many standard errors better it is with more."""
    gains = [b - a for a, b in zip(less, more, strict=True)]
    mean = fmean(gains)
    variance = fmean((gain - mean) ** 2 for gain in gains)
    if variance == 0:
        return 0.0 if mean == 0 else math.copysign(math.inf, mean)
    return mean / math.sqrt(variance / len(gains))


def _laws(count: int) -> list[Any]:
    """Problems from hopeless to easy, whose wrong answers agree more or less."""
    simulator, random = room("engine.simulator"), Random(5)
    lengths = simulator.Lengths(median=40, sigma=0.35)
    return [
        simulator.SimulatedProblem(
            id=f"p{number}",
            success=0.9 * random.random(),
            silent=0.05,
            wrong=random.choice(((1.0,), (2.0, 1.0), (1.0, 1.0, 1.0, 1.0))),
            lengths=lengths,
        )
        for number in range(count)
    ]


def _runs(graph: Node, laws: Sequence[Any], budget: Budget | None) -> list[_Ran]:
    """What came of each problem, several at once."""
    clock = _Together()
    engine = room("engine.simulator").Simulator(laws, clock=clock)

    async def one(seed: int) -> _Ran:
        outcome = await asolve(
            laws[seed].problem,
            graph,
            model=engine,
            budget=budget,
            seed=seed,
            clock=clock,
            prices=Prices(),
        )
        return _Ran(outcome.answer == "1", outcome.usage.tokens)

    async def all_of_them() -> list[_Ran]:
        places = range(len(laws))
        parts = [places[start : start + _AT_ONCE] for start in places[::_AT_ONCE]]
        return [run for part in parts for run in await asyncio.gather(*map(one, part))]

    return clock.run(all_of_them())


class _Together(ManualClock):
    """Whatever ends at the same moment ends in one turn of the event loop."""

    def jump(self) -> bool:
        """Moves to the next timer, and calls back all whose time that is."""
        has_moved = super().jump()
        self.advance(0.0)
        return has_moved


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Lets Python look for garbage less often: so many small objects make it look all the time."""
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
