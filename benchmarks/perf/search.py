"""What the driver of searches gives and costs: workers kept busy, quality, memory, time.

Run as `python benchmarks/perf/search.py [--json PATH] [--asks N] [--seeds N] [--model NAME]`.

A best-first search runs on a fake model whose steps take log-normal times, by a clock that jumps.
Its speed-up is the time that 32 workers spend on steps over 32 times the time that passes, so 1 is
ideal: the mean over latency seeds. The quality is the value of the best solution found, in the mean
over worlds, beside that of a search with a window of 1, which sees every result before its next
step; the error is that of the paired difference.

Memory is what a process grows by for a search of 10,000 nodes with all that was drawn for it. The
policy's share is the processor time of its asks and tells over the time of a run on a real model.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import ttc
from ttc.benchmarks.results import write_result
from ttc.ports import Request, Scope
from ttc.strategies import Best, BestFirst, Rebase, Sentence, Vote
from ttc.testing import FakeEngine, ManualClock, ScriptedVerifier
from ttc.types import Candidate, Order
from ttc.verifiers import SequenceProbability

__all__ = ["Found", "main", "search"]

WORKERS = 32
DEPTH = 6
NODES = 10_000
CASES: tuple[tuple[Order, float, int], ...] = (
    ("launch", 0.35, 64),
    ("launch", 0.7, 128),
    ("launch", 1.0, 256),
    ("arrival", 0.7, 64),
    ("arrival", 1.0, 64),
)
"""How results are told, the sigma of the times, and the window."""
GOALS = {("launch", 0.35): 0.8, ("launch", 0.7): 0.8, ("arrival", 1.0): 0.8}
MOST_BYTES = 200e6
MOST_SHARE = 0.02
Row = dict[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Found:
    """What a search came to."""

    speed_up: float
    """As a share of the number of workers."""
    quality: float
    """The value of its best solution."""


class World:
    """Steps that are worth something, and how long they take."""

    def __init__(self, sigma: float, latencies: int) -> None:
        self._sigma, self._latencies = sigma, latencies

    def reply(self, request: Request) -> str:
        """A step with its gain, or the end of a solution."""
        gain = Random(request.seed).gauss(0.0, 1.0)
        return f"{gain:.4f}" if _is_last(request) else f"{gain:.4f}\n\n"

    def pace(self, request: Request) -> float:
        """Seconds of each token of a step: two, but one where it is the last, with no delimiter."""
        seconds = Random(request.seed ^ self._latencies << 70).lognormvariate(0.0, self._sigma)
        return seconds if _is_last(request) else seconds / 2


def _is_last(request: Request) -> bool:
    """Whether a solution ends with this step."""
    depth = sum(segment.parent is not None for segment in request.branch.lineage())
    return depth == DEPTH - 1


def value(candidate: Candidate) -> float:
    """The sum of all gains until now: of many solutions it is the best that counts."""
    return sum(map(float, candidate.text.split()))


class BusyEngine(FakeEngine):
    """Knows how long its calls took together."""

    def __init__(self, world: World, clock: ManualClock, workers: int) -> None:
        super().__init__(
            world.reply, clock=clock, seconds_per_token=world.pace, concurrency=workers
        )
        self.seconds = 0.0

    def submit(self, request: Request, on_chunk: Any = None) -> Any:
        """Adds up what a call will take."""
        generation, pace = super().submit(request, on_chunk), self.pace(request)
        generation.future.add_done_callback(
            lambda done: self._add(pace * len(done.result().token_ids or ()))
        )
        return generation

    def _add(self, seconds: float) -> None:
        self.seconds += seconds


def search(
    order: Order, sigma: float, window: int, *, asks: int, seed: int, latencies: int
) -> Found:
    """One search in one world, with times of their own seed."""
    clock = ManualClock()
    engine = BusyEngine(World(sigma, latencies), clock, WORKERS if window > 1 else 1)
    strategy = (
        BestFirst(
            ScriptedVerifier(value, name="value", range=None),
            width=4,
            num_answers=asks,
            max_expansions=asks,
            num_expanding=max(1, window),
            window=window,
            order=order,
        )
        >> Best()
    )
    outcome = clock.run(ttc.asolve("Which?", strategy, model=engine, clock=clock, seed=seed))
    best = outcome.candidate.scores["value"].value if outcome.candidate is not None else None
    return Found(engine.seconds / (WORKERS * clock.now()), best or 0.0)


def kept_busy(asks: int, seeds: int) -> list[Row]:
    """Speed-up and quality of each case, over latency seeds and worlds."""
    alone = [
        search("launch", 0.35, 1, asks=asks, seed=seed, latencies=0).quality
        for seed in range(seeds)
    ]
    rows: list[Row] = []
    for order, sigma, window in CASES:
        found = [
            search(order, sigma, window, asks=asks, seed=seed, latencies=seed + 1)
            for seed in range(seeds)
        ]
        lost = [one.quality - best for one, best in zip(found, alone, strict=True)]
        speed_up = statistics.mean(one.speed_up for one in found)
        goal = GOALS.get((order, sigma))
        rows.append(
            {
                "row": "driver",
                "order": order,
                "sigma": sigma,
                "window": window,
                "workers": WORKERS,
                "asks": asks,
                "seeds": seeds,
                "speed_up": round(speed_up, 3),
                "goal": goal,
                "is_met": None if goal is None else speed_up >= goal,
                "quality": round(statistics.mean(one.quality for one in found), 4),
                "quality_alone": round(statistics.mean(alone), 4),
                "difference": round(statistics.mean(lost), 4),
                "standard_error": round(statistics.stdev(lost) / math.sqrt(seeds), 4),
            }
        )
        print(rows[-1], flush=True)
    return rows


def memory() -> Row:
    """What a search of many nodes makes a process grow by, and how long it takes."""

    def peak(asks: int) -> tuple[int, float]:
        command = [sys.executable, __file__, "--grow", str(asks)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        return int(told[0]), float(told[1])

    (small, _), (large, seconds) = peak(1), peak(NODES)
    grown = large - small
    return {
        "row": "memory",
        "nodes": NODES,
        "bytes": grown,
        "goal": MOST_BYTES,
        "is_met": grown < MOST_BYTES,
        "processor_seconds": round(seconds, 2),
    }


def grow(asks: int) -> None:
    """Searches and tells the process's peak in bytes, and its processor time."""
    start = time.process_time()
    search("launch", 0.35, 64, asks=asks, seed=0, latencies=1)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_maxrss * 1024, time.process_time() - start)


