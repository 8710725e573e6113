"""What keeping a budget costs: processor time for each call, and memory of a long queue.

Run as `python benchmarks/perf/budget.py [--json PATH] [--problems N]`.

Times are of the ledger, of the machine that gives units away, and of both as a run over many
problems uses them, with 10,000 tickets open and as many units in flight. A call reserves tokens,
calls, FLOPs and dollars under limits on all of them, shares its prompt with the others, and is
settled and told while all others are open. Figures are medians over rounds of 1,000 calls, in
processor time; the spread is the distance from the slowest round to the fastest.

Memory is the peak of a process of its own that solves many problems, 256 of them open at once,
one without an allocator and, beside it, one with. Their engine keeps nothing and says little, so
that it is ttc's own: what is queued, what is open, and the outcomes with their traces. Linux only.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ttc
from ttc.allocate import Allocation, GreedyGain, Terms, Unit
from ttc.benchmarks.results import write_result
from ttc.budget import Account, Ticket
from ttc.prompt_tree import PromptTree
from ttc.strategies import Greedy, Sample, Vote
from ttc.testing import FakeEngine, ManualClock
from ttc.types import Branch, Budget

__all__ = ["OPEN", "Queue", "main", "per_call"]

OPEN = 10_000
ROUND = 1_000
MOST_MICROSECONDS = 60.0
MOST_BYTES = 1e9
ROLLOUTS = {"off": Greedy(max_tokens=16), "on": Sample(n=2, ahead=1, max_tokens=16) >> Vote()}
"""What is asked of each problem, without an allocator and with one."""


class Ledger:
    """Tickets of one account, of which so many are always open."""

    def __init__(self) -> None:
        self._account = Account(Budget(tokens=10**9, calls=10**9, flops=1e18, cost_usd=1e6))
        self._prompt = PromptTree(), Branch(text="", token_ids=tuple(range(200)))
        self._open: deque[Ticket] = deque()
        while len(self._open) < OPEN:
            self.launch()

    def launch(self) -> None:
        """Opens one more."""
        ticket = self._account.launch(
            "0.sample",
            need={"tokens": 256, "calls": 1},
            floor={"tokens": 128, "calls": 1},
            prompt=self._prompt,
            price=lambda tokens: {"flops": 10**6 * tokens, "cost_usd": 600_000 * tokens},
        )
        assert ticket.state == "open"
        self._open.append(ticket)

    def step(self) -> None:
        """One call: settles the oldest ticket and launches another."""
        used = {"tokens": 100, "calls": 1, "flops": 10**8, "cost_usd": 10**7}
        self._open.popleft().settle(used)
        self.launch()


class Market:
    """Units of one budget, of which so many are always in flight, each of another problem."""

    def __init__(self) -> None:
        terms = Terms(tokens=10**9, num_problems=OPEN, unit=256)
        allocator = GreedyGain(window=OPEN, num_open=OPEN)
        self._machine = Allocation(allocator, terms, [str(i) for i in range(OPEN)])
        while isinstance(self._machine.ask(), Unit):
            pass

    def step(self) -> None:
        """One call: tells the result of the oldest unit and asks for another."""
        oldest = self._machine.oldest
        assert oldest is not None
        gain = 1.0 / (2 + oldest.number % 97)
        self._machine.tell(oldest, tokens=128, offer=(gain, 128.0, None))
        assert isinstance(self._machine.ask(), Unit)


def per_call(*steps: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Microseconds of processor time for one call of all steps: the median round, and the spread.

    One round comes first that is not measured.
    """
    times = []
    for _ in range(rounds + 1):
        began = time.process_time()
        for _ in range(ROUND):
            for step in steps:
                step()
        times.append((time.process_time() - began) / ROUND * 1e6)
    return statistics.median(times[1:]), max(times[1:]) - min(times[1:])


class Forgetful(FakeEngine):
    """A fake engine that keeps no list of what it was asked."""

    def submit(self, *args: Any) -> Any:
        """Queues a call."""
        self.requests.clear()
        return super().submit(*args)


