"""How fast programs are judged: HumanEval's references, a trivial check, a check after a kill.

Run as `python benchmarks/perf/sandbox.py [--json PATH]`. References run one at a time, so that
their rate is that of one core: two fresh processes each, and what starts, hears and reaps them.
Beside the rate by wall time stands that by processor time, which a busy machine disturbs less.
Figures are medians of several rounds; the spread is the distance from the slowest to the fastest.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ttc.benchmarks.hidden_tests import human_eval_solved
from ttc.benchmarks.results import write_result
from ttc.benchmarks.tasks import Item
from ttc.sandbox.forms import Asserts
from ttc.sandbox.limits import Limits
from ttc.sandbox.sandbox import Sandbox

LIMITS = Limits(seconds=60, cpu_seconds=60)
TRIVIAL = "def add(a, b): return a + b"
ENDLESS = "def add(a, b):\n    while True: pass"
CHECK = Asserts(asserts=("assert add(1, 2) == 3",))


def used() -> float:
    """Processor seconds of this process and of the children that it has reaped."""
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


async def references(given: Sequence[tuple[Item, str]]) -> tuple[float, float]:
    """References per second of one round, by wall and by processor time."""
    spent = used()
    sandbox = Sandbox("full", concurrency=1)
    await sandbox.ready()
    started = time.perf_counter()
    for item, solution in given:
        program = f"{item.problem.prompt}{solution}"
        execution = await sandbox.execute(program, item.reference.tests, limits=LIMITS)
        if not execution.passed:
            raise SystemExit(f"{item.problem.id} did not pass: {execution.reason}")
    wall = time.perf_counter() - started
    await sandbox.close()  # what it has used is known once it is reaped
    return len(given) / wall, len(given) / (used() - spent)


async def latencies(runs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of trivial checks, and of trivial checks right after a kill."""
    sandbox = Sandbox("full", concurrency=1)
    await sandbox.ready()
    trivial, after = [], []
    for _ in range(runs):
        trivial.append(await milliseconds(sandbox))
        await sandbox.execute(ENDLESS, CHECK, limits=Limits(seconds=0.2))
        after.append(await milliseconds(sandbox))
    await sandbox.close()
    return trivial, after


async def milliseconds(sandbox: Sandbox) -> float:
    """How long one trivial check takes."""
    started = time.perf_counter()
    await sandbox.execute(TRIVIAL, CHECK, limits=LIMITS)
    return (time.perf_counter() - started) * 1000


def row(name: str, unit: str, values: Sequence[float]) -> dict[str, str | float]:
    """One line of the table."""
    value, spread = statistics.median(values), max(values) - min(values)
    print(f"{name:40} {value:8.1f} {unit}  spread {spread:.1f}")
    return {"name": name, "value": round(value, 1), "unit": unit, "spread": round(spread, 1)}


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--runs", type=int, default=5, help="rounds, and checks after a kill")
    arguments = parser.parse_args()
    given = list(human_eval_solved())
    rounds = [asyncio.run(references(given)) for _ in range(arguments.runs)]
    trivial, after = asyncio.run(latencies(4 * arguments.runs))
    rows = [
        row("HumanEval references by wall time", "1/s of a core", [wall for wall, _ in rounds]),
        row("HumanEval references by processor time", "1/s of a core", [cpu for _, cpu in rounds]),
        row("a trivial check", "ms", trivial),
        row("a trivial check after a kill", "ms", after),
    ]
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