@dataclass(frozen=True)
class Timed:
    """A policy whose processor time is added up."""

    policy: Any
    spent: list[int] = field(default_factory=list)

    def init(self) -> Any:
        """As it is."""
        return self.policy.init()

    def ask(self, state: Any, seed: int) -> Any:
        """Timed."""
        start = time.thread_time_ns()
        try:
            return self.policy.ask(state, seed)
        finally:
            self.spent.append(time.thread_time_ns() - start)

    def tell(self, state: Any, result: Any) -> Any:
        """Timed."""
        start = time.thread_time_ns()
        try:
            return self.policy.tell(state, result)
        finally:
            self.spent.append(time.thread_time_ns() - start)


@dataclass(frozen=True)
class TimedRebase(Rebase):
    """Rebase whose policy is timed."""

    timed: list[Timed] = field(default_factory=list, kw_only=True)

    def policy(self, scope: Scope) -> Any:
        """Its policy, in a stopwatch."""
        self.timed.append(Timed(super().policy(scope)))
        return self.timed[-1]


def policy_share(model: str) -> Row:
    """The share of a run on a real model that its policy takes."""
    strategy = TimedRebase(
        SequenceProbability(), width=16, max_steps=8, steps=Sentence(48), temperature=0.8
    )
    ttc.solve("What is 2 + 2?", "greedy(max_tokens=4)", model=model, seed=0)  # loads it
    start = time.perf_counter()
    ttc.solve(
        "Tom has 3 boxes of 12 pens and gives 7 away. How many are left?",
        strategy >> Vote(weighted=True),
        model=model,
        seed=0,
    )
    elapsed = time.perf_counter() - start
    spent = sum(strategy.timed[0].spent) / 1e9
    return {
        "row": "policy",
        "model": model,
        "seconds": round(elapsed, 2),
        "policy_seconds": round(spent, 4),
        "share": round(spent / elapsed, 5),
        "goal": MOST_SHARE,
        "is_met": spent / elapsed < MOST_SHARE,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints, and writes what was measured."""
    parser = argparse.ArgumentParser(description="Measures the driver of searches.")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--asks", type=int, default=2000, help="steps of a search")
    parser.add_argument("--seeds", type=int, default=10, help="worlds and latency seeds")
    parser.add_argument("--model", help="a real model, for the policy's share of a run")
    parser.add_argument("--grow", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.grow is not None:
        grow(chosen.grow)
        return
    rows = kept_busy(chosen.asks, chosen.seeds)
    rows.append(memory())
    print(rows[-1])
    if chosen.model:
        rows.append(policy_share(chosen.model))
        print(rows[-1])
    if chosen.json is not None:
        command = ["python", "benchmarks/perf/search.py", *(arguments or sys.argv[1:])]
        write_result(chosen.json, command=command, rows=rows, seed=0)


if __name__ == "__main__":
    main()
