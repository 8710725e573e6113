"""A fleet: many simulated endpoints behind one engine, and runs over many problems on it.

Each endpoint is a simulator with its own memory and its own line. All calls of a problem go to one
of them, by the weights that the engine of servers goes by. The fleet counts on its own what ttc's
ledger promises, at every call that it is given: what was produced and what may still be produced
never exceed the budget of the shard that runs.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ttc.engine.openai.routes import Route, Routes
from ttc.engine.simulator import Hardware, Lengths, SimulatedProblem, Simulator
from ttc.manual_clock import ManualClock
from ttc.ports import Generation, Request
from ttc.shards import Merged, Plan, merge, write_result
from ttc.solve import asolve_many
from ttc.types import Branch, Budget, Chunk, Outcome, Usage

__all__ = ["Figures", "Fleet", "laws", "simulate"]

STRATEGY = "sample(n=4, max_tokens=96) >> vote(stop=cannot_be_overtaken())"


class Fleet(Simulator):
    """So many simulators in the place of one; counts what runs on each."""

    def __init__(
        self,
        problems: Sequence[SimulatedProblem],
        *,
        endpoints: int,
        hardware: Hardware,
        clock: ManualClock,
        tokens: int,
    ) -> None:
        """A fleet.

        Args:
            problems: the laws.
            endpoints: how many simulators there are.
            hardware: that of each.
            clock: what latencies are measured by.
            tokens: the budget that no instant may exceed.
        """
        super().__init__(problems, hardware=hardware, clock=clock)
        self.endpoints = [
            Simulator(problems, hardware=hardware, clock=clock) for _ in range(endpoints)
        ]
        self.most = 0
        """The most output tokens that were ever spent or reserved."""
        self.limit = tokens
        self._spent = self._reserved = 0
        routes = [Route(f"{place}", object) for place in range(endpoints)]
        self._routes = Routes(routes, concurrency=1)

    def submit(  # type: ignore[override]
        self, request: Request, on_chunk: Callable[[Chunk], None] | None = None
    ) -> _Counted:
        """Gives a call to the endpoint of its problem."""
        self._reserved += request.max_tokens
        self.most = max(self.most, self._spent + self._reserved)
        if self._spent + self._reserved > self.limit:
            raise AssertionError(f"{self._spent} + {self._reserved} tokens of {self.limit}")
        problem = next(request.branch.lineage()).text
        endpoint = self.endpoints[int(self._routes.order(problem)[0].url)]
        return _Counted(self, request.max_tokens, endpoint.submit(request, on_chunk))

    def settled(self, allowed: int, produced: int) -> None:
        """Counts a call that has ended."""
        self._reserved -= allowed
        self._spent += produced


class _Counted:
    """A call, which is settled once."""

    def __init__(self, fleet: Fleet, allowed: int, call: Generation) -> None:
        self._fleet, self._allowed, self._call = fleet, allowed, call
        self._is_settled = False
        self.future = call.future
        self.future.add_done_callback(self._ended)

    @property
    def usage(self) -> Usage:
        """As the endpoint measures it."""
        return self._call.usage

    def cancel(self) -> int:
        """Ends it."""
        produced = self._call.cancel()
        self._settle(produced)
        return produced

    def _ended(self, future: Any) -> None:
        branch: Branch = future.result()
        self._settle(branch.length or 0)

    def _settle(self, produced: int) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._fleet.settled(self._allowed, produced)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a run over a fleet came to."""

    merged: Merged
    calls: int
    most_tokens: float
    """Of one shard, the most that was ever spent or reserved, as a part of its budget."""
    most_kv: float
    """Of one endpoint, the most memory that was ever held, as a part of what it has."""
    balance: float
    """Calls of the busiest endpoint, over those of the mean."""
    peaks: tuple[int, ...]
    """The process's peak memory in bytes, after each shard."""
    processor_seconds: float
    simulated_seconds: float
    whole: tuple[Outcome, ...]
    """The first shards' problems in one undivided run."""


def laws(count: int, seed: int = 0) -> Iterator[SimulatedProblem]:
    """Problems of all difficulties."""
    for place in range(count):
        chance = ((place * 7919 + seed) % 101) / 101
        yield SimulatedProblem(
            id=f"p{place}", success=chance, wrong=(3.0, 2.0, 1.0), lengths=Lengths(median=48)
        )


def simulate(
    folder: Path, *, problems: int, shards: int, endpoints: int, tokens_each: int = 260
) -> Figures:
    """Runs many problems on a fleet, shard after shard, and one part of them undivided.

    Args:
        folder: where the plan and the results go.
        problems: how many.
        shards: how many shards they are divided into.
        endpoints: how many simulators the calls go to.
        tokens_each: the budget of a problem in the mean; less than all samples would take.
    """
    made = list(laws(problems))
    plan = Plan(
        problems=tuple(law.problem for law in made),
        strategy=STRATEGY,
        models={"policy": "simulator"},
        budget=Budget(tokens=tokens_each * problems),
        count=shards,
        concurrency=512,
        seed=3,
    )
    plan.write(folder)
    began, hardware = time.process_time(), Hardware(seconds_per_token=0.01, kv_tokens=3_000)
    calls, most, kv, simulated = [0] * endpoints, 0.0, 0, 0.0
    peaks = []
    for shard in range(shards):
        own, part = [made[place] for place in plan.places(shard)], plan.part(shard)
        clock = ManualClock()
        fleet = Fleet(
            own, endpoints=endpoints, hardware=hardware, clock=clock, tokens=part.tokens or 0
        )
        outcomes = _solved(plan, fleet, clock, own, part)
        write_result(folder, shard, outcomes)
        calls = [n + e.calls for n, e in zip(calls, fleet.endpoints, strict=True)]
        most = max(most, fleet.most / fleet.limit)
        kv = max(kv, *(endpoint.most_kv_tokens for endpoint in fleet.endpoints))
        simulated += clock.now()
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return Figures(
        merged=merge(folder),
        calls=sum(calls),
        most_tokens=most,
        most_kv=kv / hardware.kv_tokens,
        balance=max(calls) * endpoints / sum(calls),
        peaks=tuple(peaks),
        processor_seconds=time.process_time() - began,
        simulated_seconds=simulated,
        whole=_undivided(plan, made, hardware),
    )


def _undivided(
    plan: Plan, made: Sequence[SimulatedProblem], hardware: Hardware
) -> tuple[Outcome, ...]:
    """The first two shards in one run, with the budgets that they had together."""
    count = min(plan.count, 2)
    own = [made[place] for shard in range(count) for place in plan.places(shard)]
    tokens = sum(plan.part(shard).tokens or 0 for shard in range(count))
    clock = ManualClock()
    fleet = Fleet(own, endpoints=3, hardware=hardware, clock=clock, tokens=tokens)
    return tuple(_solved(plan, fleet, clock, own, Budget(tokens=tokens)))


def _solved(
    plan: Plan,
    fleet: Fleet,
    clock: ManualClock,
    own: Sequence[SimulatedProblem],
    part: Budget,
) -> list[Outcome]:
    running = asolve_many(
        [law.problem for law in own],
        plan.strategy,
        model=fleet,
        budget=part,
        concurrency=plan.concurrency,
        seed=plan.seed,
        clock=clock,
    )
    return clock.run(running)
