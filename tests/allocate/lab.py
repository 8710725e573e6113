"""Many problems with one budget, alive and on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ttc
from tests.core.lab import Ledgers, check_no_task_is_left
from ttc import Budget, Control, Node, Outcome
from ttc.allocate import Allocator
from ttc.benchmarks.allocation import MAX_TOKENS, World
from ttc.engine.simulator import Hardware, SimulatedProblem, Simulator
from ttc.strategies import Best, Sample
from ttc.testing import ManualClock, ScriptedVerifier

RIGHT = ScriptedVerifier({"1": 1.0, "2": 0.0})
FIRST_RIGHT = (
    Sample(n="budget", max_tokens=MAX_TOKENS, at_least=MAX_TOKENS, ahead=8)
    >> RIGHT
    >> Best(enough=1.0)
)
"""Samples until one is right: the strategy that `benchmarks.allocation` plays without a run."""


@dataclass
class Ran:
    """Outcomes, and what was counted on the way to them."""

    outcomes: list[Outcome]
    engine: Simulator
    ledgers: Ledgers

    @property
    def solved(self) -> list[bool]:
        """Whether each problem's answer is right."""
        return [outcome.answer == "1" for outcome in self.outcomes]

    @property
    def tokens(self) -> int:
        """What all of them spent."""
        return sum(outcome.usage.tokens for outcome in self.outcomes)

    @property
    def seen(self) -> list[tuple[object, ...]]:
        """What no timing may change."""
        return [
            (
                o.answer,
                o.stopped_by,
                [c.text for c in o.candidates],
                o.usage.tokens - o.usage.tokens_cancelled,
            )
            for o in self.outcomes
        ]


def solved(
    laws: Sequence[SimulatedProblem],
    allocator: Allocator | str,
    tokens: int,
    *,
    graph: Node = FIRST_RIGHT,
    concurrency: int = 64,
    pace: float = 0.01,
    seed: int = 0,
    budget: Budget | None = None,
    per_problem: Budget | None = None,
    steer: tuple[float, Callable[[Control], object]] | None = None,
) -> Ran:
    """Solves problems under an allocator and checks that all was settled within the budget."""
    clock, ledgers = ManualClock(), Ledgers()
    hardware = Hardware(seconds_per_token=pace)
    engine = Simulator(laws, seed=seed, hardware=hardware, clock=clock)
    control = Control()
    if steer is not None:
        moment, change = steer
        clock.call_later(moment, lambda: void(change(control)))

    async def run() -> list[Outcome]:
        outcomes = await ttc.asolve_many(
            [law.problem for law in laws],
            graph,
            model=engine,
            budget=budget or Budget(tokens=tokens),
            per_problem=per_problem,
            allocator=allocator,
            concurrency=concurrency,
            seed=seed,
            clock=clock,
            control=control,
        )
        check_no_task_is_left()
        return outcomes

    with ledgers:
        outcomes = clock.run(run())
    if steer is None:
        ledgers.check()
    ledgers.check_settled()
    ran = Ran(outcomes, engine, ledgers)
    assert len(outcomes) == len(laws)
    assert steer is not None or ran.tokens <= tokens
    assert sum(outcome.usage.output_tokens for outcome in outcomes) == engine.output_tokens
    return ran


def void(_: object) -> None:
    """Nothing."""


def laws(count: int, seed: int = 0) -> list[SimulatedProblem]:
    """Problems as the benchmark draws them."""
    return World(seed, count).laws


__all__ = ["FIRST_RIGHT", "RIGHT", "Ran", "laws", "solved"]