def solve_queue(num_problems: int, allocator: str) -> None:
    """Solves many problems in this process, and prints its bytes before and at its peak."""
    questions = [f"What is {number} + {number}?" for number in range(num_problems)]
    before, clock, is_on = _bytes("VmRSS"), ManualClock(), allocator == "on"
    run = ttc.asolve_many(
        questions,
        ROLLOUTS[allocator],
        model=Forgetful("It is 4.", clock=clock, seconds_per_token=0.01),
        budget=Budget(tokens=1_000 * num_problems) if is_on else None,
        allocator=GreedyGain(num_open=256) if is_on else None,
        concurrency=256,
        clock=clock,
        seed=0,
    )
    outcomes = clock.run(run)
    assert len(outcomes) == num_problems <= sum(outcome.usage.calls for outcome in outcomes)
    print(before, _bytes("VmHWM"), time.process_time())


def _bytes(what: str) -> int:
    """What this process holds, `VmRSS`, or held at most, `VmHWM`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


class Queue:
    """A process that solves many problems, and what it came to."""

    def __init__(self, num_problems: int, allocator: str) -> None:
        command = [sys.executable, __file__, "--queue", allocator, "--problems", str(num_problems)]
        self._num_problems = num_problems
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait(self) -> None:
        """Waits for its end, and takes its figures.

        Raises:
            RuntimeError: it failed; its own output says why.
        """
        told, _ = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"the process ended with {self._process.returncode}")
        before, peak, seconds = told.split()
        self.peak_bytes, num_problems = int(peak), self._num_problems
        self.bytes_each = (int(peak) - int(before)) / num_problems
        self.milliseconds_each = 1000 * float(seconds) / num_problems

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Its figures."""
        return [
            row(f"{name}: peak memory", self.peak_bytes, "bytes", target=MOST_BYTES),
            row(f"{name}: memory for each problem", round(self.bytes_each), "bytes"),
            row(f"{name}: processor time for each problem", self.milliseconds_each, "ms"),
        ]


def row(
    name: str,
    value: float,
    unit: str,
    *,
    target: float | None = None,
    spread: float | None = None,
) -> dict[str, Any]:
    """One line of the table, which is printed too."""
    bound = "" if target is None else f" of {target:,g}"
    print(f"{name:66} {value:14,.1f} {unit}{bound}", flush=True)
    found = {"name": name, "value": round(value, 2), "unit": unit, "target": target}
    return found if spread is None else found | {"spread": round(spread, 2)}


def overheads(rounds: int) -> list[dict[str, Any]]:
    """The rows of one call at many open tickets."""
    ledger, market = Ledger().step, Market().step
    parts = {"ledger": [ledger], "allocator": [market], "ledger and allocator": [ledger, market]}
    rows = []
    for name, steps in parts.items():
        value, spread = per_call(*steps, rounds=rounds)
        target = MOST_MICROSECONDS if len(steps) > 1 else None
        title = f"{name}, one call at {OPEN:,} open tickets"
        rows.append(row(title, value, "us", target=target, spread=spread))
    return rows


def main() -> None:
    """Measures, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of 1,000 calls")
    parser.add_argument("--problems", type=int, default=100_000, help="how long the queue is")
    parser.add_argument("--queue", choices=ROLLOUTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.queue:
        solve_queue(arguments.problems, arguments.queue)
        return
    rows = overheads(arguments.rounds)
    queues = {allocator: Queue(arguments.problems, allocator) for allocator in ROLLOUTS}
    for allocator, queue in queues.items():  # they run beside each other: each counts its own
        queue.wait()
        rows += queue.rows(f"{arguments.problems:,} problems, 256 open, allocator {allocator}")
    if arguments.json is not None:
        write_result(arguments.json, command=["python", *sys.argv], rows=rows, seed=0)


if __name__ == "__main__":
    main()
