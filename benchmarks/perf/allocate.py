"""What giving units away costs: processor time for a call, and memory for many problems.

Run as `python benchmarks/perf/allocate.py [--json PATH] [--problems N]`. The first row drives the
machine alone with 10,000 problems open and as many units in flight. The second solves simulated
problems, 256 of them open at once, in a process of its own whose peak memory is told.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from ttc.allocate import Allocation, GreedyGain, Terms, Unit
from ttc.benchmarks.results import write_result

OPEN = 10_000
MOST_MICROSECONDS = 60.0
MOST_GIB = 1.0
CHILD = """
import asyncio, sys
import ttc
from ttc.allocate import GreedyGain
from ttc.engine.simulator import SimulatedProblem, Simulator
from ttc.strategies import Sample, Vote
from ttc.testing import ManualClock
count = int(sys.argv[1])
laws = [SimulatedProblem(id=str(i), success=0.5) for i in range(count)]
clock = ManualClock()
engine, graph = Simulator(laws, clock=clock), Sample(n=2, ahead=1) >> Vote()
outcomes = clock.run(ttc.asolve_many(
    [law.problem for law in laws], graph, model=engine, budget=ttc.Budget(tokens=count * 2000),
    allocator=GreedyGain(num_open=256), clock=clock, seed=0))
assert len(outcomes) == count <= sum(outcome.usage.calls for outcome in outcomes)
"""


def microseconds(num_units: int = 100_000) -> float:
    """Processor time for asking for a unit and telling its result, at 10,000 open tickets."""
    allocator = GreedyGain(window=OPEN, num_open=OPEN)
    terms = Terms(tokens=10**9, num_problems=OPEN, unit=256)
    machine = Allocation(allocator, terms, [str(i) for i in range(OPEN)])
    while isinstance(machine.ask(), Unit):
        pass
    began = time.process_time()
    for _ in range(num_units):
        oldest = machine.oldest
        assert oldest is not None
        machine.tell(oldest, tokens=128, offer=(1.0 / (2 + oldest.number % 97), 128.0, None))
        assert isinstance(machine.ask(), Unit)
    return (time.process_time() - began) / num_units * 1e6


def peak_gib(num_problems: int) -> tuple[float, float]:
    """The peak memory of a run over many problems, and its microseconds for a call."""
    subprocess.run([sys.executable, "-c", CHILD, str(num_problems)], check=True)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_maxrss / 2**20, (usage.ru_utime + usage.ru_stime) / (2 * num_problems) * 1e6


def main() -> None:
    """Measures, prints, and writes the figures where it is asked to."""
    parser = argparse.ArgumentParser(description="What giving units away costs.")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--problems", type=int, default=100_000, help="problems of the second row")
    arguments = parser.parse_args()
    unit = microseconds()
    print(f"{unit:.1f} us of {MOST_MICROSECONDS:g} for a unit at {OPEN:,} open tickets")
    memory, call = peak_gib(arguments.problems)
    print(
        f"{memory:.2f} GiB of {MOST_GIB:g} for {arguments.problems:,} problems, 256 open; "
        f"{call:.0f} us for a whole call"
    )
    if arguments.json is not None:
        write_result(
            arguments.json,
            command=["python", "benchmarks/perf/allocate.py"],
            rows=[
                {"name": "unit", "open_tickets": OPEN, "microseconds": round(unit, 1)},
                {
                    "name": "many problems",
                    "problems": arguments.problems,
                    "peak_gib": round(memory, 3),
                    "microseconds_per_call": round(call),
                },
            ],
            seed=0,
        )


if __name__ == "__main__":
    main()
