"""What a call costs beside the engine's work, in memory and with a journal on disk.

Run as `python benchmarks/perf/journal.py [--calls N] [--length N]`. Runs with and without a journal
take turns, on an engine that answers at once; a figure is the median over rounds of the processor
time of the whole process for each call. What the journal alone adds is the difference, and resuming
is a run whose answers are all in the journal.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import ttc
from ttc.strategies import Sample, Vote
from ttc.testing import FakeEngine

ROUNDS = 5


def seconds(num_calls: int, engine: FakeEngine, journal: Path | None) -> float:
    """Processor time of a run."""
    start = time.process_time()
    strategy = Sample(n=num_calls, ahead=64) >> Vote()
    ttc.solve("What is 17 * 23?", strategy, model=engine, seed=0, journal=journal)
    return time.process_time() - start


def main() -> None:
    """Prints microseconds for each call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--length", type=int, default=64, help="tokens of each answer")
    arguments = parser.parse_args()
    engine = FakeEngine("so " * (arguments.length - 4) + "the answer is 391.")
    took: dict[str, list[float]] = {"in memory": [], "on disk": [], "resumed": []}
    seconds(10, engine, None)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            path = Path(folder) / f"{turn}.journal"
            took["in memory"].append(seconds(arguments.calls, engine, None))
            took["on disk"].append(seconds(arguments.calls, engine, path))
            took["resumed"].append(seconds(arguments.calls, engine, path))
        size = next(Path(folder).iterdir()).stat().st_size / arguments.calls
    for way, times in took.items():
        print(f"{way}: {statistics.median(times) / arguments.calls * 1e6:.0f} us a call")
    print(f"the journal holds {size:.0f} bytes a call")


if __name__ == "__main__":
    main()
