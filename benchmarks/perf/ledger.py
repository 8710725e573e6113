"""What the ledger costs: time for each call with many open tickets, and memory of a long queue.

    python -m ttc.benchmarks.perf.ledger
    python -m ttc.benchmarks.perf.ledger --problems 100000

Prints one JSON object. Times are processor time, so that a busy machine counts for less.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from typing import Any

import ttc
from ttc.budget import Account, Ticket
from ttc.prompt_tree import PromptTree
from ttc.strategies import Greedy
from ttc.testing import FakeEngine, ManualClock
from ttc.types import Branch, Budget

__all__ = ["main", "memory_of_a_queue", "microseconds_per_call"]


class Forgetful(FakeEngine):
    """A fake engine that keeps no list of what it was asked."""

    def submit(self, *args: Any) -> Any:
        """Queues a call."""
        self.requests.clear()
        return super().submit(*args)


def microseconds_per_call(num_open: int, *, rounds: int = 20_000) -> float:
    """Median processor time to launch and settle one call while `num_open` others are open.

    Each call reserves tokens, calls, FLOPs and dollars under limits on all of them, and shares its
    prompt with the others. The oldest open call is settled each time, so that the line moves on.
    """
    prompt = Branch(text="", token_ids=tuple(range(200)))
    account, tree = (
        Account(Budget(tokens=10**9, calls=10**9, flops=1e18, cost_usd=1e6)),
        PromptTree(),
    )

    def launch() -> Ticket:
        return account.launch(
            "0.sample",
            need={"tokens": 256, "calls": 1},
            floor={"tokens": 128, "calls": 1},
            prompt=(tree, prompt),
            price=lambda tokens: {"flops": 10**6 * tokens, "cost_usd": 600_000 * tokens},
        )

    open_tickets = [launch() for _ in range(num_open)]
    times = []
    for number in range(rounds):
        started = time.process_time_ns()
        ticket = launch()
        oldest = open_tickets[number % num_open]
        oldest.settle({"tokens": 100, "calls": 1, "flops": 10**8, "cost_usd": 10**7})
        times.append(time.process_time_ns() - started)
        open_tickets[number % num_open] = ticket
    for ticket in open_tickets:
        ticket.cancel()
    return statistics.median(times) / 1000


def memory_of_a_queue(num_problems: int, *, concurrency: int = 256) -> float:
    """Greatest resident memory in MB of a run over many problems, some of them open at once."""
    clock = ManualClock()
    engine = Forgetful("It is 4.", clock=clock, seconds_per_token=0.01)
    questions = [f"What is {number} + {number}?" for number in range(num_problems)]
    run = ttc.asolve_many(
        questions, Greedy(max_tokens=16), model=engine, concurrency=concurrency, clock=clock, seed=0
    )
    outcomes = clock.run(run)
    if len(outcomes) != num_problems:
        raise RuntimeError(f"{len(outcomes)} outcomes of {num_problems} problems")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, help="measure a queue of so many problems instead")
    arguments = parser.parse_args()
    if arguments.problems:
        found = {"problems": arguments.problems, "peak_mb": memory_of_a_queue(arguments.problems)}
    else:
        found = {f"us_per_call_at_{n}_open": microseconds_per_call(n) for n in (1, 100, 10_000)}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
