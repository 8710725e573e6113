"""Whether a run over 100,000 problems on 64 simulated endpoints holds, in shards.

Run as `python benchmarks/perf/scale.py [--json PATH] [--problems N] [--shards N] [--endpoints N]`.

Checked at every call: what was spent and what is reserved stay within the shard's budget. Of every
endpoint: its memory is never overdrawn. At the end: memory of the process does not grow with the
shards that have ended, and two shards merged are what one undivided run over their problems comes
to. Seconds are the processor's; those of the endpoints are simulated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ttc.benchmarks.fleet import Figures, simulate
from ttc.benchmarks.results import write_result

__all__ = ["main", "rows_of"]


def rows_of(figures: Figures) -> list[dict[str, str | int | float | bool | None]]:
    """What was measured."""
    rows = figures.merged.rows
    early, late = figures.peaks[len(figures.peaks) // 4], figures.peaks[-1]
    alike = all(
        (row["answer"], row["stopped_by"]) == (outcome.answer, outcome.stopped_by)
        for row, outcome in zip(rows, figures.whole, strict=False)
    )
    table: list[tuple[str, int | float | bool, str, float | None]] = [
        ("problems", len(rows), "", None),
        ("calls", figures.calls, "", None),
        ("spent and reserved, at most", round(figures.most_tokens, 4), "of the budget", 1.0),
        ("memory of an endpoint, at most", round(figures.most_kv, 4), "of its own", 1.0),
        ("calls of the busiest endpoint", round(figures.balance, 2), "of the mean", None),
        ("peak memory after a quarter of the shards", early, "bytes", None),
        ("peak memory after all shards", late, "bytes", round(1.15 * early)),
        ("processor time", round(figures.processor_seconds, 1), "s", None),
        (
            "processor time of a call",
            round(1e6 * figures.processor_seconds / figures.calls),
            "us",
            None,
        ),
        ("simulated time", round(figures.simulated_seconds, 1), "s", None),
        ("shards missing", len(figures.merged.missing), "", 0.0),
        ("merged shards are one undivided run", alike, "", None),
    ]
    return [
        {"name": name, "value": value, "unit": unit, "target": target}
        for name, value, unit, target in table
    ]


def main() -> None:
    """Runs, prints, and writes the table where it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--endpoints", type=int, default=64)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = simulate(
            Path(folder),
            problems=asked.problems,
            shards=asked.shards,
            endpoints=asked.endpoints,
        )
    rows = rows_of(figures)
    for row in rows:
        print(f"{row['name']:<44}{row['value']:>16} {row['unit']}")
    if asked.json is not None:
        write_result(asked.json, command=["python", *sys.argv], rows=rows, seed=3)


if __name__ == "__main__":
    main()
